"""Usage: who held how much of the cluster, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.api.schema import WireView

_MICRO_GPU_S = "Micro-GPU-seconds: a milli-GPU for a millisecond."


@dataclass(frozen=True, slots=True)
class UsageRowView(WireView):
    """What was used under some keys, such as a user. Whole numbers, so that sums are exact."""

    keys: Mapping[str, str]
    jobs: int
    held: int = field(metadata={"description": _MICRO_GPU_S})
    grown: int = field(metadata={"description": "Of it, beyond the fewest workers."})
    busy: int | None = field(metadata={"description": "Of it, at work; ``null``: not measured."})
    wasted: int | None = field(metadata={"description": "Of what was measured, not at work."})
    unmeasured: int = field(metadata={"description": "Of it, nobody knows how busy it was."})
    lost: Mapping[str, int] = field(
        metadata={"description": "Work that had to be done again, by whose fault that was."}
    )
    waiting: int = field(metadata={"description": "GPUs asked for, while the jobs waited."})
    cpu_ms: int = field(metadata={"description": "Milli-CPUs held, times milliseconds."})
    memory_mib_ms: int = field(metadata={"description": "MiB held, times milliseconds."})
    cost: float | None = field(
        metadata={"description": "In the currency; ``null``: nothing of it has a price."}
    )
    unpriced: int = field(metadata={"description": "Of what is charged, without a price."})


@dataclass(frozen=True, slots=True)
class CapacityUseView(WireView):
    """What the cluster had: held, idle and out of service add up to the capacity."""

    capacity: int
    held: int
    idle: int
    out_of_service: int
    idle_cost: float | None = field(
        metadata={"description": "What was in service and is charged to nobody."}
    )


@dataclass(frozen=True, slots=True)
class UsageView(WireView):
    """Usage of a time, by some keys."""

    since: float
    until: float
    by: tuple[str, ...]
    currency: str
    old_prices: tuple[str, ...] = field(
        metadata={"description": "Kinds of GPU whose newest price is older than 90 days."}
    )
    rows: tuple[UsageRowView, ...] = ()
    total: UsageRowView | None = None
    cluster: CapacityUseView | None = field(
        default=None, metadata={"description": "``null`` for users: they see their own rows only."}
    )


@dataclass(frozen=True, slots=True)
class SpellView(WireView):
    """A time in which a job waited, or held the same on one node."""

    begin: float
    end: float | None
    what: str
    attempt: int
    node: str
    kind: str
    gpus: float
    grown: float
    held: int
    busy: int | None
    lost: int
    blame: str


@dataclass(frozen=True, slots=True)
class SpellList(WireView):
    """The spells of a job, in order."""

    items: tuple[SpellView, ...]
