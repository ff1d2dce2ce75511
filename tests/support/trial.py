"""A cluster on trial: a real server, jobs that bear witness, and what everybody was told.

Tests do to it what they like. At the end ``settle`` lets all jobs come to their end, and ``check``
holds everything that was recorded against the oracles O1 to O7.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from tests.support import oracles, witness
from tests.support.oracles import Told
from tests.support.server_process import ServerProcess, holders

from roost.errors import Fatal
from roost.store.rows import JobRow

SLOTS = 8
#: What the command line of a supervisor has in it.
SHIM = b"engines/local/shim"
#: Seconds until all jobs have come to their end, and until their processes are gone.
SETTLE_S, _GONE_S = 60.0, 10.0
#: Answers that mean: not now, try again. The disk may be full, the database away.
LATER = (503, 507)
OVER = ("succeeded", "failed", "cancelled")
_OPEN = "&".join(
    f"state={state}" for state in ("queued", "starting", "running", "suspended", "resizing")
)


@dataclass(slots=True)
class SubmittedJob:
    """A job that was asked for; without an id nobody knows yet whether it is accepted."""

    key: str
    document: dict[str, Any]
    id: str = ""
    #: Somebody tried to delete it: it may be gone.
    deleted: bool = False
    #: The job from whose newest snapshot it is to begin.
    source: str = ""


@dataclass(slots=True)
class Trial:
    """One cluster, from the first server to the last."""

    folder: Path
    chance: random.Random
    slots: int | None = SLOTS
    store: str = ""
    settle_s: float = SETTLE_S
    validate_every: int = 1
    told: list[Told] = field(default_factory=list)
    jobs: list[SubmittedJob] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    server: ServerProcess = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the folder."""
        self.server = ServerProcess(self.folder / "home", self.slots, self.store)
        witness.install(self.folder)

    @property
    def on_gpu(self) -> bool:
        """Whether jobs run on the GPUs of this machine."""
        return self.slots is None

    @property
    def mark(self) -> str:
        """What marks the processes of these jobs."""
        return f"{witness.MARK}={self.folder}"

    # -- commands ------------------------------------------------------------------------------

    def begin(self, failpoint: str = "") -> bool:
        """Start a server and wait for it; False if it died before it was ready."""
        self.server.start(failpoint)
        return self.server.ready()

    def submit(self, document: dict[str, Any], source: str = "") -> SubmittedJob:
        """Ask for a job; what becomes of the request may stay unknown."""
        job = SubmittedJob(str(UUID(int=self.chance.getrandbits(128))), document, source=source)
        self.jobs.append(job)
        self.ask_for(job)
        return job

    def repeat(self) -> None:
        """Ask again for all jobs of which nobody knows whether they were accepted."""
        for job in list(self.jobs):
            if not job.id:
                self.ask_for(job)

    def ask_for(self, job: SubmittedJob) -> httpx.Response | None:
        """Ask for a job, perhaps again; the answer, if there was one."""
        path, body = "/api/v1/jobs", {"job": job.document}
        if job.source:
            path, body = f"/api/v1/jobs/{job.source}/clone", {}
        answer = self.server.ask("POST", path, body, job.key)
        if answer is None or answer.status_code in LATER:
            return answer
        if job.source and answer.status_code in (404, 409):
            self.jobs.remove(job)  # the snapshot went meanwhile
            return answer
        if not answer.is_success:
            self.problems.append(f"a job was refused: {answer.text}")
            return answer
        job.id = answer.json()["id"]
        self.told.append(Told("submit", job.id, job.key))
        return answer

    def command(
        self, job: SubmittedJob, verb: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response | None:
        """Ask something of a job; a refusal that cannot be right is a problem."""
        method, path = "POST", f"/api/v1/jobs/{job.id}/{verb}"
        if verb == "delete":
            method, path, job.deleted = "DELETE", f"/api/v1/jobs/{job.id}", True
        answer = self.server.ask(method, path, body)
        if answer is None or answer.status_code in LATER:
            return answer
        if answer.status_code == 409:
            job.deleted = False
        elif answer.is_success:
            self.told.append(Told(verb, job.id))
        elif answer.status_code != 404 or not job.deleted:
            self.problems.append(f"{verb} of {job.id} was refused: {answer.text}")
        return answer

    # -- questions -----------------------------------------------------------------------------

    def view(self, job: SubmittedJob) -> dict[str, Any]:
        """A job as the server shows it."""
        found: dict[str, Any] = self.server.get(f"/jobs/{job.id}")
        return found

    def until(self, job: SubmittedJob, *states: str, within_s: float = SETTLE_S) -> dict[str, Any]:
        """Wait until a job is in one of some states; raises Fatal if it takes too long."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.update(self.view(job))
            return seen["state"] in states

        if not self.wait(there, within_s):
            raise Fatal(f"job {job.id} is {seen.get('state')} ({seen.get('reason')}), not {states}")
        return seen

    def open(self) -> list[str]:
        """Jobs that are not over, in words."""
        found = self.server.get(f"/jobs?limit=200&{_OPEN}")
        return [f"{job['id']} is {job['state']} ({job['reason']})" for job in found["items"]]

    def wait(self, done: Callable[[], bool], within_s: float) -> bool:
        """Wait until something is so; False if it takes too long, or if the server ends."""
        deadline = time.monotonic() + within_s
        while not done():
            if not self.server.alive:
                self.problems.append(f"the server ended with status {self.server.status}")
                return False
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    # -- the end -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Without faults everything must come to its end (O6); a server is started if need be."""
        if not self.server.alive and not self.begin():
            self.problems.append("the last server died before it was ready")
            return
        self.wait(self._all_known, self.settle_s)
        for job in self.jobs:
            if job.id:
                self.server.ask("POST", f"/api/v1/jobs/{job.id}/resume")
        if not self.wait(lambda: not self.open(), self.settle_s):
            self.problems += [f"O6: {job} after {self.settle_s:g} s" for job in self.open()]

    def check(self) -> list[str]:
        """All oracles, once everything is settled; the server is stopped for it."""
        if not self.server.alive:
            return self.problems
        state = self.server.get("/state")
        if not self.wait(lambda: not self._left(), _GONE_S):
            self.problems += [f"O4: {what}" for what in self._left()]
        self.server.stop()
        if holders(self.server.home):
            self.problems.append(f"O4: {holders(self.server.home)} hold files of the home")
        journal = self.server.journal()
        folding = oracles.Folding(every=self.validate_every)
        for entry in journal.entries:
            folding.take(entry)
            if entry.seq == state["seq"]:
                seen = [item for item in journal.entries if item.seq <= entry.seq]
                kept = [item for item in journal.snapshots if item[0] <= entry.seq]
                found = oracles.same_state(folding.core, state["digest"], seen, kept)
                self.problems += [f"O5: {what}" for what in found]
        told = oracles.accounted(journal.entries, self.told, journal.rows)
        ledger = oracles.read_ledger(self.folder / "ledger")
        self.problems += [f"O1: {what}" for what in told]
        self.problems += [f"O2: {what}" for what in oracles.overlaps(ledger)]
        self.problems += [f"O2: {what}" for what in oracles.doubles(ledger)]
        self.problems += [f"steps: {what}" for what in self._miscounted(journal.rows)]
        self.problems += [f"O3, O7: {what}" for what in folding.problems]
        self.problems += [f"O6: {what}" for what in oracles.unfinished(folding.core)]
        self.problems += [f"views: {what}" for what in oracles.agree(folding, journal.rows)]
        return self.problems

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.server.close()
        deadline = time.monotonic() + _GONE_S
        while left := [*(process.pid for process in oracles.carrying(self.mark)), *self._shims()]:
            for pid in left:
                kill_exactly(pid, b"", "cmdline")
            if time.monotonic() > deadline:
                raise Fatal(f"processes {left} of {self.folder} do not die")
            time.sleep(0.01)

    def _shims(self) -> list[int]:
        return holders(self.server.home)

    def _left(self) -> list[str]:
        """Processes of runs, when no run is alive."""
        mine = {self.server.pid}
        shims = [pid for pid in self._shims() if pid not in mine]
        return [
            *oracles.leftovers(self.mark, ()),
            *(f"process {pid} holds files of the home" for pid in shims),
        ]

    def _miscounted(self, rows: Mapping[str, JobRow]) -> list[str]:
        """Elastic jobs that succeeded without having counted all their steps."""
        found = []
        for job in self.jobs:
            row = rows.get(job.id)
            if row is not None and row.state == "succeeded" and witness.is_elastic(job.document):
                steps = self.folder / "steps" / job.id
                counted = [int(n) for n in steps.read_text().split()] if steps.exists() else []
                if counted or not job.source:  # a clone of what was done has nothing to do
                    found += oracles.miscounted(job.id, counted, witness.steps_of(job.document))
        return found

    def _all_known(self) -> bool:
        self.repeat()
        return all(job.id for job in self.jobs)


def kill_exactly(pid: int, wanted: bytes, where: str, number: int = signal.SIGKILL) -> bool:
    """Signal exactly that process, if it still is what it was; whether that was so."""
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if wanted in Path(f"/proc/{pid}/{where}").read_bytes():
            signal.pidfd_send_signal(held, number)
            return True
    except OSError:
        pass  # gone meanwhile
    finally:
        os.close(held)
    return False


def shim_of(pid: int) -> int:
    """The supervisor that a process descends from; 0 if it is gone."""
    while pid > 1:
        try:
            if SHIM in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return 0
