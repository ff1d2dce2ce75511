"""Machines, what runs use of them, and the state of the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from roost.api.schema import MaskedView, WireView


@dataclass(frozen=True, slots=True)
class DeviceJobView(MaskedView):
    """A job on a device, and the part of it that it has."""

    job: str = ""
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class NoticeView(WireView):
    """When something was taken out of service, why, and by whom."""

    since: float
    reason: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class DeviceView(WireView):
    """A GPU of a node."""

    index: int
    healthy: bool = True
    notice: NoticeView | None = None
    jobs: tuple[DeviceJobView, ...] = ()
    use: float | None = field(
        default=None,
        metadata={"description": "The part of the time in which it works; null: not known."},
    )


@dataclass(frozen=True, slots=True)
class WindowView(WireView):
    """When a node is to be empty for maintenance, and whether it is now."""

    starts_at: float
    ends_at: float
    reason: str = ""
    user: str = ""
    begun: bool = False


@dataclass(frozen=True, slots=True)
class NodeView(WireView):
    """A machine and its devices.

    ``cordoned``: it takes nothing new; ``draining``: what runs there is also asked to leave;
    ``drained``: all of it has left. ``notice`` says why. ``runs`` are those that are there.
    """

    id: str
    state: Literal["up", "lost", "cordoned", "draining", "drained"] = "up"
    kind: str = ""
    gpus: int = 0
    gpus_free: float = 0.0
    gpus_failed: int = 0
    gpu_memory_mib: int = 0
    cpus: float = 0.0
    memory_mib: int = 0
    runs: int = 0
    notice: NoticeView | None = None
    maintenance: tuple[WindowView, ...] = ()
    devices: tuple[DeviceView, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeList(WireView):
    """All machines."""

    items: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True)
class UsageView(WireView):
    """What a run uses now."""

    job: str
    attempt: int
    cpu_s: float
    rss_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class UsageList(WireView):
    """What runs use now, and the machines."""

    jobs: tuple[UsageView, ...]
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True)
class StateView(WireView):
    """The state of the core, from which a simulation can go on."""

    seq: int
    policy: str
    placer: str
    digest: str
    core: Mapping[str, Any] = field(default_factory=dict)
