"""What one user may have on a server: jobs that are not over, and space on its disk.

A bound is the server's, for every user but administrators, or the user's own. Beyond the bound on
space nothing new of that user is taken, and no more output of what runs is kept: other users go on.
Where there is a second, higher bound, jobs that are beyond it and still write are stopped.

Space is that of run folders, checkpoints, logs, functions and job files, of snapshots, and of
folders that were sent. Folders are measured on a thread of their own: those of runs every few
seconds, or less often where they do not grow or measuring takes long; those of jobs that have
ended once more, and all of them every hour.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.core import JobId, RunId
from roost.core.transitions import RunPhase
from roost.defaults import USER_JOBS
from roost.errors import Conflict, RoostError
from roost.files import file_share
from roost.jobs.amounts import shown_bytes
from roost.jobs.change_feed import ClusterChange
from roost.live.disk_meter import DiskMeter
from roost.live.snapshots import StoreQuery
from roost.store import StoreFull
from roost.store.rows import User

if TYPE_CHECKING:
    from roost.live.driver import Driver
    from roost.live.sent_folders import SentFolders

_log = logging.getLogger(__name__)

#: How often runs are looked at, in seconds, and how much of the time that may take.
EVERY_S = 2.0
_PART = 0.05
#: The longest pause of a run that does not grow, and from one round through all jobs to the next.
_CALM_S, _ROUND_S = 30.0, 3600.0
#: After how many looks the figures are written.
_SAVE_EVERY = 150
#: How much a job has to write between two looks to be stopped, in bytes.
_WRITES = 1 << 20
#: Job files of fewer bytes are not counted.
_LARGE = 64 << 10
#: Jobs that a refusal names.
_NAMED = 3
#: Phases in which a run has processes.
_ALIVE = frozenset(RunPhase) - {RunPhase.RESERVED, RunPhase.SUSPENDED, RunPhase.ENDED}


@dataclass(frozen=True, slots=True)
class UserBounds:
    """The most that one user may have; None: as much as there is.

    At ``disk_bytes`` nothing new is taken; at ``disk_max_bytes`` jobs that write are stopped.
    """

    jobs: int = USER_JOBS
    disk_bytes: int | None = None
    disk_max_bytes: int | None = None


class UserUse(NamedTuple):
    """What a user has: jobs that are not over, and bytes on the disk."""

    jobs: int
    runs_bytes: int
    snapshots_bytes: int
    sent_bytes: int

    @property
    def disk_bytes(self) -> int:
        """All of the space."""
        return self.runs_bytes + self.snapshots_bytes + self.sent_bytes


class BoundService:
    """Measures what each user has, refuses more than there may be, and restrains what runs."""

    def __init__(
        self, driver: Driver, folders: SentFolders, defaults: UserBounds, ask: StoreQuery
    ) -> None:
        self._driver, self.folders, self._ask = driver, folders, ask
        #: For every user without bounds of its own.
        self.defaults = defaults
        self._users: dict[str, User] = {}
        home = driver.private_files.home
        self._meter = DiskMeter(home / "disk-use.json")
        self._least = file_share(home)
        self._snapshots: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        #: When a job that runs is to be measured again, on the monotonic clock; its last pause.
        self._due: dict[JobId, float] = {}
        self._pauses: dict[JobId, float] = {}
        self._round_at = time.monotonic()
        #: What each run was told: whether its user is beyond the bound, and whether it has to end.
        self._told: dict[RunId, tuple[bool, bool]] = {}
        self._looks = 0
        self._thread = ThreadPoolExecutor(1, "disk")
        self._task: asyncio.Task[None] | None = None
        self._stop: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Take up users and jobs, and look again and again from now on."""
        store = self._driver.store
        self._users = {user.name: user for user in await self._ask(store.accounts.users)}
        owners = await self._ask(store.jobs.owners)
        self._meter.begin({JobId(job): user for job, user in owners.items()})
        await self._add_up()
        self._stop = self._driver.feed.subscribe(self._changed)
        self._task = asyncio.create_task(self._run(), name="bounds")

    async def close(self) -> None:
        """Stop looking, and write down what is known."""
        if self._task is None:
            return
        self._stop()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._work(self._meter.save, self._meter.figures())
        self._thread.shutdown(wait=False)

    # -- questions -----------------------------------------------------------------------------

    def of(self, user: str) -> UserBounds:
        """The bounds of a user."""
        known, given = self._users.get(user, User(user)), self.defaults
        disk, most = given.disk_bytes, given.disk_max_bytes
        if known.role == "admin":  # whoever sets bounds is held by its own alone
            disk = most = None
        if known.disk_bytes is not None:
            disk = known.disk_bytes
            most = None if most is None else max(most, disk)
        return UserBounds(
            given.jobs if known.jobs is None else known.jobs,
            disk,
            most if known.disk_max_bytes is None else known.disk_max_bytes,
        )

    def use(self, user: str) -> UserUse:
        """What a user has, as it was last measured."""
        return UserUse(
            self._driver.records.of(user),
            self._meter.of(user),
            self._snapshots.get(user, 0),
            self._sent.get(user, 0),
        )

    def shown(self, user: str) -> dict[str, Any]:
        """Bounds and use of a user, as views have them."""
        bounds, use = self.of(user), self.use(user)
        return {
            "bounds": {
                "jobs": bounds.jobs,
                "disk_bytes": bounds.disk_bytes,
                "disk_max_bytes": bounds.disk_max_bytes,
            },
            "use": {
                "jobs": use.jobs,
                "disk_bytes": use.disk_bytes,
                "runs_bytes": use.runs_bytes,
                "snapshots_bytes": use.snapshots_bytes,
                "sent_bytes": use.sent_bytes,
            },
        }

    def check_job(self, user: str) -> None:
        """Refuse one more job of a user; raises Conflict or StoreFull."""
        most = self.of(user).jobs
        if self._driver.records.of(user) >= most:
            raise Conflict(
                f"{user} has {most} jobs here that are not over, which is the most that a user may "
                "have; wait until some are, cancel some, or ask an admin for more "
                f"(roost users set {user} --jobs N)"
            )
        self.check_disk(user)

    def check_disk(self, user: str, sent_bytes: int | None = None) -> None:
        """Refuse what takes space, with so much in sent folders, if that is known.

        Raises StoreFull. It may be called from any thread.
        """
        bound, use = _soft(self.of(user)), self.use(user)
        if sent_bytes is not None:
            use = use._replace(sent_bytes=sent_bytes)
        if bound is not None and use.disk_bytes > bound:
            raise StoreFull(self._refusal(user, use, bound))

    # -- changes -------------------------------------------------------------------------------

    def user_changed(self, user: User) -> None:
        """Another bound counts from now on."""
        self._users[user.name] = user

    def accepted(self, job: JobId, user: str, document: int, function: int) -> None:
        """A job was taken, with so many bytes in its job file and its function."""
        self._meter.add(job, user, document if document >= _LARGE else 0)
        if function:
            self._meter.measured(job, function)

    async def look(self) -> None:
        """Measure what is due, and tell runs where they stand."""
        jobs = {run.job.id for run in self._driver.core.runs.values() if run.phase in _ALIVE}
        for job in jobs:
            if self._due.get(job, 0.0) <= time.monotonic():
                await self._measure(job, len(jobs))
        if time.monotonic() > self._round_at + _ROUND_S:
            self._meter.renew()
            self._round_at = time.monotonic()
        until = time.monotonic() + EVERY_S * _PART
        while time.monotonic() < until and (other := self._meter.take_next()) is not None:
            if other not in self._due:
                await self._measure(other)
        await self._add_up()
        await self._restrain()
        self._looks += 1
        if self._looks % _SAVE_EVERY == 0:
            await self._work(self._meter.save, self._meter.figures())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
            except (RoostError, OSError) as error:
                _log.warning("the disk space of users was not measured: %s", error)
            except Exception:  # noqa: BLE001 - the next look may work
                _log.exception("the disk space of users was not measured")

    async def _measure(self, job: JobId, runs: int = 0) -> None:
        """Measure a job; one of so many runs is due again when all of them had their turn."""
        began = time.monotonic()
        self._meter.measured(job, await self._work(self._size, job))
        now = time.monotonic()
        if runs and job in self._driver.records:
            # Half: whatever a look takes, the next one comes when this is due.
            pause = EVERY_S / 2
            if not self._meter.grown(job):
                pause = min(2 * self._pauses.get(job, pause), _CALM_S)
            self._pauses[job] = pause
            self._due[job] = now + max(pause, runs * (now - began) / _PART)

    def _size(self, job: JobId) -> int:
        own = self._driver.private_files
        return self._driver.engine.size_bytes(job, self._least) + own.size_bytes(job)

    async def _add_up(self) -> None:
        """What snapshots and sent folders take: they are counted where they are made."""
        self._snapshots = await self._ask(self._driver.store.restore_points.sizes)
        self._sent = await self._work(self.folders.sizes)

    def _changed(self, change: ClusterChange) -> None:
        for row in change.jobs:
            if row.finished_at is not None:
                self._meter.add(JobId(row.id), row.user)
                self._meter.soon(JobId(row.id))
                self._calm(JobId(row.id))
        for job in change.deleted:
            self._meter.drop(JobId(job))
            self._calm(JobId(job))

    def _calm(self, job: JobId) -> None:
        """It does not run any more."""
        self._due.pop(job, None)
        self._pauses.pop(job, None)

    async def _restrain(self) -> None:
        """Keep no more output of runs whose users are beyond a bound, or stop them; or let them."""
        runs = {
            run.id: run.job.id for run in self._driver.core.runs.values() if run.phase in _ALIVE
        }
        self._told = {run: told for run, told in self._told.items() if run in runs}
        for run, job in runs.items():
            record = self._driver.records.get(job)
            if record is None:
                continue
            bounds, use = self.of(record.user), self.use(record.user)
            bound, most = _soft(bounds), bounds.disk_max_bytes
            beyond = bound is not None and use.disk_bytes > bound
            before = self._told.get(run, (False, False))
            # It is told first: it ends at a later look, if it still writes then.
            ends = before[1] or (
                before[0]
                and most is not None
                and use.disk_bytes > most
                and self._meter.grown(job) > _WRITES
            )
            if run in self._told and before == (beyond, beyond and ends):
                continue
            self._told[run] = beyond, beyond and ends
            why = _sentence(record.user, use, most if ends else bound, ends=ends) if beyond else ""
            await self._driver.engine.restrain(run, why, ends=beyond and ends)
            self._driver.restrained(job, why)
            if why:
                _log.warning("run %s: %s", run, why)

    def _refusal(self, user: str, use: UserUse, bound: int) -> str:
        parts = {
            "jobs": use.runs_bytes,
            "snapshots": use.snapshots_bytes,
            "sent folders": use.sent_bytes,
        }
        told = ", ".join(f"{name} {shown_bytes(size)}" for name, size in parts.items() if size)
        named = [f"{job} {shown_bytes(size)}" for job, size in self._meter.largest(user, _NAMED)]
        largest = f", most of it {', '.join(named)}" if named else ""
        return (
            f"{user} has {shown_bytes(use.disk_bytes)} on the server's disk ({told}{largest}) and "
            f"may have {shown_bytes(bound)}: free space with roost delete JOB or roost snapshots "
            f"delete, or ask an administrator for more (roost users set {user} --disk SIZE)"
        )

    async def _work(self, call: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)


def _soft(bounds: UserBounds) -> int | None:
    """Where nothing new is taken: at the lower of both bounds."""
    lowest = min(
        math.inf if bounds.disk_bytes is None else bounds.disk_bytes,
        math.inf if bounds.disk_max_bytes is None else bounds.disk_max_bytes,
    )
    return None if math.isinf(lowest) else int(lowest)


def _sentence(user: str, use: UserUse, bound: int | None, *, ends: bool) -> str:
    follows = (
        "the job is stopped"
        if ends
        else "no more output is kept until there is room (roost whoami, roost delete)"
    )
    most = "" if bound is None else f" of at most {shown_bytes(bound)}"
    return f"{user} has {shown_bytes(use.disk_bytes)}{most} on the server's disk: {follows}"
