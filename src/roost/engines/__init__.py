"""What an engine is: it makes actions real, reports what became of them, and decides nothing.

``start`` adopts what survived the last server and reports what ended meanwhile; ``perform``
accepts an order and returns; every outcome, failure included, comes back through ``report``, on
the loop that called ``start``. All of it is idempotent per run id: a driver that does not know
whether an order was carried out gives it again, and is told what is true.

    Launch   Started | Ended            a run that is up or over is reported, never started twice
    Stop     Ended                      at once if there is no such run
    Suspend  Suspended | Ended          Suspended.done_s is 0.0: the driver knows the work done
    Resume   Started | Ended
    Resize, Migrate  Resized | Ended    the same run with the new allocation: while it goes on if
                                        the job can do that, else restarted from its checkpoint

Workers that are lost while the others go on are reported by Shrank, on every start until the run
has another allocation: to hear of it twice does no harm.

An engine reports how processes ended (``Ended``); what that means for the job is for the driver.
Engines are packages of their own here; this module holds the protocol alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from roost.core.actions import Action
from roost.core.events import Event
from roost.core.spec import JobId, JobSpec, RunId

if TYPE_CHECKING:  # what guards GPUs runs where nothing but the standard library is installed
    from roost.jobfile.program import Program

#: Why a run is over: its own end, an order, its time limit, a bound on what its user may have, an
#: end that was not seen, or no begin.
Ending = Literal["exit", "stopped", "timeout", "bound", "lost", "never-started"]

#: Stands in the reason of an engine for a start that has no checkpoint to go on from.
NOTHING_SAVED = "it had saved nothing that Roost knows of"


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How one worker ended: its exit code, or the signal that killed it.

    The role is ``setup`` when the script before the workers failed. ``oom``: the kernel killed
    it for its own memory limit.
    """

    role: str
    index: int
    code: int | None
    signal: int | None
    oom: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A run is over and none of its processes is left; ``exits`` in the order in which they ended.

    The run succeeded if ``cause`` is ``exit`` and every exit of role ``worker`` has code 0: other
    roles are stopped once the main workers are done. ``problem`` is what the engine knows to have
    gone wrong with the devices of the run, which its workers may know nothing of.
    """

    time: float
    run: RunId
    exits: tuple[WorkerExit, ...]
    cause: Ending
    detail: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a job says of itself: the fractions done and saved (0..1), its step and its loss.

    A loss may be NaN or infinite: then the training has diverged. ``step_s`` are seconds per step,
    ``sync_s`` those of them in which gradients are brought together, ``batch`` the samples of a
    step of all workers, ``local_batch`` those that a worker takes at once, ``epochs`` the passes
    over the data so far, ``memory_mib`` the most device memory of a worker as it
    was seen, ``predicted_mib`` as it was foretold, ``noise`` the gradient noise scale in samples,
    ``world`` the workers that train together now, ``elastic`` whether they can change their number
    without a restart. ``note`` is what the engine has to say of it: a share that is not held;
    ``busy`` the part of the time (0..1) in which it kept its devices at work, as the engine sees.
    """

    time: float
    run: RunId
    done: float | None = None
    saved: float | None = None
    step: int | None = None
    loss: float | None = None
    step_s: float | None = None
    batch: int | None = None
    memory_mib: int | None = None
    predicted_mib: int | None = None
    noise: float | None = None
    world: int | None = None
    elastic: bool | None = None
    note: str | None = None
    busy: float | None = None
    sync_s: float | None = None
    local_batch: int | None = None
    epochs: float | None = None


@dataclass(frozen=True, slots=True)
class Delayed:
    """A run cannot begin, or go on, for want of something of the machine; it will by itself."""

    time: float
    run: RunId
    why: str


@dataclass(frozen=True, slots=True)
class LaunchTrouble:
    """No run can begin now, and why; without ``why`` they can again. ``full``: a disk is full."""

    time: float
    why: str = ""
    full: bool = False


@dataclass(frozen=True, slots=True)
class Stuck:
    """Processes of a run do not die; it holds its devices until they do."""

    time: float
    run: RunId
    processes: tuple[int, ...]


#: What an engine reports: Started, Resized, Suspended, NodeJoined, NodeLost, GpuFailed, and these.
#: ``Suspended.done_s`` is infinite where processes stand still with all their work, else 0.
Report = Event | Ended | ProgressReport | Stuck | Delayed | LaunchTrouble


class SentFolder(NamedTuple):
    """A folder that a user sent: its manifest, and the contents that it names."""

    manifest: Path
    blobs: Path


@dataclass(frozen=True, slots=True)
class RunOrder:
    """An action with what it needs beyond the core's view.

    ``program`` and ``secrets`` are needed by all but Stop: a resize, too, starts processes.
    ``unix`` names the account to run under ("": the server's). ``payload`` is a pickled function,
    opened by the job alone. ``restore`` (Launch only) is a folder whose content is copied into the
    job's checkpoint folder before anything starts; ``sent`` (Launch only) is what its working
    folder begins with.
    """

    action: Action
    program: Program | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str = ""
    unix: str = ""
    payload: bytes | None = field(default=None, repr=False)
    restore: Path | None = None
    sent: SentFolder | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """A run that the journal says is alive.

    ``parked``: it was suspended. ``launched``: its launch was ordered (not merely reserved).
    ``order`` is the order whose outcome the journal does not know; the engine gives it to itself
    again once the run is adopted. Without one, a run of which nothing is found is lost.
    ``foreign``: it may have been ordered in another home; if nothing is found of it here, it is
    lost, whatever the order.
    """

    parked: bool = False
    launched: bool = True
    order: RunOrder | None = None
    foreign: bool = False


class Usage(NamedTuple):
    """What the processes of a run use now: CPU time of those alive, memory, how many they are."""

    cpu_s: float
    rss_bytes: int
    processes: int


class SnapshotInfo(NamedTuple):
    """What was copied, and whether the job saved itself for it."""

    files: int
    size_bytes: int
    fresh: bool


class LogFile(Protocol):
    """The output of one worker, or a result; it stays readable while it grows."""

    def size(self) -> int:
        """Bytes there are by now."""
        ...

    def read(self, offset: int, n: int) -> bytes:
        """At most ``n`` bytes from there; empty at the end."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class FileQuery(NamedTuple):
    """Which files of a run: those at a path, from behind ``after``, ``most`` of them.

    ``deep``: with those in all folders below. A path begins with the name of a folder.
    """

    path: str
    after: str = ""
    most: int = 1000
    deep: bool = False


class VersionedFile(LogFile, Protocol):
    """A file of a job, with what tells one content of it from another."""

    def version(self) -> str:
        """Another text for another content."""
        ...


class JobFiles(Protocol):
    """The files of a run: ``work``, ``checkpoints`` and ``logs``."""

    @property
    def places(self) -> Mapping[str, str]:
        """The absolute folder for each name."""
        ...

    def page(self, query: FileQuery) -> list[dict[str, Any]]:
        """Files, folders and links in order, as they are shown; raises NotFound."""
        ...

    def open(self, path: str) -> VersionedFile:
        """A plain file; raises NotFound."""
        ...


class Engine(Protocol):
    """Makes actions real, and reports what became of them."""

    async def start(
        self, report: Callable[[Report], None], alive: Mapping[RunId, Assigned]
    ) -> None:
        """Adopt what survived, end what was not asked for, report what ended."""
        ...

    async def perform(self, order: RunOrder) -> None:
        """Accept an order; what becomes of it is reported."""
        ...

    async def restrain(self, run: RunId, why: str, *, ends: bool = False) -> None:
        """Keep no more output of a run, and say why in its logs; without a reason, go on.

        ``ends``: it is stopped as well, and its end has the cause ``bound``.
        """
        ...

    def refuses(self, spec: JobSpec, program: Program) -> str:
        """Why it cannot hold or run what a job asks for, whatever is free; "" if it can."""
        ...

    async def snapshot(self, run: RunId, into: Path, timeout_s: float) -> SnapshotInfo:
        """Copy all that a job saved into a folder that does not exist yet, atomically.

        A job that saves itself on demand does so first. Raises Conflict where nothing was saved.
        """
        ...

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """The output of a worker; raises NotFound."""
        ...

    def workers(self, run: RunId) -> tuple[str, ...]:
        """The workers of a run that have an output: ``worker-0``, ``ps-0``, ..."""
        ...

    def result(self, run: RunId) -> LogFile | None:
        """What a submitted function returned, pickled; None if there is nothing (yet).

        Raises InvalidSpec if it is too large to be handed over.
        """
        ...

    def files(self, run: RunId, own: Mapping[str, str]) -> JobFiles:
        """The files of a run; ``own`` are folders that the job file names. Raises NotFound."""
        ...

    def usage(self) -> Mapping[RunId, Usage]:
        """What each live run uses."""
        ...

    def compact(self, job: JobId) -> None:
        """Keep of a job that is over, as the journal knows, only what people look at."""
        ...

    def size_bytes(self, job: JobId, least: int = 0) -> int:
        """The space on the disk that is kept for a job; each file counts ``least`` bytes at least.

        It blocks, and may last.
        """
        ...

    def forget(self, job: JobId) -> None:
        """Remove the folders and logs of a job that is over."""
        ...

    def sweep(self, known: Callable[[JobId], bool]) -> None:
        """Forget jobs that the caller does not know any more; once, after ``start``."""
        ...

    async def close(self) -> None:
        """Let go of everything; workers go on."""
        ...
