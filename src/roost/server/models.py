"""What goes over the wire, described: requests are checked against these, answers documented.

Answers are written straight from what the cluster and the store give; the tests check them
against these descriptions. Times are seconds since the epoch; ``null``: not yet, or not known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, StringConstraints

from roost.core.state import JobState
from roost.live.snapshot_files import NAME

_MOST_WORKERS = 100_000
_MOST_MILLI = 10**12

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$")]
Label = Annotated[str, StringConstraints(max_length=200)]
SnapshotName = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Role = Literal["admin", "user", "viewer"]


class RequestBody(BaseModel):
    """The body of a request: what is not known is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ResponseBody(BaseModel):
    """The body of an answer: a newer server may tell more."""

    model_config = ConfigDict(extra="allow")


class WorkersView(ResponseBody):
    """How few and how many workers a job can have, and how many it has."""

    min: int
    max: int
    now: int


class PlacementView(ResponseBody):
    """Workers of one role on one node."""

    node: str
    gpus: list[int]
    share: float
    workers: int
    role: str


class ChangeView(ResponseBody):
    """What became of a job last: in words, how long it took and how long the training stood still.

    ``before`` and ``after`` are numbers of workers.
    """

    kind: Literal["start", "resume", "suspend", "resize", "migrate", "shrink"]
    text: str
    at: float
    took_s: float | None
    pause_s: float | None
    before: int
    after: int


class VerdictView(ResponseBody):
    """Why a job failed, and whose it is to act."""

    kind: str
    phrase: str
    whose: str
    retry: str | bool
    advice: str


class JobView(ResponseBody):
    """A job: the same keys in every interface."""

    id: str
    name: str
    user: str
    queue: str
    state: JobState
    cause: str
    reason: str
    priority: int
    labels: dict[str, str]
    application: str
    workers: WorkersView
    gpus: float
    gpus_held: float
    kinds: list[str]
    share: float = Field(description="The part of a GPU that each worker has; 1: whole GPUs.")
    way: Literal["temporal", "spatial", ""]
    qos: Literal["fixed", "equal", "best-effort", ""]
    memory_limit_mib: int = Field(description="Of a worker on each GPU; 0: none, or not known.")
    placement: list[PlacementView]
    target: list[PlacementView] | None = Field(description="Where a resize or a migration leads.")
    attempt: int
    failures: int
    preemptions: int
    resizes: int
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    ran_s: float
    running_since: float | None
    not_before: float | None
    progress: float | None
    saved: float | None
    step: int | None
    loss: float | None
    step_s: float | None
    batch: int | None
    samples_per_s: float | None
    world: int | None = Field(description="Workers that train together now.")
    memory_mib: int | None = Field(description="The most GPU memory of a worker that was seen.")
    predicted_mib: int | None
    noise: float | None = Field(description="The gradient noise scale, in samples.")
    resizable: bool = Field(description="Whether it changes its size without a restart.")
    busy: float | None = Field(description="The part of the time in which its devices work.")
    note: str = Field("", description="What is wrong with what it holds; empty if nothing is.")
    change: ChangeView | None
    run_time_s: float | None
    exit_code: int | None
    verdict: VerdictView | None
    held: bool
    cancelling: bool
    cancelled_by: str
    elastic: bool
    clone_of: str = Field(description="The snapshot that it began from, as JOB@NAME.")
    rev: int


class JobPage(ResponseBody):
    """A page of jobs, and how many there are in all."""

    items: list[JobView]
    total: int
    offset: int
    limit: int


class EventView(ResponseBody):
    """One line of the event log."""

    seq: int
    n: int
    time: float
    actor: str
    job: str
    user: str
    node: str
    kind: str
    old: str
    new: str
    text: str


class EventPage(ResponseBody):
    """A page of events, and how many there are in all."""

    items: list[EventView]
    total: int
    offset: int
    limit: int


class SubmitJob(RequestBody):
    """A job to be run: the job file as JSON, secrets apart from it, a pickled function."""

    job: dict[str, Any] = Field(examples=[{"name": "hello", "command": ["echo", "hello"]}])
    secrets: dict[SecretName, str] = Field(default_factory=dict, max_length=200)
    payload: Base64Bytes | None = None


class ScaleJob(RequestBody):
    """How few and how many workers a job shall have from now on."""

    min: int = Field(ge=1, le=_MOST_WORKERS)
    max: int = Field(ge=1, le=_MOST_WORKERS)


class MigrateJob(RequestBody):
    """Where a job shall go; ``null``: anywhere else."""

    node: Label | None = None


class TakeSnapshot(RequestBody):
    """A snapshot to be taken, and what to call it."""

    name: SnapshotName


class SnapshotView(ResponseBody):
    """A restore point of a job: how far it was, and what was copied."""

    id: str
    job: str
    name: str
    user: str
    job_name: str
    created_at: float
    step: int | None
    progress: float | None
    files: int
    size_bytes: int
    fresh: bool = Field(description="Whether the job saved itself for it.")
    took_s: float
    function: bool = Field(description="Whether a submitted function is kept with it.")


class SnapshotPage(ResponseBody):
    """A page of snapshots, and how many there are in all."""

    items: list[SnapshotView]
    total: int
    offset: int
    limit: int


class SnapshotProgress(ResponseBody):
    """A snapshot that is being taken."""

    job: str
    name: str
    state: Literal["taking"]


class CloneJob(RequestBody):
    """A job to be made from a snapshot (``null``: the newest), with changes to its job file."""

    snapshot: SnapshotName | None = None
    changes: dict[str, Any] = Field(default_factory=dict, max_length=50)
    secrets: dict[SecretName, str] = Field(default_factory=dict, max_length=200)


class JobFileText(RequestBody):
    """A job file as text: YAML, or one of another system."""

    text: str = Field(max_length=512 * 1024)
    name: Label = "job file"


class ParsedJobFile(ResponseBody):
    """A job file that was understood, and what could not be converted."""

    job: dict[str, Any]
    notes: list[str]


class PlanView(ResponseBody):
    """Where and when a job would run; nothing was changed."""

    fits: bool
    starts_at: float | None
    ends_at: float | None
    placement: list[PlacementView]
    reason: str
    notes: list[str]


class HolderView(ResponseBody):
    """A job that holds what another one needs; of jobs of others it is not told whose they are."""

    job: str = ""
    user: str = ""
    gpus: float
    ends_at: float | None


class ExplanationView(ResponseBody):
    """Why a job is where it is."""

    held_by: list[HolderView]


class WorkerList(ResponseBody):
    """The workers of a run that have an output."""

    attempt: int
    items: list[str]


class NodeView(ResponseBody):
    """A machine and its devices."""


class NodeList(ResponseBody):
    """All machines."""

    items: list[NodeView]


class QueueView(ResponseBody):
    """A queue, what it holds and who waits in it."""

    id: str


class QueueList(ResponseBody):
    """All queues that the caller may know of."""

    items: list[QueueView]


class SetQueue(RequestBody):
    """A queue's promise and cap in milli-GPUs, and who may submit (``*``: all)."""

    quota_milli: int | None = Field(default=None, ge=0, le=_MOST_MILLI)
    limit_milli: int | None = Field(default=None, ge=0, le=_MOST_MILLI)
    weight: float = Field(default=1.0, gt=0, le=1e6)
    priority: int = Field(default=0, ge=-1000, le=1000)
    submitters: list[Annotated[str, StringConstraints(max_length=64, min_length=1)]] = Field(
        default=["*"], max_length=1000
    )


class UsageView(ResponseBody):
    """What a run uses now."""

    job: str
    attempt: int
    cpu_s: float
    rss_bytes: int
    processes: int


class UsageList(ResponseBody):
    """What runs use now, and the machines."""

    jobs: list[UsageView]
    nodes: list[NodeView]


class StateView(ResponseBody):
    """The state of the core, from which a simulation can go on."""


class CallerView(ResponseBody):
    """The caller."""

    user: str
    role: Role
    unix: str
    token: str
    expires_at: float | None
    permissions: list[str]


class UserView(ResponseBody):
    """Somebody who may use the server."""

    name: str
    role: Role
    unix: str
    active: bool


class UserList(ResponseBody):
    """Everybody who may use the server."""

    items: list[UserView]


class AddUser(RequestBody):
    """Somebody new."""

    name: Name
    role: Role = "user"
    unix: Annotated[str, StringConstraints(pattern=r"^([a-z_][a-z0-9_.-]{0,31}\$?)?$")] = ""


class ChangeUser(RequestBody):
    """What shall be different about a user."""

    role: Role | None = None
    unix: Annotated[str, StringConstraints(pattern=r"^([a-z_][a-z0-9_.-]{0,31}\$?)?$")] | None = (
        None
    )
    active: bool | None = None


class TokenView(ResponseBody):
    """A token; what it says is told once, when it is made. ``parent``: what it was made with."""

    id: str
    user: str
    label: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    parent: str | None


class TokenList(ResponseBody):
    """The tokens of one user."""

    items: list[TokenView]


class AddToken(RequestBody):
    """A token to be made: for whom (the caller), and for how long (as long as the caller's)."""

    user: Name | None = None
    label: Label = ""
    expires_in_s: float | None = Field(default=None, gt=0, le=3.2e9)


class NewToken(TokenView):
    """A token that was just made; ``secret`` is told this once."""

    secret: str


class HealthView(ResponseBody):
    """Whether the server works."""

    ok: bool
    why: str
    version: str
