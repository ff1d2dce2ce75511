"""What a node counts beside GPUs, CPUs, memory and workers: slices of devices, huge pages, ports.

An *extra* is a name and an amount. The names mean nothing to the core: a node says how much of each
it has, a worker how much it takes, and the ledger subtracts. What a node does not name, it has none
of. A node that names ``port/*`` has as much of every single name that begins with ``port/``: such
names are without number, and so nobody could list them.

Amounts are whole numbers of the smallest unit: pieces, or bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from roost.errors import InvalidSpec

#: Amounts by name, in order of the names, each name once.
Extras: TypeAlias = tuple[tuple[str, int], ...]

_ALL = "/*"
_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20))


def check_extras(extras: Extras, whose: str) -> None:
    """Refuse what is no list of amounts; raises InvalidSpec."""
    before = ""
    for name, amount in extras:
        if name <= before:
            raise InvalidSpec(f"extras of {whose} must be in order, each named once, got {name!r}")
        if amount < 1:
            raise InvalidSpec(f"{name} of {whose} must be at least 1, got {amount}")
        before = name


def extra_capacity(extras: Extras, name: str) -> int:
    """How much of one thing a node has of which these are the extras."""
    known = _by_name(extras)
    found = known.get(name)
    if found is not None:
        return found
    return known.get(name.partition("/")[0] + _ALL, 0)


def extra_room(extras: Extras, used: Mapping[str, int], need: Extras) -> int:
    """For how many workers with such a need there is enough of it; ``need`` is not empty."""
    return min(
        (extra_capacity(extras, name) - used.get(name, 0)) // amount for name, amount in need
    )


def extra_shortage(extras: Extras, used: Mapping[str, int], need: Extras, workers: int = 1) -> str:
    """The first thing of which there is not enough for so many workers; nothing, if there is."""
    for name, amount in need:
        if amount * workers > extra_capacity(extras, name) - used.get(name, 0):
            return name
    return ""


def covers_extras(more: Extras, less: Extras) -> bool:
    """Whether there is as much of everything as before."""
    return more == less or all(extra_capacity(more, name) >= amount for name, amount in less)


def is_of_every_node(extras: Extras, name: str) -> bool:
    """Whether a node has something because it has all that is named in such a way."""
    known = _by_name(extras)
    return name not in known and name.partition("/")[0] + _ALL in known


def extra_text(name: str, amount: int) -> str:
    """An amount as people read it: ``2 rdma/hca``, ``1.5Gi ephemeral-storage``."""
    for unit, size in _BINARY:
        if amount >= size:
            return f"{amount / size:.4g}{unit} {name}"
    return f"{amount} {name}"


@lru_cache(maxsize=4096)
def _by_name(extras: Extras) -> dict[str, int]:
    return dict(extras)
