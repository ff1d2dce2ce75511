"""Spells: times in which a run held the same on a node, a job waited, or a node was the same.

Amounts are whole: times in milliseconds, GPUs in milli-GPUs, and their product, micro-GPU-seconds,
is a milli-GPU for a millisecond. So sums are exact, however they are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

#: Milliseconds of a second, and micro-GPU-seconds of a GPU hour.
MS = 1000
GPU_HOUR = 3600 * 1_000_000

#: Labels of a job, sorted.
Labels: TypeAlias = tuple[tuple[str, str], ...]


def to_ms(time: float) -> int:
    """A time of an event, in whole milliseconds."""
    return round(time * MS)


@dataclass(slots=True)
class Spell:
    """A time in which a run held the same on one node, or (without a node) a job waited.

    ``gpu_milli`` is what it held, or asked for while it waited; ``grown_milli`` the part beyond
    its fewest workers. ``busy`` is what of ``measured`` its devices were at work, ``lost`` the work
    that its end threw away and ``blame`` whose fault that was; these three are micro-GPU-seconds.
    """

    n: int
    begin_ms: int
    end_ms: int | None
    job: str
    attempt: int
    user: str
    queue: str
    application: str = ""
    labels: Labels = ()
    node: str = ""
    kind: str = ""
    gpu_milli: int = 0
    grown_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    measured: int = 0
    busy: int = 0
    measured_to_ms: int = 0
    lost: int = 0
    blame: str = ""

    def clipped_ms(self, since_ms: int, until_ms: int) -> int:
        """How much of it lies in a time; what is still going on lasts until then."""
        return _overlap(self.begin_ms, self.end_ms, since_ms, until_ms)

    def document(self) -> dict[str, Any]:
        """Its fields as JSON has them."""
        return {name: getattr(self, name) for name in _SPELL_FIELDS}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Spell:
        """The spell of a document."""
        labels = tuple((str(key), str(value)) for key, value in document["labels"])
        return cls(**{**document, "labels": labels})


@dataclass(slots=True)
class NodeSpell:
    """A time in which a node had the same capacity, and as much of it was out of service.

    Out of service is what nobody could use: devices of a node that is gone, broken devices, and
    what is not held on a node that takes nothing new.
    """

    n: int
    begin_ms: int
    end_ms: int | None
    node: str
    kind: str
    gpu_milli: int
    out_milli: int

    def clipped_ms(self, since_ms: int, until_ms: int) -> int:
        """How much of it lies in a time; what is still going on lasts until then."""
        return _overlap(self.begin_ms, self.end_ms, since_ms, until_ms)

    def document(self) -> dict[str, Any]:
        """Its fields as JSON has them."""
        return {name: getattr(self, name) for name in _NODE_SPELL_FIELDS}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> NodeSpell:
        """The spell of a document."""
        return cls(**document)


_SPELL_FIELDS = tuple(field.name for field in fields(Spell))
_NODE_SPELL_FIELDS = tuple(field.name for field in fields(NodeSpell))

AnySpell: TypeAlias = Spell | NodeSpell


def _overlap(begin_ms: int, end_ms: int | None, since_ms: int, until_ms: int) -> int:
    end_ms = until_ms if end_ms is None else min(end_ms, until_ms)
    return max(0, end_ms - max(begin_ms, since_ms))
