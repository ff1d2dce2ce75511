"""Jobs as they are shown, and the answers to questions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from roost.api.schema import MaskedView, WireView, keys

StateName = Literal[
    "queued",
    "starting",
    "running",
    "suspended",
    "resizing",
    "succeeded",
    "failed",
    "cancelled",
]
#: All states, in the order in which jobs meet them, and those that a job never leaves.
STATES: tuple[str, ...] = get_args(StateName)
OVER = frozenset({"succeeded", "failed", "cancelled"})
#: The module that a job runs which was submitted as a function; without its pickle it is nothing.
FUNCTION_MODULE = "roost.client.call"

#: Marks of fields that change between entries of the journal: why a job waits, how it trains.
_WAITS, _TRAINS = {"waits": True}, {"trains": True}


@dataclass(frozen=True, slots=True)
class WorkersView(WireView):
    """How few and how many workers a job can have, and how many it has."""

    min: int = 1
    max: int = 1
    now: int = 0


@dataclass(frozen=True, slots=True)
class PlacementView(WireView):
    """A part of what a job holds: workers of one role on one node."""

    node: str = ""
    gpus: tuple[int, ...] = ()
    share: float = 1.0
    workers: int = 1
    role: str = "worker"


@dataclass(frozen=True, slots=True)
class ChangeView(WireView):
    """The last change of a job: in words, how long it took and how long the training stood still.

    ``before`` and ``after`` are numbers of workers.
    """

    kind: Literal["start", "resume", "suspend", "resize", "migrate", "shrink"]
    text: str = ""
    at: float = 0.0
    took_s: float | None = None
    pause_s: float | None = None
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class VerdictView(WireView):
    """Why a job failed: what it was, in words, whose fault, whether a retry helps, advice.

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
class JobView(WireView):
    """A job: the same keys in every interface."""

    id: str
    name: str = ""
    user: str = ""
    unix: str = field(
        default="", metadata={"description": "The Unix account that it runs under; empty: shared."}
    )
    queue: str = ""
    state: StateName = "queued"
    cause: str = field(default="", metadata={**_WAITS, "description": "Why, in a word."})
    reason: str = field(default="", metadata={**_WAITS, "description": "Why, in a sentence."})
    starts_at: float | None = field(
        default=None,
        metadata={**_WAITS, "description": "When it starts at the latest, where that is promised."},
    )
    priority: int = 0
    promise: str = field(
        default="",
        metadata={
            "description": "The cells of its queue by which it has its place; empty: it has none,"
            " or stays for as long as those whom it was promised do not need it."
        },
    )
    labels: Mapping[str, str] = field(default_factory=dict)
    application: str = ""
    workers: WorkersView = WorkersView()
    gpus: float = 0.0
    gpus_held: float = 0.0
    kinds: tuple[str, ...] = ()
    share: float = field(
        default=1.0,
        metadata={"description": "The part of a GPU that each worker has; 1: whole GPUs."},
    )
    way: Literal["temporal", "spatial", ""] = ""
    qos: Literal["fixed", "equal", "best-effort", ""] = ""
    memory_limit_mib: int = field(
        default=0, metadata={"description": "Of a worker on each GPU; 0: none, or not known."}
    )
    placement: tuple[PlacementView, ...] = ()
    target: tuple[PlacementView, ...] | None = field(
        default=None, metadata={"description": "Where a resize or a migration leads."}
    )
    attempt: int = 0
    failures: int = 0
    platform_failures: int = field(
        default=0, metadata={"description": "Failures of nodes, devices or Roost: not charged."}
    )
    preemptions: int = 0
    resizes: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    ran_s: float = 0.0
    gpu_s: float = field(
        default=0.0,
        metadata={"description": "GPU-seconds that its runs had: what they held, over time."},
    )
    running_since: float | None = None
    not_before: float | None = None
    progress: float | None = field(default=None, metadata=_TRAINS)
    saved: float | None = field(default=None, metadata=_TRAINS)
    step: int | None = field(default=None, metadata=_TRAINS)
    loss: float | None = field(default=None, metadata=_TRAINS)
    step_s: float | None = field(default=None, metadata=_TRAINS)
    batch: int | None = field(default=None, metadata=_TRAINS)
    samples_per_s: float | None = field(default=None, metadata=_TRAINS)
    world: int | None = field(
        default=None, metadata={**_TRAINS, "description": "Workers that train together now."}
    )
    memory_mib: int | None = field(
        default=None,
        metadata={**_TRAINS, "description": "The most GPU memory of a worker that was seen."},
    )
    predicted_mib: int | None = field(default=None, metadata=_TRAINS)
    noise: float | None = field(
        default=None,
        metadata={**_TRAINS, "description": "The gradient noise scale, in samples."},
    )
    resizable: bool = field(
        default=False, metadata={"description": "Whether it changes its size without a restart."}
    )
    busy: float | None = field(
        default=None,
        metadata={"description": "The part of the time in which its devices work."},
    )
    note: str = field(
        default="",
        metadata={"description": "What is wrong with what it holds; empty if nothing is."},
    )
    restraint: str = field(
        default="",
        metadata={"description": "Which bound its user is beyond, and what follows for the job."},
    )
    change: ChangeView | None = None
    run_time_s: float | None = None
    exit_code: int | None = None
    verdict: VerdictView | None = None
    held: bool = False
    cancelling: bool = False
    cancelled_by: str = ""
    elastic: bool = False
    clone_of: str = field(
        default="", metadata={"description": "The snapshot that it began from, as JOB@NAME."}
    )
    restored: bool = field(
        default=False, metadata={"description": "Whether it has the files of that snapshot."}
    )
    rerun_of: str = field(
        default="", metadata={"description": "The job that it runs once more, by its id."}
    )
    rev: int = 0

    @property
    def over(self) -> bool:
        """Whether its state is final."""
        return self.state in OVER


#: Fields of a job that change between entries of the journal while it waits, and at any time.
WAITING_KEYS = keys(JobView, "waits")
CHANGING_KEYS = (*WAITING_KEYS, *keys(JobView, "trains"))


@dataclass(frozen=True, slots=True)
class JobPage(WireView):
    """A page of jobs, and how many there are in all."""

    items: tuple[JobView, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class JobCountsView(WireView):
    """How many jobs there are: in all, by state, by queue and by user."""

    total: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    queues: Mapping[str, int] = field(default_factory=dict)
    users: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BulkOutcome(WireView):
    """How it went with one of many jobs: what it is now, the new job of a rerun, or why not."""

    job: str
    ok: bool = False
    state: str = ""
    made: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class BulkAnswer(WireView):
    """How it went with each of many jobs, in their order."""

    items: tuple[BulkOutcome, ...]


@dataclass(frozen=True, slots=True)
class ParsedJobFile(WireView):
    """A job file that was understood, and what could not be converted."""

    job: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanView(WireView):
    """Where and when a job would run; nothing was changed."""

    fits: bool
    never: bool
    reason: str
    starts_at: float | None = None
    ends_at: float | None = None
    placement: tuple[PlacementView, ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AheadView(MaskedView):
    """A job that goes first, or has to leave first."""

    job: str = ""
    gpus: float = 0.0
    user: str = ""


@dataclass(frozen=True, slots=True)
class HolderView(MaskedView):
    """A job that holds what another one needs."""

    job: str = ""
    user: str = ""
    gpus: float = 0.0
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class RemedyView(WireView):
    """A change with which a waiting job would start."""

    kind: str
    value: str | float | Sequence[str]
    change: str
    starts: Literal["now"]


@dataclass(frozen=True, slots=True)
class ExplanationView(WireView):
    """Why a job is where it is, what is ahead of it, when it starts, and what would start it now.

    ``starts_between``: the earliest and the latest estimate; ``null`` in it: later than was looked.
    """

    job: str
    state: StateName
    cause: str
    reason: str
    since: float | None = None
    not_before: float | None = None
    ahead: tuple[AheadView, ...] = ()
    ahead_count: int = 0
    held_by: tuple[HolderView, ...] = ()
    starts_at: float | None = None
    starts_between: tuple[float | None, ...] | None = None
    ends_at: float | None = None
    assumptions: tuple[str, ...] = ()
    remedies: tuple[RemedyView, ...] = ()
    verdict: VerdictView | None = None


@dataclass(frozen=True, slots=True)
class WorkerList(WireView):
    """The workers of a run that have an output."""

    attempt: int
    items: tuple[str, ...]
