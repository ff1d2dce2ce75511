"""Chaos: a real server under random commands and faults, and the oracles after each round.

    python -m tests.support.chaos --rounds 100 --seed 1 --store postgresql
    python -m tests.support.chaos --gpu --rounds 1 --minutes 2
    python -m tests.support.chaos --replay FILE

A round is a cluster of its own. For each failpoint a server lives until it dies there, while jobs
are submitted, cancelled, suspended, resumed, scaled, moved, kept, cloned and deleted, and workers
and their supervisors are killed; then the next server takes over. Some lives end by SIGKILL at a
random moment instead. With PostgreSQL the database is killed, too, and started again. Commands
whose outcome is unknown are given again with the same key. At the end all jobs must come to their
end, and O1 to O7 (``oracles``) must hold.

With ``--gpu`` the jobs hold memory of this machine's GPUs and share them by turns; afterwards as
much of it must be free as before. ``--minutes`` bounds the time in which commands are given; what
was not reached by then is no failure.

A failure prints its seed and keeps the journal, which ``--replay`` folds and checks step by step in
the core that the simulator uses.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import gpu_memory, oracles, witness
from tests.support.job_changes import ChangingTrial, happened, leads
from tests.support.postgres import PostgresServer
from tests.support.trial import SETTLE_S, SHIM, SLOTS, SubmittedJob, Trial, kill_exactly, shim_of

from roost.errors import RoostError
from roost.failpoints import CHANGING, KEEPING, NAMES

#: Steps in one life before it is given up, tries to make a failpoint fire.
_STEPS, _TRIES = 60, 4
_FEW = 8
_SHOWN = 30
_LATELY = 12
_SETTLE_ON_GPU_S = 300.0
_POINTS = NAMES + CHANGING + KEEPING
_STOPPED_BY = ("snapshot.before-write", "snapshot.after-write")


@dataclass(slots=True)
class Chaos(ChangingTrial):
    """One cluster under chance; ``database`` is the server of its store, if it has one."""

    hits: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    database: PostgresServer | None = None

    # -- lives ---------------------------------------------------------------------------------

    def strike(self, point: str) -> bool:
        """Let servers live until one has died at a failpoint; whether one did."""
        for attempt in range(_TRIES):
            if self.late:
                break
            if point.startswith("adopt.") and (attempt or not any(oracles.carrying(self.mark))):
                self._leave_a_run()
            seldom = point.startswith(("adopt.", "snapshot.", "shim.")) or leads(point)
            count = 1 if attempt or seldom else 0
            if self.live(point, count or self.chance.randint(1, 4)):
                return True
        return False

    def live(self, point: str = "", count: int = 1) -> bool:
        """One life of a server, with commands and faults; whether it ended at the failpoint."""
        before = self._fired(point)
        if not self.begin(f"{point}:{count}" if point else ""):
            return self._ended(point, before)
        self.repeat()
        if leads(point):
            self.provoke(point, lambda: before < self._fired(point))
        for _ in range(_FEW if point in _STOPPED_BY else _STEPS):
            if self.late or not self.server.alive:
                break
            if before < self._fired(point) and _of_shim(point):
                break
            self.step()
        if self.server.alive and point in _STOPPED_BY:
            self.server.stop()
        return self._ended(point, before)

    def killed(self) -> None:
        """A life that ends by SIGKILL at a random moment."""
        if self.begin():
            timer = threading.Timer(self.chance.uniform(0.0, 1.0), self.server.kill)
            timer.start()
            self.repeat()
            while self.server.alive:
                self.step()
            timer.join()
            self.kills["server"] += 1

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
        if not self.begin():
            self.problems.append("a server died before it was ready")
            return
        self.repeat()
        self.submit(witness.document(self.folder, self.chance, 3.0, gpu=self.on_gpu))
        if not self.wait(self._running, SETTLE_S):
            self.problems.append("no job came to run")
        self.server.kill()

    # -- steps ---------------------------------------------------------------------------------

    def step(self) -> None:
        """One random thing."""
        does: dict[Callable[[], object], int] = {
            self._submit_any: 20,
            lambda: self._command("cancel"): 6,
            lambda: self._command("suspend"): 4,
            lambda: self._command("resume"): 6,
            lambda: self._command("scale"): 3,
            lambda: self._command("migrate"): 2,
            lambda: self._command("delete"): 3,
            self.change_any: 12,
            self._kill_worker: 4,
            self._kill_shim: 2,
            lambda: time.sleep(self.chance.uniform(0.0, 0.05)): 8,
        }
        if self.database is not None:
            does[self._kill_database] = 1
        self.chance.choices(list(does), list(does.values()))[0]()

    def _submit_any(self) -> None:
        self.submit(witness.document(self.folder, self.chance, gpu=self.on_gpu))

    def _command(self, verb: str) -> None:
        known = [job for job in self.jobs if job.id and not job.deleted]
        if not known:
            return
        job: SubmittedJob = self.chance.choice(known[-_LATELY:])
        low, high = sorted((self.chance.randint(1, 3), self.chance.randint(1, 3)))
        bodies: dict[str, dict[str, int | None]] = {
            "scale": {"min": low, "max": high},
            "migrate": {"node": None},
        }
        if verb == "scale" and job.document.get("workers") != "1..3":
            return
        self.command(job, verb, bodies.get(verb))

    def _kill_worker(self) -> None:
        found = sorted(oracles.carrying(self.mark))
        if found and kill_exactly(self.chance.choice(found).pid, self.mark.encode(), "environ"):
            self.kills["worker"] += 1

    def _kill_shim(self) -> None:
        found = sorted({shim_of(process.pid) for process in oracles.carrying(self.mark)} - {0})
        if found and kill_exactly(self.chance.choice(found), SHIM, "cmdline"):
            self.kills["shim"] += 1

    def _kill_database(self) -> None:
        if self.database is not None:
            self.database.kill()
            time.sleep(self.chance.uniform(0.0, 0.2))
            self.database.start()
            self.kills["database"] += 1

    def count(self) -> None:
        """Count what the journal says became of running jobs; nobody may serve."""
        for entry in self.server.journal().entries:
            for event in entry.body["events"]:
                self.events[event["type"]] += 1
                # A restart stands still as long as it takes; one that goes on, for a part of it.
                pause_s, took_s = event.get("pause_s"), event.get("took_s")
                self.events["in place"] += None not in (pause_s, took_s) and pause_s < took_s

    def _running(self) -> bool:
        return bool(self.server.get("/jobs?state=running")["total"])


def _of_shim(point: str) -> bool:
    return point.startswith("shim.")


# -- rounds ----------------------------------------------------------------------------------------


def play(
    seed: int,
    number: int,
    points: Iterable[str],
    base: Path,
    *,
    kills: int = 4,
    database: PostgresServer | None = None,
    gpu: bool = False,
    until: float = math.inf,
) -> Chaos:
    """One round: a life for each failpoint, some random kills, and all oracles.

    No life begins after ``until``, by the monotonic clock.
    """
    chance = random.Random(f"{seed}-{number}")
    chaos = Chaos(
        base / f"chaos-{seed}-{number}-{os.getpid()}",
        chance,
        slots=None if gpu else SLOTS,
        store="" if database is None else database.database(),
        settle_s=_SETTLE_ON_GPU_S if gpu else SETTLE_S,
        database=database,
        ends_at=until,
    )
    used = gpu_memory.used_mib() if gpu else []
    lives = [*points, *[""] * kills]
    chance.shuffle(lives)
    try:
        for point in lives:
            if chaos.problems or chaos.late:
                break
            if not point:
                chaos.killed()
            elif not chaos.strike(point) and not chaos.late:
                chaos.problems.append(f"failpoint {point} was never reached")
        chaos.compare_members()
        chaos.settle()
        chaos.check_kept()
        chaos.check()
        chaos.count()
    except RoostError as error:
        chaos.problems.append(str(error))
    finally:
        chaos.close()
    if gpu:
        chaos.problems += gpu_memory.kept(used)
    return chaos


def replay(path: Path) -> list[str]:
    """Fold a saved journal in the core, entry by entry; what is wrong."""
    _, entries = oracles.load_journal(path)
    return oracles.folded(entries).problems


def report(trial: Trial, seed: int, number: int) -> None:
    """Say what was wrong, and keep what is needed to look into it."""
    for problem in trial.problems[:_SHOWN]:
        sys.stdout.write(f"  {problem}\n")
    sys.stdout.write(f"FAILED: --seed {seed}, round {number}; folder {trial.folder}\n")
    about = {"seed": seed, "round": number, "problems": trial.problems}
    out = Path(f"chaos-{seed}-{number}.jsonl")
    try:
        oracles.save_journal(out, trial.server.journal().entries, about)
        sys.stdout.write(f"replay: python -m tests.support.chaos --replay {out}\n")
    except RoostError as error:
        sys.stdout.write(f"no journal was kept: {error}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run rounds, or replay a journal; the exit status says whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--failpoint", action="append", choices=_POINTS)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--replay", type=Path)
    asked = parser.parse_args(arguments)
    if asked.replay is not None:
        problems = replay(asked.replay)
        sys.stdout.write("".join(f"{problem}\n" for problem in problems) or "all is well\n")
        return 1 if problems else 0
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer()) if asked.store != "sqlite" else None
        return _rounds(asked, database)


def _rounds(asked: argparse.Namespace, database: PostgresServer | None) -> int:
    hits: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    points = asked.failpoint or _POINTS
    until = time.monotonic() + 60 * asked.minutes
    base = Path(tempfile.mkdtemp(prefix="roost-chaos-"))
    for number in range(asked.rounds):
        began = time.monotonic()
        if began > until:
            break
        chaos = play(
            asked.seed, number, points, base, database=database, gpu=asked.gpu, until=until
        )
        hits += chaos.hits
        told = {
            "commands acknowledged": len(chaos.told),
            "jobs": len(chaos.jobs),
            "deaths at failpoints": chaos.hits.total(),
            **{f"{what}s killed": count for what, count in sorted(chaos.kills.items())},
            **happened(chaos.events, chaos.changed),
        }
        totals.update(told)
        sys.stdout.write(f"round {number}: {_listed(told)}, {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()
        if chaos.problems:
            report(chaos, asked.seed, number)
            return 1
        shutil.rmtree(chaos.folder)
    shutil.rmtree(base)
    sys.stdout.write(f"{asked.rounds} rounds: {_listed(totals)}\n")
    for name in points:
        sys.stdout.write(f"{name:28} {hits[name]:6}\n")
    return 0


def _listed(told: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in told.items())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it leaves nothing
    sys.exit(main())
