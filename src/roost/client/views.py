"""What the server tells, as values: jobs, pages of them, events.

Read leniently: a field that an older server does not send has its default, one that a newer server
adds is in ``raw``, which is what the API gave, word for word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, TypeVar

from roost.errors import Fatal

T = TypeVar("T")

#: States that a job never leaves.
OVER = frozenset({"succeeded", "failed", "cancelled"})
#: All states, in the order in which jobs meet them.
STATES = (
    *("queued", "starting", "running", "suspended", "resizing"),
    *("succeeded", "failed", "cancelled"),
)


class WorkersView(NamedTuple):
    """How few and how many workers a job may have, and how many it has."""

    min: int = 1
    max: int = 1
    now: int = 0


_ONE = WorkersView()


class PlacementView(NamedTuple):
    """A part of what a job holds: workers of one role on one node."""

    node: str
    gpus: tuple[int, ...] = ()
    share: float = 1.0
    workers: int = 1
    role: str = "worker"


class ChangeView(NamedTuple):
    """What became of a job last, in words, and the seconds that it took and that training stood."""

    kind: str
    text: str = ""
    at: float = 0.0
    took_s: float | None = None
    pause_s: float | None = None
    before: int = 0
    after: int = 0


class VerdictView(NamedTuple):
    """Why a job failed: what it was, in words, whose doing, whether a retry helps, advice.

    ``worker`` is where it began, ``evidence`` the line of its log that tells, ``sentence`` all of
    it as one sentence.
    """

    kind: str
    phrase: str = ""
    whose: str = ""
    retry: str = ""
    advice: str = ""
    worker: str = ""
    evidence: str = ""
    code: int | None = None
    signal: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the server sees it; times are seconds since the epoch, ``None``: not yet."""

    id: str
    name: str = ""
    user: str = ""
    queue: str = ""
    state: str = ""
    cause: str = ""
    reason: str = ""
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    application: str = ""
    workers: WorkersView = _ONE
    gpus: float = 0.0
    gpus_held: float = 0.0
    kinds: tuple[str, ...] = ()
    share: float = 1.0
    way: str = ""
    qos: str = ""
    memory_limit_mib: int = 0
    placement: tuple[PlacementView, ...] = ()
    target: tuple[PlacementView, ...] | None = None
    attempt: int = 0
    failures: int = 0
    preemptions: int = 0
    resizes: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    ran_s: float = 0.0
    running_since: float | None = None
    not_before: float | None = None
    progress: float | None = None
    saved: float | None = None
    step: int | None = None
    loss: float | None = None
    step_s: float | None = None
    batch: int | None = None
    samples_per_s: float | None = None
    world: int | None = None
    memory_mib: int | None = None
    predicted_mib: int | None = None
    noise: float | None = None
    resizable: bool = False
    busy: float | None = None
    note: str = ""
    change: ChangeView | None = None
    run_time_s: float | None = None
    exit_code: int | None = None
    verdict: VerdictView | None = None
    held: bool = False
    cancelling: bool = False
    cancelled_by: str = ""
    elastic: bool = False
    clone_of: str = ""
    rev: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def over(self) -> bool:
        """Whether nothing will become of it any more."""
        return self.state in OVER


_PLAIN = frozenset(f.name for f in fields(JobView)) - {
    *("workers", "kinds", "placement", "target", "change", "verdict", "raw"),
}


def job_view(told: Any) -> JobView:
    """A job from what the API gave."""
    if not isinstance(told, dict) or not isinstance(told.get("id"), str):
        raise Fatal("the server's answer is not a job; is that a Roost server?")
    return JobView(
        **{name: told[name] for name in _PLAIN if name in told},
        workers=_tuple(WorkersView, told.get("workers")),
        kinds=tuple(told.get("kinds") or ()),
        placement=tuple(_place(place) for place in told.get("placement") or ()),
        target=None
        if told.get("target") is None
        else tuple(_place(place) for place in told["target"]),
        change=_tuple(ChangeView, told["change"]) if told.get("change") else None,
        verdict=_tuple(VerdictView, told["verdict"]) if told.get("verdict") else None,
        raw=told,
    )


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and how long the whole list is."""

    items: tuple[T, ...]
    total: int
    offset: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def job_page(told: Any) -> Page[JobView]:
    """A page of jobs from what the API gave."""
    items = items_of(told)
    return Page(
        tuple(map(job_view, items)),
        int(told.get("total", len(items))),
        int(told.get("offset", 0)),
        told,
    )


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A restore point of a job: how far it was, what was copied; ``id`` is JOB@NAME."""

    id: str
    job: str = ""
    name: str = ""
    user: str = ""
    job_name: str = ""
    created_at: float = 0.0
    step: int | None = None
    progress: float | None = None
    files: int = 0
    size_bytes: int = 0
    fresh: bool = False
    took_s: float = 0.0
    function: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


_POINT = frozenset(f.name for f in fields(SnapshotView)) - {"raw"}


def snapshot(told: Any) -> SnapshotView:
    """A snapshot from what the API gave."""
    if not isinstance(told, dict) or not isinstance(told.get("id"), str):
        raise Fatal("the server's answer is not a snapshot; is that a Roost server?")
    return SnapshotView(**{name: told[name] for name in _POINT if name in told}, raw=told)


@dataclass(frozen=True, slots=True)
class EventView:
    """One line of history: who did what to whom, and why."""

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
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


_TOLD = frozenset(f.name for f in fields(EventView)) - {"raw"}


def happening(told: Mapping[str, Any]) -> EventView:
    """An event from what the API gave."""
    known = {name: told[name] for name in _TOLD if told.get(name) is not None}
    return EventView(**known, raw=told)


def items_of(told: Any) -> Sequence[Any]:
    """The items of a list, bare or in a page."""
    items = told.get("items") if isinstance(told, dict) else told
    if not isinstance(items, list):
        raise Fatal("the server's answer is not a list; is that a Roost server?")
    return items


_N = TypeVar("_N", bound=tuple[Any, ...])


def _tuple(kind: type[_N], told: Any) -> _N:
    known = getattr(kind, "_fields", ())
    return kind(**{name: told[name] for name in known if name in (told or {})})


def _place(told: Mapping[str, Any]) -> PlacementView:
    place = _tuple(PlacementView, {"node": "", **told})
    return place._replace(gpus=tuple(place.gpus))
