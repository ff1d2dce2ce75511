"""What pages show together: the state of things at a glance, one node, who did what, the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from roost.api.accounts import BoundsView, UseView
from roost.api.events import EventView
from roost.api.jobs import JobView, StateName
from roost.api.nodes import NodeView
from roost.api.schema import WireView

Trouble = Literal["failed", "stuck", "low-use", "never", "waiting-long", "restrained"]


@dataclass(frozen=True, slots=True)
class AttentionView(WireView):
    """A job that somebody should look at, and why."""

    job: str
    name: str
    state: StateName
    what: Trouble
    text: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class FreeView(WireView):
    """Devices of one kind: how many there are, and how many nobody has.

    ``whole`` are those of which nobody has a part, ``largest`` the most of them on one node,
    ``out`` those of nodes that take nothing new.
    """

    kind: str
    gpus: int = 0
    free: float = 0.0
    whole: int = 0
    largest: int = 0
    failed: int = 0
    out: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class QueueUseView(WireView):
    """A queue in short; ``own_waiting`` are jobs of the caller."""

    id: str
    quota: float | None = None
    limit: float | None = None
    used: float = 0.0
    waiting: int = 0
    own_waiting: int = 0
    oldest_s: float | None = None


@dataclass(frozen=True, slots=True)
class SummaryView(WireView):
    """The caller's jobs and what is free; ``mine`` counts what is over of the last 7 days."""

    time: float
    user: str
    role: str
    mine: Mapping[str, int]
    attention: tuple[AttentionView, ...]
    recent: tuple[JobView, ...]
    free: tuple[FreeView, ...]
    queues: tuple[QueueUseView, ...]
    bounds: BoundsView | None = None
    use: UseView | None = None


@dataclass(frozen=True, slots=True)
class NodeDetail(WireView):
    """One machine, the jobs on it, and what happened to it, the newest first."""

    node: NodeView
    jobs: tuple[JobView, ...]
    events: tuple[EventView, ...]


@dataclass(frozen=True, slots=True)
class AuditPage(WireView):
    """What people did, the newest first; ``next`` is the ``before`` of the page after it."""

    items: tuple[EventView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionsView(WireView):
    """How often the core decided, and how long it took, in seconds."""

    count: int
    mean_s: float
    slowest_s: float


@dataclass(frozen=True, slots=True)
class ServerView(WireView):
    """The health of the server itself; ``null`` for what is not known."""

    version: str
    up_s: float
    pid: int
    rss_bytes: int
    cpu_s: float
    fds: int
    fds_most: int | None
    ok: bool
    why: str
    policy: str
    policy_fails: str
    placer: str
    store: str
    store_bytes: int | None
    disk_free_bytes: int | None
    journal_seq: int
    append_errors: int
    decisions: DecisionsView
    streams: int
    viewers: int
    encoded: int
    ticks: int
    requests: int
    jobs_open: int
    clock: str


@dataclass(frozen=True, slots=True)
class SpecFault(WireView):
    """What is wrong in a job file, and where; line and column from 1, 0: not known."""

    line: int = 0
    column: int = 0
    field: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ParsedSpec(WireView):
    """A job file that was read: the job, or what is wrong with it.

    ``comments``: the text has comments, which a form cannot keep.
    """

    ok: bool
    job: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    errors: tuple[SpecFault, ...] = ()
    comments: bool = False


@dataclass(frozen=True, slots=True)
class RenderedSpec(WireView):
    """A job as YAML, or what is wrong with it."""

    text: str = ""
    errors: tuple[SpecFault, ...] = field(default=())
