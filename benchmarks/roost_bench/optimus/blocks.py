"""Which parameter server holds which block of a model: even in bytes and in requests.

A step asks every server for each of its blocks, so a server is the bottleneck when it holds more
bytes, or more blocks, than the others. Optimus (EuroSys 2018) names these two and the number of
requests in all as what to keep down, and cuts blocks that are larger than a server's fair part. So
does ``balanced``, in two steps:

- small blocks are dealt out in rounds, largest first: in each round every server gets one, and the
  server with the fewest bytes gets the largest. So they differ by one block at most;
- large ones fill every server up to its fair part, one server after the other, and are cut where a
  server is full (McNaughton's wrap-around rule, 1959): no more cuts than there are servers.

Large are those above the fair part, and as many of the next largest as it takes for no server to
have more than that from the small ones alone.

``by_threshold`` is the rule that MXNet's key-value store has by default: a block of 10^6 elements
or more is cut evenly over all servers, a smaller one goes whole to a server picked at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roost.errors import InvalidSpec

#: Elements from which on MXNet cuts a block over all servers.
THRESHOLD = 1_000_000
#: By how much a server may exceed its fair part before one more block is cut.
_SLACK = 1.01


class Piece(NamedTuple):
    """A part of a block: which block, and how large."""

    block: int
    size: int


class Imbalance(NamedTuple):
    """How uneven servers are: fullest against mean, in size and requests, and requests in all."""

    size: float
    requests: float
    total_requests: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The pieces that each server holds."""

    servers: tuple[tuple[Piece, ...], ...]

    def sizes(self) -> list[int]:
        """Elements (or bytes) on each server."""
        return [_size(pieces) for pieces in self.servers]

    def requests(self) -> list[int]:
        """Pieces on each server: one request each per worker and step."""
        return [len(pieces) for pieces in self.servers]

    def imbalance(self) -> Imbalance:
        """The fullest server against the mean."""
        sizes, requests = self.sizes(), self.requests()
        return Imbalance(_over_mean(sizes), _over_mean(requests), sum(requests))


def balanced(blocks: Sequence[int], servers: int) -> Assignment:
    """Blocks (their sizes) over servers, even in size and in number."""
    _check(blocks, servers)
    part = sum(blocks) / servers
    order = sorted(enumerate(blocks), key=lambda item: (-item[1], item[0]))
    large = sum(size > part for size in blocks)
    while True:
        held = _deal(order[large:], servers)
        if large >= len(order) or max(map(_size, held)) <= _SLACK * part:
            break
        large += 1
    _fill(order[:large], held)
    return Assignment(tuple(tuple(own) for own in held))


def by_threshold(
    blocks: Sequence[int], servers: int, chance: np.random.Generator, threshold: int = THRESHOLD
) -> Assignment:
    """Small blocks whole and at random, large ones cut over all servers."""
    _check(blocks, servers)
    held: list[list[Piece]] = [[] for _ in range(servers)]
    for block, size in enumerate(blocks):
        if size < threshold:
            held[int(chance.integers(servers))].append(Piece(block, size))
        else:
            for at, piece in enumerate(_evenly(block, size, servers)):
                held[at].append(piece)
    return Assignment(tuple(tuple(own) for own in held))


def _evenly(block: int, size: int, pieces: int) -> list[Piece]:
    least, more = divmod(size, pieces)
    sizes = (least + (at < more) for at in range(pieces))
    return [Piece(block, own) for own in sizes if own]


def _deal(blocks: Sequence[tuple[int, int]], servers: int) -> list[list[Piece]]:
    """Integers blocks, largest first, one for each server in each round."""
    held: list[list[Piece]] = [[] for _ in range(servers)]
    sizes = [0] * servers
    for first in range(0, len(blocks), servers):
        poorest = sorted(range(servers), key=sizes.__getitem__)
        for at, (block, size) in zip(poorest, blocks[first : first + servers], strict=False):
            held[at].append(Piece(block, size))
            sizes[at] += size
    return held


def _fill(blocks: Sequence[tuple[int, int]], held: list[list[Piece]]) -> None:
    """Blocks that may be cut, over servers one after the other up to an even size.

    Those with the fewest requests come last: what is cut lands on them.
    """
    left = sum(size for _, size in blocks)
    order = sorted(held, key=lambda own: (-len(own), _size(own)))
    sizes = [_size(own) for own in order]
    rest = list(reversed(blocks))
    for at, own in enumerate(order):
        room = max(0, -(-(left + sum(sizes[at:])) // (len(order) - at)) - sizes[at])
        while rest and room:
            block, size = rest.pop()
            taken = min(size, room)
            own.append(Piece(block, taken))
            room, left = room - taken, left - taken
            if size > taken:
                rest.append((block, size - taken))
    order[-1].extend(Piece(*one) for one in reversed(rest))


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _over_mean(values: Sequence[int]) -> float:
    mean = sum(values) / len(values)
    return max(values) / mean if mean else 1.0


def _check(blocks: Sequence[int], servers: int) -> None:
    if servers < 1 or any(size < 1 for size in blocks):
        raise InvalidSpec(f"needs servers and blocks of at least 1, got {servers} and {blocks}")
