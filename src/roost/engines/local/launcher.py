"""From an order to a shim: folder, records, environment, and one process that needs no server.

The order is complete before the process exists, in memory that only it can see, and the run's lock
passes to it at its birth. So whenever the server dies, the run either has not begun or goes on.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from roost.core.allocation import WORKER, Allocation, Seat
from roost.core.spec import Resources
from roost.engines import RunOrder
from roost.engines.local import accounts, processes
from roost.engines.local.container_workers import ContainerWorkers, preparation
from roost.engines.local.containers import ContainerRuntime
from roost.engines.local.devices import Machine
from roost.engines.local.environment import GenerationEnvironment, Ports
from roost.engines.local.limits import ProcessLimits
from roost.engines.local.run_folders import RunFolder, RunFolders
from roost.engines.local.run_record import RunRecord, slot_bytes
from roost.engines.local.snapshots import CopyContext, restore
from roost.engines.local.work_folder import fill
from roost.engines.mounts import HostMount, mount_variable
from roost.engines.rank_environment import own_variables
from roost.errors import InvalidSpec, Retryable
from roost.failpoints import hit
from roost.jobfile.program import Program, Task

#: How long new workers may take to get ready, and members to go on after a change, in seconds.
PATIENCE = {"ready_s": 300.0, "join_s": 120.0}
_SHIM = Path(__file__).with_name("shim") / "__main__.py"
_BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KEPT = ("ROOST_FAILPOINT", "ROOST_FAILPOINT_LOG")
_ABOVE = 16
_SEARCH = "PYTHONPATH"
_FRAME = 32  # what a record has beside its text
_RECORDS = 5  # files with a slot for all workers
_CHECKOUT = """
set -e
git init -q .
if git fetch -q --depth 1 "$1" "${2:-HEAD}"; then git checkout -q FETCH_HEAD
else git fetch -q "$1" '+refs/*:refs/fetched/*'; git checkout -q "$2"; fi
"""


def launch_bytes(workers: int) -> int:
    """About how much room a launch with so many workers takes on the disk."""
    return _RECORDS * 2 * slot_bytes(workers)


class ShareEnvironment(Protocol):
    """What lets workers share a GPU (``roost.engines.local.gpu.Sharing``)."""

    def check(self, need: Resources) -> str:
        """Why this machine cannot do what is asked; "" if it can."""
        ...

    def env(self, seat: Seat, need: Resources) -> dict[str, str]:
        """What a worker at that seat needs in its environment."""
        ...


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts shims; what it needs of this machine."""

    runs: RunFolders
    machine: Machine
    limits: ProcessLimits
    ports: Ports
    python: str
    home_fd: int
    by_account: bool = False
    shares: ShareEnvironment | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    runtime: ContainerRuntime = field(default_factory=ContainerRuntime)
    mounts: tuple[HostMount, ...] = ()

    def launch(self, order: RunOrder, record: RunRecord, allocation: Allocation) -> tuple[int, int]:
        """Start the next generation of a run; the number of its shim, and a pidfd of it.

        ``record`` is brought up to date. Raises RoostError or OSError if nothing was started.
        """
        program = order.program
        if program is None:
            raise InvalidSpec(f"run {record.run}: nothing to run was given")
        if self.by_account and not order.unix:
            raise InvalidSpec(f"{order.user} has no Unix account here; ask an admin for one")
        account = accounts.resolve(order.unix)
        own = own_variables(program.env, program.secret_names, order.secrets)
        for mount in self._mounted(program):
            _check_mount(mount, account)
        processes.check_files()
        with self.runs.make(record.run, account) as folder:
            if account:
                accounts.check_reach(account, folder.path)
            lock = folder.lock()
            if lock is None:
                raise InvalidSpec(f"run {record.run} is alive already")
            try:
                if order.restore is not None and not record.generation:
                    by = CopyContext(account, self.python, self.closing)
                    restore(order.restore, folder, program.checkpoint_dir, by)
                if order.sent is not None and not record.generation:
                    fill(order.sent, folder, CopyContext(account, self.python, self.closing))
                self._enter(folder, record, allocation, order)
                if order.payload is not None:
                    self.runs.give(folder, "payload.pkl", order.payload, account)
                setting = self._setting(folder, record, order, own, account)
                self.runs.give(folder, "hostfile", setting.hostfile().encode(), account)
                text = json.dumps(self._shim_order(folder, setting, program)).encode()
                return self._spawn(folder, lock, text)
            finally:
                # A shim that began has a copy: the lock is free only when the last one is closed.
                os.close(lock)

    def pins(self, record: RunRecord) -> dict[str, list[int]]:
        """The cores of each worker."""
        return {seat.name: cpus for seat in record.seats if (cpus := self.machine.cpus(seat.gpus))}

    def wanted(self, order: RunOrder, record: RunRecord) -> dict[str, Any]:
        """What the shim has to know to bring about the wish of a run; without secrets."""
        wish = record.wish
        program = order.program
        if wish is None or program is None:
            raise InvalidSpec(f"run {record.run}: nothing to run was given")
        then = replace(record, parts=wish.parts, ranks=wish.ranks)
        own = dict.fromkeys((*program.env, *program.secret_names), "")
        setting = GenerationEnvironment(then, self.machine, (0,), order.user, {}, own)
        pins = self.pins(then)
        main = [seat for seat in then.seats if seat.role == WORKER]
        return {
            "number": wish.number,
            "seats": [
                {"member": member, **({} if member else self._new(seat, setting, pins))}
                for seat, member in zip(main, wish.members, strict=True)
            ],
        }

    def want(
        self, record: RunRecord, seated: Mapping[str, Any], ask: Mapping[str, bool] | None = None
    ) -> dict[str, Any]:
        """Write down what the shim shall bring about, beside what it was asked before.

        To ``save`` is asked for once more each time; to ``offload`` until it is taken back.
        """
        ask = ask or {}
        with self.runs.open(record.run) as folder:
            old = folder.read("wanted.json") or {}
            ours = {"token": record.token, "generation": record.generation}
            if any(old.get(name) != value for name, value in ours.items()):
                old = {}
            counts = {name: _count(old.get(name)) for name in ("number", "save", "offload")}
            counts["save"] += ask.get("save", False)
            if "offload" in ask:
                counts["offload"] += counts["offload"] % 2 != ask["offload"]
            body = {"seats": old.get("seats", []), **counts, **seated, **ours}
            # Space first: a full disk is noticed before the old wish is overwritten.
            folder.reserve("wanted.json", len(json.dumps(body)) + _FRAME)
            folder.save("wanted.json", body)
        return body

    def _new(
        self, seat: Seat, setting: GenerationEnvironment, pins: Mapping[str, list[int]]
    ) -> dict[str, Any]:
        shared = self._shared(seat, setting.record)
        shared.pop(_SEARCH, None)  # that of the first worker has it, and what the job wants
        return {"env": {**setting.place(seat), **shared}, "cpus": pins.get(seat.name)}

    def _shared(self, seat: Seat, record: RunRecord) -> dict[str, str]:
        """What a worker needs to share its GPU; raises InvalidSpec if that cannot be."""
        need = record.needs[seat.role]
        if self.shares is None:
            return {}
        if why := self.shares.check(need):
            raise InvalidSpec(why)
        return self.shares.env(seat, need)

    def _mounted(self, program: Program) -> tuple[HostMount, ...]:
        """The mounts that a program names; raises InvalidSpec for one that is no more."""
        known = {one.name: one for one in self.mounts}
        if gone := [name for name in program.mounts if name not in known]:
            raise InvalidSpec(f"mounts: {gone[0]!r} is not declared on this server any more")
        return tuple(known[name] for name in program.mounts)

    def _enter(
        self, folder: RunFolder, record: RunRecord, allocation: Allocation, order: RunOrder
    ) -> None:
        """Write down what is about to begin: from here on the run is known."""
        record.generation += 1
        record.intent, record.unix = "", order.unix
        record.home = self.runs.fence.id
        record.parts, record.ranks = allocation.parts, ()
        record.wish, record.changes, record.shrank = None, 0, ""
        record.checkpoints = order.program.checkpoint_dir if order.program else ""
        main = sum(part.workers for part in allocation.parts if part.role == WORKER)
        contained = order.program is not None and bool(order.program.image)
        record.container = self.runtime.name if contained else ""
        # A worker that joins gets its variables from the shim, which a container is not given.
        record.members = () if record.container else tuple(map(str, range(main)))
        for part in allocation.parts:
            if part.role not in record.needs:
                raise InvalidSpec(f"run {record.run}: nothing is known of role {part.role!r}")
        record.cpus = self.pins(record)
        record.cgroup = self.limits.group(record.run)
        # A change lists the members before and after it, beside workers of other roles.
        record.room = len(record.seats) - main + 2 * max(main, record.most)
        slot = slot_bytes(record.room)
        # All space first: a run that begins can also write how it ends.
        for name in ("run.json", "start.json", "exit.json", "wanted.json"):
            folder.reserve(name, slot)
        folder.reserve("progress.json", slot_bytes(1))
        folder.make_logs(seat.name for seat in record.seats)
        folder.save("run.json", record.encode())
        self.runs.mark(record.run)

    def _setting(
        self,
        folder: RunFolder,
        record: RunRecord,
        order: RunOrder,
        own: Mapping[str, str],
        account: accounts.Account | None,
    ) -> GenerationEnvironment:
        program = order.program
        paths = {
            "ROOST_HOSTFILE": folder.path / "hostfile",
            "ROOST_PROGRESS": folder.path / "io" / "progress",
            "ROOST_RESULT": folder.path / "io" / "result.pkl",
            "ROOST_CHECKPOINT_DIR": folder.path.parent / "checkpoints",
        }
        if program and program.checkpoint_dir:
            paths["ROOST_CHECKPOINT_DIR"] = Path(program.checkpoint_dir)
        if program:
            paths |= {mount_variable(one.name): Path(one.path) for one in self._mounted(program)}
        if folder.has("payload.pkl"):
            paths["ROOST_PAYLOAD"] = folder.path / "payload.pkl"
        ports = self.ports.take(1 + len(record.seats))
        members = folder.path / "io" / "members.json"
        return GenerationEnvironment(
            record, self.machine, ports, order.user, paths, own, account, members
        )

    def _shim_order(
        self, folder: RunFolder, setting: GenerationEnvironment, program: Program
    ) -> dict[str, Any]:
        record = setting.record
        account = setting.account._asdict() if setting.account else None
        cwd = program.workdir or str(folder.path / "work")
        if not Path(cwd).is_absolute():
            raise InvalidSpec(f"workdir must be an absolute folder, got {cwd!r}")
        make = [program.checkpoint_dir] if program.checkpoint_dir else []
        workers = [
            {**self._worker(seat, setting, program), "cwd": cwd, "make": make}
            for seat in record.seats
        ]
        steps = [{**step, "env": setting.base(), "cwd": cwd} for step in _preparations(program)]
        if program.image:
            mounts = self._mounted(program)
            box = ContainerWorkers(self.runtime, self.machine, program, cwd, mounts)
            workers = box.workers(folder, setting, workers)
            steps += box.preparations(setting.base(), setting.record.token)
        self.limits.prepare(record.cgroup)
        return {
            "run": list(record.run),
            "token": record.token,
            "mark": record.mark,
            "generation": record.generation,
            "boot": processes.boot_id(),
            "account": account,
            "cgroup": record.cgroup if self.limits.controllers else "",
            "address": f"127.0.0.1:{setting.ports[0]}",
            "least": record.least,
            "patience": PATIENCE,
            "prepared": folder.has("prepared"),
            "prepare": steps,
            "workers": workers,
            "stop_signal": _signal(program.stop_signal),
            "grace_s": program.grace_s,
            "limit_s": None if math.isinf(program.max_duration_s) else program.max_duration_s,
            "max_duration_s": _left(program, record),
            "log_limit": program.log_limit_bytes,
        }

    def _worker(
        self, seat: Seat, setting: GenerationEnvironment, program: Program
    ) -> dict[str, Any]:
        task = program.tasks.get(seat.role)
        if task is None:
            raise InvalidSpec(f"role {seat.role!r} has nothing to run")
        need = setting.record.needs[seat.role]
        return {
            "name": seat.name,
            "role": seat.role,
            "index": seat.index,
            "main": seat.role == WORKER,
            "member": str(seat.index) if seat.role == WORKER else "",
            "argv": _argv(task),
            "env": _merged(setting.worker(seat), self._shared(seat, setting.record)),
            "cpus": setting.record.cpus.get(seat.name),
            "data_bytes": self.limits.data_bytes(need),
            "cgroup": self.limits.files(need),
        }

    def _spawn(self, folder: RunFolder, lock: int, text: bytes) -> tuple[int, int]:
        # The order has secrets: it goes through memory, not through a file or a command line.
        with ExitStack() as stack:
            given = _kept(stack, os.memfd_create("order"))
            _kept(stack, os.dup(given))  # so that there is room for a pidfd afterwards
            with open(given, "wb", closefd=False) as file:
                file.write(text)
            os.lseek(given, 0, os.SEEK_SET)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            errors = _kept(stack, os.open("shim.err", flags, 0o600, dir_fd=folder.fd))
            hit("effect.before-fork")
            pid = self._fork((given, errors, errors, lock, folder.fd, self.home_fd))
            hit("effect.after-fork")
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # until it is reaped its number is no other process
            os.waitpid(pid, 0)
            raise

    def _fork(self, fds: tuple[int, ...]) -> int:
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # One that cannot be opened must not leave the others open: the lock is among them.
        with ExitStack() as stack:
            # Out of the way first: a number must not be both a source and a target.
            sources = [_kept(stack, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE)) for fd in fds]
            return os.posix_spawn(
                self.python,
                [self.python, "-I", "-S", str(_SHIM)],
                {"PATH": os.defpath, "LC_ALL": "C.UTF-8", **env},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(sources)],
                setsid=True,
                setsigmask=_BLOCKED,  # until the shim has its handlers
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )


def _kept(stack: ExitStack, fd: int) -> int:
    """A descriptor that is closed at the end, whatever happens."""
    stack.callback(os.close, fd)
    return fd


def _merged(env: dict[str, str], shared: dict[str, str]) -> dict[str, str]:
    """What a share needs wins; where modules are looked for, the job's own places come after."""
    found = {**env, **shared}
    if env.get(_SEARCH) and shared.get(_SEARCH):
        found[_SEARCH] = f"{shared[_SEARCH]}{os.pathsep}{env[_SEARCH]}"
    return found


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _check_mount(mount: HostMount, account: accounts.Account | None) -> None:
    """Refuse a mount that the job could not read; wait for one that is away."""
    place = Path(os.path.realpath(mount.path))
    if not place.is_dir():
        # A disk that is not mounted at the moment is none of the job's doing.
        raise Retryable(
            f"mounts: {mount.name} is {mount.path}, which is no folder here now", after=1.0
        )
    if account:
        accounts.check_reach(account, place)
    elif not os.access(place, os.R_OK | os.X_OK):
        raise InvalidSpec(f"mounts: {mount.name} is {mount.path}, which cannot be read")


def _argv(task: Task) -> list[str]:
    if task.script:
        return ["/bin/bash", "-eo", "pipefail", "-c", task.script]
    return list(task.command)


def _preparations(program: Program) -> list[dict[str, Any]]:
    """What runs before the workers."""
    found = []
    url, ref = program.git
    if url:
        if url.startswith("-") or ref.startswith("-"):
            raise InvalidSpec(f"cannot check out {url!r} at {ref!r}")
        found.append(("git", "git", ["/bin/bash", "-c", _CHECKOUT, "git", url, ref]))
    if program.setup and not program.image:  # there it runs in the container of each worker
        found.append(("setup", "setup", _argv(Task(script=program.setup))))
    return [preparation(name, title, argv) for name, title, argv in found]


def _signal(name: str) -> int:
    try:
        return int(signal.Signals[name])
    except KeyError:
        raise InvalidSpec(f"unknown stop signal {name!r}") from None


def _left(program: Program, record: RunRecord) -> float | None:
    if math.isinf(program.max_duration_s):
        return None
    return max(program.max_duration_s - record.used_s, 0.0)
