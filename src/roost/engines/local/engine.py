"""The local engine: orders in, reports out, one keeper for each run.

Blocking calls (folders, forks, the kernel's files) run on a few threads; the loop only passes
messages. Everything it knows is on disk: a server may die at any moment and the next one goes on.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import json
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from roost.core.actions import Stop
from roost.core.events import NodeJoined
from roost.core.spec import CPU_SLOT, JobId, JobSpec, NodeSpec, RunId
from roost.engines import (
    Assigned,
    Ended,
    LaunchTrouble,
    LogFile,
    ProgressReport,
    Report,
    RunOrder,
    SnapshotInfo,
    Usage,
)
from roost.engines.local import (
    accounts,
    containers,
    devices,
    launch_pause,
    limits,
    processes,
    run_status,
    snapshots,
    usage_sampler,
)
from roost.engines.local.containers import ContainerRuntime
from roost.engines.local.devices import Machine
from roost.engines.local.environment import Ports
from roost.engines.local.gpu.sharing import GpuSharing
from roost.engines.local.job_files import RunFiles
from roost.engines.local.keeper import Keeper, Restraint
from roost.engines.local.launch_pause import LaunchPause
from roost.engines.local.launcher import Launcher
from roost.engines.local.run_folders import OPEN, HomeFence, RunFolders
from roost.engines.local.shim_handle import EngineContext
from roost.engines.local.usage_sampler import UsageSampler
from roost.engines.mounts import HostMount, mount_refusal
from roost.errors import Conflict, Fatal, NotFound, Retryable
from roost.jobfile.program import Program

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: Threads for what is short, and for what may take long: copies of checkpoints.
_THREADS, _COPIES = 8, 4
_SETTLE_S = 0.5
#: How long the folders of runs may be out of reach when the engine starts.
_LOOK_S = 5.0
_RESULT_BYTES = 64 << 20
_HEARD_AT_ONCE = 200


class LocalEngine:
    """Runs jobs as processes of this machine.

    ``home`` is Roost's folder. ``slots`` offers that many CPU slots; None: the GPUs or, where there
    are none, a slot for each core. ``clock`` gives the time of reports. With ``accounts`` nothing
    is run for users without a Unix account. ``fence`` tells the runs of this home from others.
    ``mounts`` are folders that jobs may use by name.
    """

    def __init__(  # noqa: PLR0913 - what an engine is made of
        self,
        home: Path,
        slots: int | None = None,
        clock: Callable[[], float] = time.time,
        python: str = sys.executable,
        *,
        accounts: bool = False,
        fence: HomeFence = OPEN,
        mounts: tuple[HostMount, ...] = (),
    ) -> None:
        self._accounts, self._mounts = accounts, mounts
        self.home = home = home.absolute()
        self._slots, self._clock, self._python = slots, clock, python
        self._keepers: dict[RunId, Keeper] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(_THREADS, "engine")
        # Restores have threads of their own: a launch must not wait for snapshots of other jobs.
        self._copies = ThreadPoolExecutor(_COPIES, "copy")
        self._restores = ThreadPoolExecutor(_COPIES, "restore")
        self._closing = threading.Event()
        self._runs = RunFolders(home, fence)
        self._home_fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._home_fd).st_dev
        self._lock_fd = -1
        self._socket: socket.socket | None = None
        self._socket_at: tuple[int, int] | None = None
        self._machine: Machine | None = None
        self._limits: limits.ProcessLimits | None = None
        self._context: EngineContext | None = None
        self._sharing: GpuSharing | None = None
        self._observing: asyncio.Task[None] | None = None
        self._pause: LaunchPause | None = None
        self._runtime = ContainerRuntime()
        self._looking: Future[ContainerRuntime] | None = None

    def look(self) -> None:
        """Begin to see what this machine has, beside other things; ``start`` waits for it."""
        if self._looking is None:
            self._looking = self._pool.submit(containers.find)

    @property
    def node(self) -> NodeSpec:
        """This machine, once started."""
        if self._machine is None:
            raise Fatal("the engine has not been started")
        return self._machine.node

    @property
    def limits(self) -> str:
        """How memory and CPUs are limited here, in a sentence."""
        return str(self._limits or limits.ProcessLimits(None))

    async def start(
        self, report: Callable[[Report], None], alive: Mapping[RunId, Assigned]
    ) -> None:
        """Adopt what survived, end what was not asked for, report what ended."""
        self.look()
        await self._serve_alone()
        self._limits = await self._work(limits.find, self.home)
        self._machine = await devices.find(self._python, self._slots)
        if self._looking is not None:
            self._runtime = await asyncio.wrap_future(self._looking)
        if self._machine.real and not containers.has_gpus(self._runtime):
            found = await self._work(functools.partial(containers.find, gpus=True))
            self._runtime = self._runtime if found.problem else found
        self._sharing = GpuSharing(self.home, self._machine, self._python)
        self._sharing.on_problem = lambda run, why: report(
            ProgressReport(self._clock(), run, note=why)
        )
        await self._sharing.start()
        launcher = Launcher(
            self._runs,
            self._machine,
            self._limits,
            Ports(),
            self._python,
            self._home_fd,
            self._accounts,
            self._sharing,
            self._closing,
            self._runtime,
            self._mounts,
        )
        self._pause = LaunchPause(self._probe, lambda found: report(self._trouble(found)))
        self._context = EngineContext(
            report,
            self._clock,
            self._runs,
            launcher,
            self._work,
            self._pause,
            self._sharing,
            self._slow,
        )
        self._listen()
        self._pool.submit(self._runs.clean)
        report(NodeJoined(self._clock(), self._machine.node))
        await self._adopt(alive, self._context)
        self._observing = asyncio.create_task(self._observe(report, UsageSampler(self._machine)))

    async def perform(self, order: RunOrder) -> None:
        """Accept an order; what becomes of it is reported."""
        self._keeper(order.action.run).inbox.put_nowait(order)

    async def restrain(self, run: RunId, why: str, *, ends: bool = False) -> None:
        """Keep no more output of a run, and say why in its logs; without a reason, go on.

        ``ends``: it is stopped as well, and its end has the cause ``bound``.
        """
        keeper = self._keepers.get(run)
        if keeper is not None:
            keeper.inbox.put_nowait(Restraint(why, ends))

    async def snapshot(self, run: RunId, into: Path, timeout_s: float) -> SnapshotInfo:
        """Copy all that a job saved into a folder that does not exist yet, atomically.

        A job that saves itself on demand does so first. Raises Conflict where nothing was saved.
        """
        keeper = self._keepers.get(run)
        fresh = keeper is not None and await keeper.save(timeout_s)
        with _now(run):
            record = await self._work(run_status.wanted, self._runs, run)
        own = self._runs.path / run.job / "checkpoints"
        account = await self._work(accounts.resolve, record.unix)
        source = Path(record.checkpoints) if record.checkpoints else own
        if record.checkpoints and account is None:  # of the user's own making: it may be a link
            source = await self._work(source.resolve)
        by = snapshots.CopyContext(account, self._python, self._closing)
        loop = asyncio.get_running_loop()
        kept = await loop.run_in_executor(self._copies, snapshots.take, source, into, by)
        return SnapshotInfo(kept.files, kept.size_bytes, fresh)

    def refuses(self, spec: JobSpec, program: Program) -> str:
        """Why this machine cannot give a job the mounts, shares or image that it asks for."""
        if refused := mount_refusal(self._mounts, program.mounts, spec.user, spec.queue):
            return refused
        sharing = self._sharing
        if sharing is None:
            return ""
        needs = (spec.resources, *(role.resources for role in spec.roles))
        refused = next(filter(None, map(sharing.check, needs)), "")
        if refused or not program.image:
            return refused
        return containers.refusal(self._runtime, needs, real=self.node.kind != CPU_SLOT)

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """The output of a worker; raises NotFound."""
        with _now(run), self._runs.open(run) as folder:
            return folder.log(worker)

    def workers(self, run: RunId) -> tuple[str, ...]:
        """The workers of a run that have an output."""
        try:
            with _now(run), self._runs.open(run) as folder:
                return folder.logs()
        except NotFound:
            return ()

    def result(self, run: RunId) -> LogFile | None:
        """What a submitted function returned, pickled; None if there is nothing (yet)."""
        try:
            with _now(run), self._runs.open(run) as folder:
                return folder.result(_RESULT_BYTES)
        except NotFound:
            return None

    def files(self, run: RunId, own: Mapping[str, str]) -> RunFiles:
        """The files of a run; ``own`` are folders that the job file names. Raises NotFound."""
        with _now(run), self._runs.open(run) as folder:
            place = folder.path
        folders = {
            "work": place / "work",
            "checkpoints": place.parent / "checkpoints",
            "logs": place / "logs",
            **{name: Path(path) for name, path in own.items()},
        }
        unix = run_status.wanted(self._runs, run).unix
        return RunFiles(folders, accounts.resolve(unix), self._python)

    def usage(self) -> Mapping[RunId, Usage]:
        """What each live run uses."""
        keepers = tuple(self._keepers.items())  # asked from another thread, too
        return processes.usage({run: keeper.pid for run, keeper in keepers if keeper.pid})

    async def _observe(self, report: Callable[[Report], None], observer: UsageSampler) -> None:
        """Say now and then how busy runs are."""
        while True:
            await asyncio.sleep(usage_sampler.EVERY_S)
            runs = {run: up for run, one in self._keepers.items() if (up := one.sampled)}
            if runs:
                try:
                    usage = await self._work(
                        processes.usage, {run: up.pid for run, up in runs.items()}
                    )
                    told = await self._work(observer.look, runs, usage, self._clock())
                except Exception as error:  # noqa: BLE001 - runs go on, whether looked at or not
                    _log.warning("runs cannot be looked at now: %s", error)
                    continue
                for one in told:
                    report(one)

    def compact(self, job: JobId) -> None:
        """Keep of a job that is over what people look at; in the background."""
        self._pool.submit(self._runs.compact, job)

    def size_bytes(self, job: JobId, least: int = 0) -> int:
        """The space on the disk that is kept for a job; it blocks, and may last.

        Each file counts ``least`` bytes at least. Files that its processes have open count, too,
        though they have no name any more.
        """
        keepers = tuple(self._keepers.items())  # asked from another thread
        shims = [keeper.pid for run, keeper in keepers if run.job == job and keeper.pid]
        nameless = sum(processes.nameless_bytes(pid, self._device) for pid in shims)
        return self._runs.size_bytes(job, least) + nameless

    def forget(self, job: JobId) -> None:
        """Remove the folders and logs of a job that is over."""
        gone = self._runs.forget(job)
        if gone is not None:
            self._pool.submit(self._runs.remove, gone)

    def sweep(self, known: Callable[[JobId], bool]) -> None:
        """Forget jobs that are not known any more; what may be alive stays for the next time."""
        kept = {run.job for run in (*tuple(self._keepers), *self._runs.marked())}
        for job in self._runs.jobs():
            if job not in kept and not known(job):
                _log.info("nobody knows job %s any more: its folder is removed", job)
                self.forget(job)
            elif job not in kept and not self._runs.is_compact(job):
                self.compact(job)  # a server was killed before it could

    async def close(self) -> None:
        """Let go of everything; workers go on."""
        loop = asyncio.get_running_loop()
        tasks = (*self._tasks, *filter(None, (self._observing,)))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pause is not None:
            await self._pause.close()
        if self._sharing is not None:
            await self._sharing.close()
        # Keepers have ended, so no new work comes; copies see the event and give up.
        self._closing.set()
        for pool in (self._copies, self._restores, self._pool):
            await loop.run_in_executor(None, pool.shutdown)
        if self._socket is not None:
            loop.remove_reader(self._socket)
            self._socket.close()
            if self._socket_at == _inode(self._home_fd):  # else it is another's by now
                with suppress(OSError):
                    os.unlink("engine.sock", dir_fd=self._home_fd)
        if self._limits is not None:
            self._limits.close()
        self._runs.close()
        for fd in (self._home_fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)

    async def _serve_alone(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock_fd = os.open("engine.lock", flags, 0o600, dir_fd=self._home_fd)
        deadline = time.monotonic() + _SETTLE_S
        while True:
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # A shim that a killed server was starting has its files for a moment longer.
                if time.monotonic() > deadline:
                    raise Conflict(f"another engine serves {self.home}") from None
                await asyncio.sleep(0.01)
            else:
                return

    def _listen(self) -> None:
        """Open the socket that shims send to; by the open folder, for a path may be too long."""
        with suppress(FileNotFoundError):
            os.unlink("engine.sock", dir_fd=self._home_fd)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        place = f"/proc/self/fd/{self._home_fd}/engine.sock"
        self._socket.bind(place)
        Path(place).chmod(0o600)
        self._socket_at = _inode(self._home_fd)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)

    def _hear(self) -> None:
        if self._socket is None:
            return
        # Some at a time, so that a shim that sends a lot does not hold the loop up.
        for _ in range(_HEARD_AT_ONCE):
            try:
                text = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                hint: dict[str, Any] = json.loads(text)
                job, attempt = hint["run"]
                keeper = self._keepers.get(RunId(JobId(job), attempt))
                if keeper is not None:
                    keeper.inbox.put_nowait(hint)

    async def _adopt(self, alive: Mapping[RunId, Assigned], context: EngineContext) -> None:
        # All runs are looked at before the first order is given: what is alive holds its devices.
        known = {run for run, assigned in alive.items() if assigned.launched or assigned.parked}
        strays = set(self._runs.marked()) - known
        keepers = [
            self._keeper(run, adopt=run in known, within_s=_LOOK_S) for run in (*known, *strays)
        ]
        await asyncio.gather(*(keeper.ready.wait() for keeper in keepers))
        for keeper in keepers:
            if isinstance(keeper.error, OSError):
                raise Fatal(f"run {keeper.run} cannot be looked at: {keeper.error}")
            if keeper.error is not None:
                raise keeper.error
        for keeper in keepers[len(known) :]:
            if keeper.status.kind == "alive":
                _log.warning("run %s is alive and nobody asked for it: it is stopped", keeper.run)
                await self.perform(RunOrder(Stop(keeper.run, "nobody asked for it")))
            else:
                self._runs.unmark(keeper.run)
        gone = {keeper.run for keeper in keepers if keeper.status.kind == "nothing"}
        for run, assigned in alive.items():
            order = assigned.order
            if order is not None and not (assigned.foreign and run in gone):
                await self.perform(order)
            elif run in gone:
                why = "nothing is left of it in this home"
                context.report(Ended(self._clock(), run, (), "lost", why))

    def _keeper(self, run: RunId, *, adopt: bool = False, within_s: float = math.inf) -> Keeper:
        if self._context is None:
            raise Fatal("the engine has not been started")
        keeper = self._keepers.get(run)
        if keeper is None:
            keeper = self._keepers[run] = Keeper(run, self._context, within_s)
            task = asyncio.create_task(self._keep(keeper, adopt=adopt))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return keeper

    async def _keep(self, keeper: Keeper, *, adopt: bool) -> None:
        try:
            await keeper.live(adopt=adopt)
            while True:  # its cgroup is removed before the run can begin again
                await self._work(limits.remove, keeper.cgroup)
                if keeper.idle:
                    break
                await keeper.live(adopt=False)
        except Exception as error:  # noqa: BLE001 - one run must not take the others down
            _log.exception("run %s: its keeper failed", keeper.run)
            keeper.error = error
        finally:
            # No pause between the last look into the inbox and this: no order gets lost.
            self._keepers.pop(keeper.run, None)
            keeper.ready.set()
            keeper.let_go()

    async def _probe(self, size: int) -> None:
        await self._work(launch_pause.probe, self._runs, self._python, size)

    def _trouble(self, found: OSError | None) -> LaunchTrouble:
        if found is None:
            return LaunchTrouble(self._clock())
        return LaunchTrouble(
            self._clock(), launch_pause.words(found), full=launch_pause.is_full(found)
        )

    def _slow(self, call: Callable[..., _T], *args: object) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._restores, call, *args)

    def _work(self, call: Callable[..., _T], *args: object) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, call, *args)


def _inode(home_fd: int) -> tuple[int, int] | None:
    """Which socket it is that shims find."""
    try:
        found = os.stat("engine.sock", dir_fd=home_fd, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _now(run: RunId) -> Iterator[None]:
    """What cannot be read just now is not what is not there."""
    try:
        yield
    except OSError as error:
        raise Retryable(f"run {run} cannot be looked at now: {error.strerror}", after=1.0) from None
