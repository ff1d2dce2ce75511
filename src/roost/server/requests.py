"""Bodies of requests: FastAPI checks them against these, and describes them.

The bodies of answers are views (``roost.api``).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
)

from roost.api.accounts import RoleName
from roost.api.snapshots import NAME
from roost.core.cells import CellPromise, parse_promise

_MOST_WORKERS = 100_000
_MOST_SECONDS, _MOST_JOBS, _MOST_BYTES = 1e9, 10**9, 2**60
_MOST_MILLI = 10**12

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$")]
Label = Annotated[str, StringConstraints(max_length=200)]
SnapshotName = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


def _number(value: Any) -> Any:
    """JSON has numbers: a truth value or a text is none."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, found {json.dumps(value)[:80]}")  # noqa: TRY004
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Number = Annotated[float, BeforeValidator(_number)]
MostJobs = Annotated[Whole, Field(ge=0, le=_MOST_JOBS)]
MostBytes = Annotated[Whole, Field(ge=0, le=_MOST_BYTES)]
#: What bounds one user.
BOUNDS = ("jobs", "disk_bytes", "disk_max_bytes")


class RequestBody(BaseModel):
    """The body of a request: what is not known is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SubmitJob(RequestBody):
    """A job to be run: the job file as JSON, secrets apart from it, a pickled function."""

    job: dict[str, Any] = Field(examples=[{"name": "hello", "command": ["echo", "hello"]}])
    secrets: dict[SecretName, str] = Field(default_factory=dict, max_length=200)
    payload: Base64Bytes | None = None


class ScaleJob(RequestBody):
    """How few and how many workers a job shall have from now on."""

    min: Whole = Field(ge=1, le=_MOST_WORKERS)
    max: Whole = Field(ge=1, le=_MOST_WORKERS)


class MigrateJob(RequestBody):
    """Where a job shall go; ``null``: anywhere else."""

    node: Label | None = None


class CordonNode(RequestBody):
    """Why a node takes nothing new; ``drain``: what runs there is to leave, too."""

    reason: Label = ""
    drain: bool = False


class PlanMaintenance(RequestBody):
    """From when to when a node is to be empty (seconds since 1970), and why."""

    starts_at: float = Field(ge=0, le=1e11)
    ends_at: float = Field(ge=0, le=1e11)
    reason: Label = ""


class DisableGpu(RequestBody):
    """Why a device is not to be used."""

    reason: Label = ""


class TestNotification(RequestBody):
    """Where a notification is to be sent now."""

    to: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class TakeSnapshot(RequestBody):
    """A snapshot to be taken, and what to call it."""

    name: SnapshotName


class ChangeJobs(RequestBody):
    """The same for many jobs, by their ids; ``labels`` are added to those of new jobs."""

    action: Literal["cancel", "suspend", "resume", "rerun", "delete"]
    jobs: list[Annotated[str, StringConstraints(min_length=1, max_length=210)]] = Field(
        min_length=1, max_length=200
    )
    labels: dict[Label, Label] = Field(default_factory=dict, max_length=50)


class CloneJob(RequestBody):
    """A job to be made from a snapshot (``null``: the newest), with changes to its job file."""

    snapshot: SnapshotName | None = None
    changes: dict[str, Any] = Field(default_factory=dict, max_length=50)
    secrets: dict[SecretName, str] = Field(default_factory=dict, max_length=200)


class RerunJob(RequestBody):
    """A job to be run again as a new one, with changes to its job file."""

    changes: dict[str, Any] = Field(default_factory=dict, max_length=50)
    secrets: dict[SecretName, str] = Field(default_factory=dict, max_length=200)


class JobFileText(RequestBody):
    """A job file as text: YAML, or one of another system."""

    text: str = Field(max_length=512 * 1024)
    name: Label = "job file"


class PruneJobs(RequestBody):
    """Bounds for jobs that are over, where they are to differ from the server's."""

    dry_run: bool = False
    keep_s: Number | None = Field(default=None, ge=0, le=_MOST_SECONDS)
    keep_jobs: Whole | None = Field(default=None, ge=0, le=_MOST_JOBS)
    max_disk_bytes: Whole | None = Field(default=None, ge=0, le=_MOST_BYTES)

    def rules(self) -> dict[str, float]:
        """The bounds that were given."""
        given = {
            "keep_s": self.keep_s,
            "jobs": self.keep_jobs,
            "disk_bytes": self.max_disk_bytes,
        }
        return {name: value for name, value in given.items() if value is not None}


class SetQueue(RequestBody):
    """A queue's promise and cap in milli-GPUs, its cells, and its submitters (``*``: all)."""

    quota_milli: Whole | None = Field(default=None, ge=0, le=_MOST_MILLI)
    limit_milli: Whole | None = Field(default=None, ge=0, le=_MOST_MILLI)
    weight: Number = Field(default=1.0, gt=0, le=1e6)
    priority: Whole = Field(default=0, ge=-1000, le=1000)
    submitters: list[Annotated[str, StringConstraints(max_length=64, min_length=1)]] = Field(
        default=["*"], max_length=1000
    )
    cells: list[Annotated[str, StringConstraints(max_length=256, min_length=1)]] = Field(
        default=[], max_length=256
    )

    overflows: bool = True

    def promises(self) -> tuple[CellPromise, ...]:
        """The cells that it is promised; raises InvalidSpec for a text that is none."""
        return tuple(map(parse_promise, self.cells))


class AddUser(RequestBody):
    """A new user."""

    name: Name
    role: RoleName = "user"
    unix: Annotated[str, StringConstraints(pattern=r"^([a-z_][a-z0-9_.-]{0,31}\$?)?$")] = ""
    jobs: MostJobs | None = None
    disk_bytes: MostBytes | None = None
    disk_max_bytes: MostBytes | None = None


class ChangeUser(RequestBody):
    """What shall be different about a user; a bound that is ``null`` is that of all users."""

    role: RoleName | None = None
    unix: Annotated[str, StringConstraints(pattern=r"^([a-z_][a-z0-9_.-]{0,31}\$?)?$")] | None = (
        None
    )
    active: StrictBool | None = None
    jobs: MostJobs | None = None
    disk_bytes: MostBytes | None = None
    disk_max_bytes: MostBytes | None = None

    def given(self) -> dict[str, Any]:
        """What is to change: a bound may be taken back, nothing else."""
        told = self.model_dump(exclude_unset=True)
        return {k: v for k, v in told.items() if v is not None or k in BOUNDS}


class LogIn(RequestBody):
    """A token to log a browser in with."""

    token: Annotated[str, StringConstraints(max_length=256)]


class AddToken(RequestBody):
    """A token to be made: its user (the caller), and for how long (as long as the caller's)."""

    user: Name | None = None
    label: Label = ""
    expires_in_s: Number | None = Field(default=None, gt=0, le=3.2e9)
