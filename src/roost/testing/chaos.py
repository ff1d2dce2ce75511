"""Chaos: a real server under random commands and faults, and the oracles after each round.

    python -m roost.testing.chaos --rounds 100 --seed 1
    python -m roost.testing.chaos --replay FILE

A round is a cluster of its own. For each failpoint a server lives until it dies there, while jobs
are submitted, cancelled, suspended and resumed, and workers and their supervisors are killed; then
the next server takes over. Some lives end by SIGKILL at a random moment instead. Commands whose
outcome is unknown are given again with the same key. At the end all jobs must come to their end,
and O1 to O7 (``oracles``) must hold.

A failure prints its seed and keeps the journal, which ``--replay`` folds and checks step by step in
the core that the simulator uses.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from roost.errors import Fatal, RoostError
from roost.failpoints import NAMES
from roost.testing import oracles, witness
from roost.testing.oracles import Told
from roost.testing.served import Served, holders

SLOTS = 8
#: Steps in one life before it is given up, tries to make a failpoint fire, seconds until all ends.
_STEPS, _TRIES, _SETTLE_S = 60, 4, 60.0
_FEW = 8
_GONE_S, _SHOWN = 10.0, 30
_STOPPED_BY = ("snapshot.before-write", "snapshot.after-write")
_SHIM = b"engines/local/shim"


@dataclass(slots=True)
class Asked:
    """A job that was asked for; without an id nobody knows yet whether it is accepted."""

    key: str
    document: dict[str, Any]
    id: str = ""


@dataclass(slots=True)
class Chaos:
    """One cluster, from the first server to the last."""

    folder: Path
    chance: random.Random
    slots: int = SLOTS
    told: list[Told] = field(default_factory=list)
    jobs: list[Asked] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    server: Served = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the folder."""
        self.server = Served(self.folder / "home", self.slots)
        witness.install(self.folder)

    @property
    def mark(self) -> str:
        """What marks the processes of these jobs."""
        return f"{witness.MARK}={self.folder}"

    # -- lives ---------------------------------------------------------------------------------

    def strike(self, point: str) -> bool:
        """Let servers live until one has died at a failpoint; whether one did."""
        for attempt in range(_TRIES):
            if point.startswith("adopt.") and (attempt or not any(oracles.carrying(self.mark))):
                self._leave_a_run()
            count = 1 if attempt or point.startswith(("adopt.", "snapshot.", "shim.")) else 0
            if self.live(point, count or self.chance.randint(1, 4)):
                return True
        return False

    def live(self, point: str = "", count: int = 1) -> bool:
        """One life of a server, with commands and faults; whether it ended at the failpoint."""
        before = self._fired(point)
        if not self._begin(f"{point}:{count}" if point else ""):
            return self._ended(point, before)
        self.repeat()
        for _ in range(_FEW if point in _STOPPED_BY else _STEPS):
            if not self.server.alive or (before < self._fired(point) and _of_shim(point)):
                break
            self.step()
        if self.server.alive and point in _STOPPED_BY:
            self.server.stop()
        return self._ended(point, before)

    def killed(self) -> None:
        """A life that ends by SIGKILL at a random moment."""
        if self._begin():
            timer = threading.Timer(self.chance.uniform(0.0, 1.0), self.server.kill)
            timer.start()
            self.repeat()
            while self.server.alive:
                self.step()
            timer.join()

    def _begin(self, failpoint: str = "") -> bool:
        self.server.start(failpoint)
        return self.server.ready()

    def _ended(self, point: str, before: int) -> bool:
        """Put an end to a life, and see whether it had ended where it should."""
        alive, status = self.server.alive, self.server.status
        self.server.kill()
        if not alive and status not in (-signal.SIGKILL, 0):
            self.problems.append(f"a server ended by itself with status {status}")
        fired = self._fired(point) > before
        if not _of_shim(point):
            fired = fired and not alive and status == -signal.SIGKILL
        self.hits[point] += fired
        return fired

    def _fired(self, point: str) -> int:
        return self.server.reached().count(point)

    def _leave_a_run(self) -> None:
        """See to it that the next server finds something to adopt."""
        if not self._begin():
            self.problems.append("a server died before it was ready")
            return
        self.repeat()
        self.submit(witness.document(self.folder, self.chance, seconds=3.0))
        if not self.wait(self._running, _SETTLE_S):
            self.problems.append("no job came to run")
        self.server.kill()

    # -- steps ---------------------------------------------------------------------------------

    def step(self) -> None:
        """One random thing."""
        does: dict[Callable[[], object], int] = {
            self._submit_any: 10,
            lambda: self._command("cancel"): 3,
            lambda: self._command("suspend"): 2,
            lambda: self._command("resume"): 3,
            self._kill_worker: 2,
            self._kill_shim: 1,
            lambda: time.sleep(self.chance.uniform(0.0, 0.05)): 4,
        }
        self.chance.choices(list(does), list(does.values()))[0]()

    def submit(self, document: dict[str, Any]) -> Asked:
        """Ask for a job; what becomes of the request may stay unknown."""
        job = Asked(str(UUID(int=self.chance.getrandbits(128))), document)
        self.jobs.append(job)
        self._ask_for(job)
        return job

    def repeat(self) -> None:
        """Ask again for all jobs of which nobody knows whether they were accepted."""
        for job in self.jobs:
            if not job.id:
                self._ask_for(job)

    def _submit_any(self) -> None:
        self.submit(witness.document(self.folder, self.chance))

    def _ask_for(self, job: Asked) -> None:
        answer = self.server.ask("POST", "/api/v1/jobs", {"job": job.document}, job.key)
        if answer is None or answer.status_code == 503:  # noqa: PLR2004 - to be tried again
            return
        if not answer.is_success:
            self.problems.append(f"a job was refused: {answer.text}")
            return
        job.id = answer.json()["id"]
        self.told.append(Told("submit", job.id, job.key))

    def _command(self, verb: str) -> None:
        known = [job for job in self.jobs if job.id]
        if not known:
            return
        job = self.chance.choice(known[-12:])
        answer = self.server.ask("POST", f"/api/v1/jobs/{job.id}/{verb}")
        if answer is not None and answer.is_success:
            self.told.append(Told(verb, job.id))
        elif answer is not None and answer.status_code not in (409, 503):
            self.problems.append(f"{verb} of {job.id} was refused: {answer.text}")

    def _kill_worker(self) -> None:
        found = sorted(oracles.carrying(self.mark))
        if found:
            self._kill(self.chance.choice(found).pid, self.mark.encode(), "environ")

    def _kill_shim(self) -> None:
        found = sorted({_parent(process.pid) for process in oracles.carrying(self.mark)} - {0})
        if found:
            self._kill(self.chance.choice(found), _SHIM, "cmdline")

    def _kill(self, pid: int, wanted: bytes, where: str) -> None:
        """Kill exactly that process, if it still is what it was."""
        try:
            held = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if wanted in Path(f"/proc/{pid}/{where}").read_bytes():
                signal.pidfd_send_signal(held, signal.SIGKILL)
        except OSError:
            pass  # gone meanwhile
        finally:
            os.close(held)

    # -- the end -------------------------------------------------------------------------------

    def settle(self) -> None:
        """The last server, without faults: everything must come to its end (O6)."""
        if not self._begin():
            self.problems.append("the last server died before it was ready")
            return
        self.wait(self._all_known, _SETTLE_S)
        for job in self.jobs:
            if job.id:
                self.server.ask("POST", f"/api/v1/jobs/{job.id}/resume")
        if not self.wait(lambda: not self._open(), _SETTLE_S):
            self.problems += [f"O6: {job} after {_SETTLE_S:g} s" for job in self._open()]

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
        folding = oracles.Folding()
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
        self.problems += [f"O3, O7: {what}" for what in folding.problems]
        self.problems += [f"O6: {what}" for what in oracles.unfinished(folding.core)]
        self.problems += [f"views: {what}" for what in oracles.agree(folding.core, journal.rows)]
        return self.problems

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.server.close()
        deadline = time.monotonic() + _GONE_S
        while left := [*(process.pid for process in oracles.carrying(self.mark)), *self._shims()]:
            for pid in left:
                self._kill(pid, b"", "cmdline")
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

    def _all_known(self) -> bool:
        self.repeat()
        return all(job.id for job in self.jobs)

    def _open(self) -> list[str]:
        found = self.server.get(
            "/jobs?limit=200&state=queued&state=starting&state=running"
            "&state=suspended&state=resizing"
        )
        return [f"{job['id']} is {job['state']} ({job['reason']})" for job in found["items"]]

    def _running(self) -> bool:
        return bool(self.server.get("/jobs?state=running")["total"])

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


def _of_shim(point: str) -> bool:
    return point.startswith("shim.")


def _parent(pid: int) -> int:
    """The supervisor that a process descends from; 0 if it is gone."""
    while pid > 1:
        try:
            if _SHIM in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return 0


# -- rounds ----------------------------------------------------------------------------------------


def play(seed: int, number: int, points: Iterable[str], base: Path, kills: int = 4) -> Chaos:
    """One round: a life for each failpoint, some random kills, and all oracles."""
    chance = random.Random(f"{seed}-{number}")  # noqa: S311 - seeded, not secret
    chaos = Chaos(base / f"chaos-{seed}-{number}-{os.getpid()}", chance)
    lives = [*points, *[""] * kills]
    chance.shuffle(lives)
    try:
        for point in lives:
            if chaos.problems:
                break
            if not point:
                chaos.killed()
            elif not chaos.strike(point):
                chaos.problems.append(f"failpoint {point} was never reached")
        chaos.settle()
        chaos.check()
    except RoostError as error:
        chaos.problems.append(str(error))
    finally:
        chaos.close()
    return chaos


def replay(path: Path) -> list[str]:
    """Fold a saved journal in the core, entry by entry; what is wrong."""
    _, entries = oracles.load_journal(path)
    return oracles.folded(entries).problems


def _report(chaos: Chaos, seed: int, number: int) -> None:
    """Say what was wrong, and keep what is needed to look into it."""
    for problem in chaos.problems[:_SHOWN]:
        sys.stdout.write(f"  {problem}\n")
    sys.stdout.write(f"FAILED: --seed {seed}, round {number}; folder {chaos.folder}\n")
    about = {"seed": seed, "round": number, "problems": chaos.problems}
    out = Path(f"chaos-{seed}-{number}.jsonl")
    try:
        oracles.save_journal(out, chaos.server.journal().entries, about)
        sys.stdout.write(f"replay: python -m roost.testing.chaos --replay {out}\n")
    except RoostError as error:
        sys.stdout.write(f"no journal was kept: {error}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run rounds, or replay a journal; the exit status says whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m roost.testing.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failpoint", action="append", choices=NAMES)
    parser.add_argument("--replay", type=Path)
    asked = parser.parse_args(arguments)
    if asked.replay is not None:
        problems = replay(asked.replay)
        sys.stdout.write("".join(f"{problem}\n" for problem in problems) or "all is well\n")
        return 1 if problems else 0
    hits: Counter[str] = Counter()
    base = Path(tempfile.mkdtemp(prefix="roost-chaos-"))
    for number in range(asked.rounds):
        began = time.monotonic()
        chaos = play(asked.seed, number, asked.failpoint or NAMES, base)
        hits += chaos.hits
        sys.stdout.write(
            f"round {number}: {len(chaos.told)} commands acknowledged, {len(chaos.jobs)} jobs, "
            f"{chaos.hits.total()} deaths at failpoints, {time.monotonic() - began:.0f} s\n"
        )
        sys.stdout.flush()
        if chaos.problems:
            _report(chaos, asked.seed, number)
            return 1
        shutil.rmtree(chaos.folder)
    shutil.rmtree(base)
    for name in asked.failpoint or NAMES:
        sys.stdout.write(f"{name:28} {hits[name]:6}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
