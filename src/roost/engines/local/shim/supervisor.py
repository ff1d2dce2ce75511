"""The life of one generation of a run: prepare, start all workers or none, watch, end, clean up.

One loop over the workers' pipes, the job's own reports and the signals. Time limits run on the
monotonic clock and stand still while the run is frozen. The end is written only when nothing of
the run is left alive.
"""

from __future__ import annotations

import os
import select
import time

from roost.elastic.members import MemberList
from roost.elastic.protocol import take
from roost.elastic.turnover import Turnover
from roost.engines.local.shim import process_tree, slot_file, spawn
from roost.engines.local.shim.members_file import MembersFile
from roost.engines.local.shim.output import TAIL, ProgressPipe, WorkerLog
from roost.engines.local.shim.status import ShimRecords
from roost.engines.local.shim.stdlib_subset import ignoring, signal
from roost.engines.local.shim.worker import WorkerProcess, placed
from roost.failpoints import hit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from roost.elastic.host import NewMember

#: The first pause between two rounds of killing; each is longer than the last.
_SWEEP_S = 0.01
#: How long frozen processes may take to come to a stop.
_SETTLE_S = 1.0
#: After how long the server is told of processes that do not die.
_STUCK_S = 5.0
#: Characters of the sentence in the exit record.
_DETAIL = 1000


class Supervisor:
    """Supervises all workers of one generation; the host of the membership protocol here.

    1. ``start.json`` says that this process exists: phase ``preparing``. From here on the engine
       can adopt it.
    2. The steps before the workers run, one after the other (``git``, ``setup``).
    3. ``members.json`` is published, then all workers are started. If one cannot be, none stays:
       the cause is ``never-started``. Else the phase is ``running``.
    4. One loop waits for output of workers, lines of the job, and signals. Handlers do nothing:
       Python writes the number of a signal to a pipe (``set_wakeup_fd``), and the loop reads it.
           SIGTERM, SIGINT   stop all workers, for good        SIGUSR1   freeze all processes
           SIGHUP            look at the records               SIGUSR2   let them go on
           SIGCHLD           a process has ended
    5. The first worker that fails, an order, or the time limit stops all workers: a signal, a
       grace, then the end of the loop.
    6. Everything below this process is killed until nothing is left. What a worker left behind was
       inherited by this process, which is a subreaper.
    7. Output that is still in the pipes goes to the logs. Then ``exit.json`` is written and synced.
       The lock (fd 3) is let go by the end of this process, after that: a free lock means that the
       record is complete.
    """

    def __init__(self, order: dict[str, Any], folder: int, status: ShimRecords) -> None:
        self._order, self._folder, self._status = order, folder, status
        self._logs = os.open("logs", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        self.workers: list[WorkerProcess] = []
        self._log_of: dict[str, WorkerLog] = {}
        self._pipes: dict[int, WorkerProcess] = {}
        self._poll = select.poll()
        self._exits: list[list[object]] = []
        self._cause, self._detail, self._phase = "", "", "preparing"
        #: The number of an error of this machine, not of the job, that kept workers from starting.
        self._short = 0
        #: Why no more output is kept: the user of the job is beyond a bound.
        self._restraint = ""
        self._begun, self._frozen_at, self._thawed_s = time.monotonic(), 0.0, 0.0
        self._kill_at = float("inf")
        io = os.open("io", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        self._progress = ProgressPipe("progress", io)
        ids = [str(what["member"]) for what in order["workers"] if what["member"]]
        self.members = MemberList(ids, order["address"], MembersFile(folder, io))
        self._turnover = Turnover(self, status, order["least"])
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        # A handler that does nothing, so that the number is written to the pipe: an ignored signal
        # would not be. All but SIGPIPE and SIGXFSZ.
        for number in spawn.HANDLED[:6]:
            signal.signal(number, lambda *_: None)
        # The engine started this process with these signals blocked. Only now can none be lost.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._poll.register(self._wake, select.POLLIN)
        if self._progress.fd >= 0:
            self._poll.register(self._progress.fd, select.POLLIN)

    def run(self) -> None:
        """Go through the whole life, and write its end."""
        hit("shim.before-start-record")
        self._status.phase(self._phase)
        hit("shim.after-start-record")
        if self._prepare() and self._launch():
            self._watch()
        self._sweep()
        self._finish()

    def _prepare(self) -> bool:
        """Run the steps before the workers, one after the other; False if they end the run."""
        if self._order["prepared"]:
            return True
        log = WorkerLog(
            f"{self._order['workers'][0]['name']}.log", self._logs, self._order["log_limit"]
        )
        try:
            for step in self._order["prepare"]:
                if not self._step(WorkerProcess(step, log)):
                    return False
        finally:
            log.close()
        # Where that cannot be written down, the next generation prepares once more.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with ignoring(OSError):
            os.close(os.open("prepared", flags, 0o600, dir_fd=self._folder))
        return True

    def _step(self, worker: WorkerProcess) -> bool:
        if not self._start([worker]):
            return False
        self._watch()
        self.workers.clear()
        if self._cause == "exit" and not self._detail:
            self._exits.clear()
            self._cause, self._kill_at = "", float("inf")
            return True
        if self._cause == "exit":
            self._detail = f"{worker.what['title']} failed"
        return False

    def _launch(self) -> bool:
        self._heed(self._read("run.json"))
        # Before the workers: each of them reads the file when it starts.
        try:
            self.members.publish()
        except OSError as error:
            self._cause, self._short = "never-started", error.errno or 0
            self._detail = f"cannot write down the members: {error.strerror}"
            return False
        if not self._start([self._newcomer(what) for what in self._order["workers"]]):
            return False
        hit("shim.after-spawn")
        self._phase = "running"
        self._count()
        self._status.phase(self._phase)
        return True

    def _start(self, workers: list[WorkerProcess]) -> bool:
        """Start all of them, or none."""
        why = self.start(workers)
        if why:
            self._cause, self._detail = "never-started", why
        return not why

    # What a change of members needs.

    @property
    def is_running(self) -> bool:
        """Whether all workers are up, and neither frozen nor asked to stop."""
        return self._phase == "running" and not self._cause and not self._frozen_at

    @property
    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    @property
    def present(self) -> list[str]:
        """Members that were started and not removed."""
        return [worker.member for worker in self.workers if worker.member]

    @property
    def running(self) -> set[str]:
        """Those of them whose process has not ended."""
        return {worker.member for worker in self.workers if worker.member and worker.running}

    @property
    def grace_s(self) -> float:
        """Seconds that a member which is asked to leave may take."""
        return float(self._order["grace_s"])

    @property
    def patience(self) -> dict[str, float]:
        """How long new members may take to get ready, and all to train again."""
        found: dict[str, float] = self._order["patience"]
        return found

    def add(self, members: Sequence[NewMember]) -> str:
        """Start new members; why one could not be, or nothing."""
        whats = [placed(self._pattern, seat, rank, member) for member, rank, seat in members]
        return self.start([self._newcomer(what) for what in whats])

    def start(self, workers: list[WorkerProcess]) -> str:
        """Start workers; why one could not be, or nothing."""
        try:
            # All are forked before any is waited for: they start side by side.
            heard = []
            for worker in workers:
                heard.append(worker.start(self._order))
                self.workers.append(worker)
                self._pipes[worker.pipe] = worker
                self._poll.register(worker.pipe, select.POLLIN)
            failures = [failure for pipe in heard if (failure := spawn.outcome(pipe))[0]]
        except OSError as error:
            failures = [(f"cannot start a process: {error.strerror}", error.errno or 0)]
        why, self._short = failures[0] if failures else ("", 0)
        return why

    def assign_ranks(self, ranked: Sequence[str]) -> None:
        """Number the main workers anew; a log belongs to a rank, not to a process."""
        for rank, worker in enumerate(map(self._worker, ranked)):
            name = f"{worker.what['role']}-{rank}"
            if worker.what["name"] != name:
                worker.what = {**worker.what, "name": name, "index": rank}
                worker.log = self._log(name)
                worker.log.write(f"[roost: worker {rank} is process {worker.pid} now]\n".encode())
        self.workers.sort(key=lambda one: (not one.member, one.what["index"]))
        self._count()

    def remove(self, member: str) -> None:
        """Forget a worker, and end what is left of it."""
        worker = self._worker(member)
        self.workers.remove(worker)
        # Its session, and whatever carries its id: the others' processes are not touched.
        process_tree.kill_rest(worker.pid, b"ROOST_MEMBER=" + worker.member.encode())

    def kill(self, member: str) -> None:
        """Kill a worker that does not leave."""
        self._worker(member).signal(signal.SIGKILL)

    def stop(self, cause: str, detail: str) -> None:
        """Ask all workers to end."""
        # Members that were lost before come first in the record: they are the cause.
        losses = self._turnover.pending_losses()
        self._exits[:0] = [entry for entry, _ in losses]
        if losses and cause == "exit":
            detail = f"{losses[0][1]}, and the others did not go on without it"
        self._stop(cause, detail)

    def note(self, text: str) -> None:
        """Write a line into the log of the first worker."""
        self._log(self._pattern["name"]).write(f"[roost: {text}]\n".encode())

    def report(self, fields: dict[str, object]) -> None:
        """Say something in the name of the job."""
        take(self._progress.told, fields)
        self._status.tell(self._progress.told)

    @property
    def _pattern(self) -> dict[str, Any]:
        """What the first worker was started with."""
        first: dict[str, Any] = self._order["workers"][0]
        return first

    def _newcomer(self, what: dict[str, Any]) -> WorkerProcess:
        return WorkerProcess(what, self._log(what["name"]))

    def _worker(self, member: str) -> WorkerProcess:
        return next(worker for worker in self.workers if worker.member == member)

    def _count(self) -> None:
        self._status.workers = {
            one.what["name"]: [one.pid, _ticks(one.pid)] for one in self.workers if one.running
        }

    def _log(self, name: str) -> WorkerLog:
        if name not in self._log_of:
            self._log_of[name] = WorkerLog(f"{name}.log", self._logs, self._order["log_limit"])
            self._log_of[name].restrain(self._restraint)
        return self._log_of[name]

    def _heed(self, record: dict[str, Any]) -> None:
        """Keep no more output, or end, where the user of the job is beyond a bound."""
        why = record.get("restraint")
        self._restraint = why if isinstance(why, str) else ""
        for log in self._log_of.values():
            log.restrain(self._restraint)
        if self._restraint and record.get("restraint_ends") is True:
            self._stop("bound", self._restraint)

    def _watch(self) -> None:
        """Until every worker has ended, or the time to ask them has."""
        while any(worker.running for worker in self.workers):
            now = time.monotonic()
            if now >= self._kill_at:
                return
            if not self._cause and now >= self._limit_at():
                self._stop("timeout", f"ran longer than {self._order['limit_s']:g} s")
            due = float("inf") if self._cause or self._frozen_at else self._turnover.due
            wait = min(self._kill_at, self._limit_at(), self._status.due, due) - now
            self._turn(min(wait, 3600.0))

    def _turn(self, wait: float) -> None:
        # Signals and pipes in one wait: this thread is the only one, so nothing here has a lock.
        for fd, _ in self._poll.poll(max(wait, 0) * 1000):
            if fd == self._wake:
                self._answer(os.read(fd, 512))
            elif fd == self._progress.fd:
                if self._progress.read():
                    self._status.tell(self._progress.told)
                self._turnover.hear(self._progress.words)
            else:
                self._pump(fd)
        if not self._cause and not self._frozen_at:
            self._turnover.go_on()
        self._status.flush()

    def _pump(self, pipe: int) -> bool:
        """Move some output to its log; False when there is none."""
        worker = self._pipes[pipe]
        try:
            text = os.read(pipe, TAIL)
        except OSError:
            return False
        if text:
            worker.log.write(text)
            return True
        self._poll.unregister(pipe)
        del self._pipes[pipe]
        os.close(pipe)
        return False

    def _answer(self, signals: bytes) -> None:
        # An order to stop wins over all that came with it. Of freeze and thaw the last counts.
        if signal.SIGTERM in signals or signal.SIGINT in signals:
            self._stop("stopped", "")
        elif signal.SIGUSR1 in signals or signal.SIGUSR2 in signals:
            last = max(signals.rfind(signal.SIGUSR1), signals.rfind(signal.SIGUSR2))
            if signals[last] == signal.SIGUSR1:
                self._freeze()
            else:
                self._thaw()
        # Ends before wishes: a change must not be built on a member that is dead already.
        self._reap()
        if signal.SIGHUP in signals and not self._cause:
            self._heed(self._read("run.json"))
        if signal.SIGHUP in signals and not self._cause:
            self._turnover.look(self._read("wanted.json"))

    def _reap(self) -> bool:
        """Reap everything that has ended; True if nothing is left below."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return False
                for worker in self.workers:
                    if worker.pid == pid and worker.running:
                        worker.running = False
                        self._ended(worker, os.waitstatus_to_exitcode(status))
        except ChildProcessError:
            return True

    def _ended(self, worker: WorkerProcess, status: int) -> None:
        what = worker.what
        oom = spawn.oom_killed(self._order.get("cgroup", ""), what.get("leaf") or what["name"])
        code, number = (status, None) if status >= 0 else (None, -status)
        entry: list[object] = [what["role"], what["index"], code, number, oom]
        how = f"exited with {code}" if number is None else f"was killed by signal {number}"
        how = f"{what['name']} {how}"
        if not self._cause and self._turnover.takes(worker.member, status, (entry, how)):
            return
        self._exits.append(entry)
        if status and not self._cause:
            self.stop("exit", how)
        elif not any(one.running for one in self.workers if one.what["main"]):
            self._stop("exit", "")

    def _stop(self, cause: str, detail: str) -> None:
        """Ask all workers to end; the first reason counts."""
        if self._cause:
            return
        self._cause, self._detail = cause, detail
        self._turnover.over()
        self._kill_at = time.monotonic() + self._order["grace_s"]
        # The signal first, then SIGCONT: a frozen process sees it as soon as it runs again.
        for worker in self.workers:
            worker.signal(self._order["stop_signal"])
        self._thaw()
        if detail or cause != "exit":
            self._status.phase("stopping")

    def _freeze(self) -> None:
        if not self._frozen_at and not self._cause:
            # From now on no time limit runs: what is frozen cannot be late.
            self._frozen_at = time.monotonic()
            process_tree.freeze()
            process_tree.settle(_SETTLE_S)
        if self._frozen_at:
            self._status.phase("frozen")

    def _thaw(self) -> None:
        if not self._frozen_at:
            return
        frozen_s = time.monotonic() - self._frozen_at
        self._thawed_s += frozen_s
        self._frozen_at = 0.0
        self._turnover.later(frozen_s)
        # It may have been given other cores meanwhile: they are in run.json before SIGUSR2 comes.
        cpus = self._read("run.json").get("cpus")
        cpus = cpus if isinstance(cpus, dict) else {}
        for worker in self.workers:
            if worker.running and cpus.get(worker.what["name"]):
                process_tree.pin(worker.pid, cpus[worker.what["name"]])
        process_tree.thaw()
        if not self._cause:
            self._status.phase(self._phase)

    def _read(self, name: str) -> dict[str, Any]:
        """A record of the engine about this generation; empty if there is none."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
        except OSError:
            return {}
        try:
            body = slot_file.read(fd)
        except (OSError, ValueError, RecursionError):
            return {}
        finally:
            os.close(fd)
        # A file of an earlier generation, or of the job's making, is as if it were not there.
        ours = [self._order["token"], self._order["generation"]]
        fits = isinstance(body, dict) and [body.get("token"), body.get("generation")] == ours
        return body if body and fits else {}

    def _ran_s(self) -> float:
        now = self._frozen_at or time.monotonic()
        return now - self._begun - self._thawed_s

    def _limit_at(self) -> float:
        limit = self._order["max_duration_s"]
        if limit is None or self._cause or self._frozen_at:
            return float("inf")
        return float(self._begun + self._thawed_s + limit)

    def _sweep(self) -> None:
        """Kill until nothing is left below; what does not die holds everything up."""
        begun, pause, told = time.monotonic(), _SWEEP_S, False
        while not self._reap():
            process_tree.kill(self._order.get("cgroup", ""))
            if self._reap():
                break
            self._poll_signals(pause)
            pause = min(pause * 1.5, 1.0)
            if not told and time.monotonic() - begun > _STUCK_S:
                self._status.stuck([one.pid for one in process_tree.descendants(os.getpid())])
                told = True
            self._status.flush()

    def _poll_signals(self, pause: float) -> None:
        # Pipes are left alone: what wrote to them is being killed.
        wake = select.poll()
        wake.register(self._wake, select.POLLIN)
        if wake.poll(pause * 1000):
            os.read(self._wake, 512)

    def _finish(self) -> None:
        # Nothing is alive: each pipe can be read to its end without waiting.
        for pipe in list(self._pipes):
            while pipe in self._pipes and self._pump(pipe):
                pass
        for log in self._log_of.values():
            log.close()
        while self._progress.read():
            self._status.tell(self._progress.told)
        exits = [] if self._cause == "never-started" else self._exits
        hit("shim.before-exit-record")
        self._status.end(
            {
                "cause": self._cause,
                "detail": self._detail[:_DETAIL],
                "exits": exits,
                "short": self._short if self._cause == "never-started" else 0,
                "ran_s": self._ran_s(),
            }
        )
        hit("shim.after-exit-record")


def _ticks(pid: int) -> int:
    process = process_tree.look(pid)
    return process.ticks if process else 0
