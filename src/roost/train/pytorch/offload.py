"""Leaves the memory of the GPU and comes back: the state lies in pinned host memory meanwhile.

The room in host memory is made beforehand, because pinning takes longer than copying. Tensors keep
their identity: only their storages are emptied, so the optimiser, the model and all code that
refers to them go on as before. On a CPU it works the same way, without pinning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import torch

#: Copies go in pieces of the room; storages start at multiples of this.
_ALIGN = 512


class Pool:
    """Room in host memory for the state of a training."""

    def __init__(self, *, pin: bool) -> None:
        self._pin = pin
        self._room: torch.Tensor | None = None
        self._making: threading.Thread | None = None
        self._out: list[tuple[torch.UntypedStorage, int, int]] = []

    @property
    def size(self) -> int:
        """How many bytes fit."""
        return 0 if self._room is None else self._room.numel()

    def make(self, tensors: Callable[[], Iterable[torch.Tensor]]) -> None:
        """Begin to make room for them, in the background; once."""
        if self._making is not None or self._room is not None:
            return
        size = sum(_room_for(storage) for storage in _storages(tensors()))
        self._making = threading.Thread(target=self._make, args=(size,), daemon=True)
        self._making.start()

    def leave(self, tensors: Iterable[torch.Tensor]) -> int:
        """Copy them out and free what they occupied; how many bytes that is."""
        storages = _storages(tensors)
        self._wait(sum(_room_for(storage) for storage in storages))
        assert self._room is not None  # noqa: S101 - made just now
        start = 0
        for storage in storages:
            self._out.append((storage, start, storage.nbytes()))
            place = self._room[start : start + storage.nbytes()]
            place.copy_(_bytes(storage), non_blocking=True)
            start += _room_for(storage)
        # Copies are queued on the GPU: all must be done before a storage is emptied.
        _finish()
        for storage in storages:
            storage.resize_(0)
        _give_back()
        return sum(size for _, _, size in self._out)

    def come_back(self) -> int:
        """Bring everything back to where it was; how many bytes that is."""
        back = 0
        for storage, _, size in self._out:
            storage.resize_(size)
        for storage, start, size in self._out:
            assert self._room is not None  # noqa: S101 - they are in it
            _bytes(storage).copy_(self._room[start : start + size], non_blocking=True)
            back += size
        _finish()
        self._out.clear()
        return back

    def _wait(self, size: int) -> None:
        if self._making is not None:
            self._making.join()
            self._making = None
        # The model may have grown since make(), or room was never asked for.
        if self.size < size:
            self._make(size)

    def _make(self, size: int) -> None:
        self._room = torch.empty(size, dtype=torch.uint8, pin_memory=self._pin)


def _storages(tensors: Iterable[torch.Tensor]) -> list[torch.UntypedStorage]:
    """What they lie in, each once."""
    found = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}  # noqa: SLF001
    return [storage for storage in found.values() if storage.nbytes()]


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _room_for(storage: torch.UntypedStorage) -> int:
    return -(-storage.nbytes() // _ALIGN) * _ALIGN


def _finish() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def _give_back() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        # The allocator keeps freed memory for itself; other processes get it only by this.
        torch.cuda.empty_cache()
