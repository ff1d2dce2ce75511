"""The log of events, and the messages of the live stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roost.api.jobs import JobView
from roost.api.nodes import NodeView
from roost.api.queues import QueueView
from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class EventView(WireView):
    """One line of the event log: actor, job or node, what happened and why."""

    seq: int = 0
    n: int = 0
    time: float = 0.0
    actor: str = ""
    job: str = ""
    user: str = ""
    node: str = ""
    kind: str = ""
    old: str = ""
    new: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class EventPage(WireView):
    """A page of events, and how many there are in all."""

    items: tuple[EventView, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class GoneView(WireView):
    """A node or a queue that is no more."""

    id: str
    gone: bool = True


@dataclass(frozen=True, slots=True)
class StreamSnapshot(WireView):
    """The first message of a stream: a page of the jobs that are not over, all nodes and queues.

    ``more`` is how many other jobs are not over; an older server sends all of them. ``time`` is the
    server's clock, ``assets`` the digest of the portal's files.
    """

    seq: int
    epoch: int
    jobs: tuple[JobView, ...]
    nodes: tuple[NodeView, ...]
    queues: tuple[QueueView, ...]
    counts: Mapping[str, int]
    more: int = 0
    time: float = 0.0
    version: str = ""
    assets: str = ""


@dataclass(frozen=True, slots=True)
class StreamDelta(WireView):
    """What changed since the message before; jobs, nodes and queues are whole views."""

    seq: int
    jobs: tuple[JobView, ...]
    deleted: tuple[str, ...]
    events: tuple[EventView, ...]
    nodes: tuple[NodeView | GoneView, ...]
    queues: tuple[QueueView | GoneView, ...]
    counts: Mapping[str, int]
    time: float = 0.0
