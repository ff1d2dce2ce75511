"""What PyTorch's caching allocator of a GPU makes of allocations: how much it holds of the device.

The rules are those of ``c10/cuda/CUDACachingAllocator.cpp`` with its defaults: two pools, best fit,
splitting, neighbours joined when they are free, nothing given back to the device. One stream.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

MIB = 1 << 20
_UNIT = 512
#: What is at most so large comes from segments of 2 MiB; what is smaller than the second from
#: segments of 20 MiB; what is larger gets one of its own, in whole units of 2 MiB.
_SMALL, _MEDIUM = MIB, 10 * MIB
_SMALL_SEGMENT, _MEDIUM_SEGMENT = 2 * MIB, 20 * MIB


@dataclass(slots=True, eq=False)
class Block:
    """A stretch of a segment, taken or free, and its neighbours there."""

    size: int
    address: int
    small: bool
    free: bool = False
    before: Block | None = None
    after: Block | None = None


class CachingAllocator:
    """Bytes that tensors hold (``allocated``), that the device misses (``reserved``), and peaks."""

    def __init__(self) -> None:
        self.allocated = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        #: Free blocks of the two pools, by size and address.
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self._next_address = 0

    def take(self, size: int) -> Block:
        """A block of at least so many bytes."""
        wanted = max(_UNIT, -(-size // _UNIT) * _UNIT)
        block = self._fitting(wanted) or self._segment(wanted)
        rest = block.size - wanted
        if rest >= _UNIT if block.small else rest > _SMALL:
            self._split(block, wanted)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def give_back(self, block: Block) -> None:
        """The block is free from now on."""
        self.allocated -= block.size
        block.free = True
        if block.before is not None and block.before.free:
            self._unlist(block.before)
            self._join(block.before, block)
            block = block.before
        if block.after is not None and block.after.free:
            self._unlist(block.after)
            self._join(block, block.after)
        insort(self._free[block.small], (block.size, block.address, block))

    def _fitting(self, wanted: int) -> Block | None:
        pool = self._free[wanted <= _SMALL]
        at = bisect_left(pool, (wanted, -1))
        return pool.pop(at)[2] if at < len(pool) else None

    def _segment(self, wanted: int) -> Block:
        small = wanted <= _SMALL
        size = _SMALL_SEGMENT if small else _MEDIUM_SEGMENT
        if wanted >= _MEDIUM:
            size = -(-wanted // _SMALL_SEGMENT) * _SMALL_SEGMENT
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        address, self._next_address = self._next_address, self._next_address + size
        return Block(size, address, small)

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.address + size, block.small, free=True)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        insort(self._free[rest.small], (rest.size, rest.address, rest))

    def _unlist(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect_left(pool, (block.size, block.address))]

    @staticmethod
    def _join(first: Block, second: Block) -> None:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
