"""A flood: users submit as fast as they can, and the server is killed again and again.

    python -m tests.support.flood --rounds 100 --seed 1 --clusters 2

A round is a cluster of its own: 10 servers, each killed with SIGKILL once it has acknowledged a
random number of submissions, or while it starts, and 1 000 submissions in all by four users at
once. Some jobs are cancelled, few come to run. A submission whose outcome is unknown is given again
with the same key. In the end what waits is cancelled, and O1 to O7 (``oracles``) must hold: what
was acknowledged is there, once. A hundred rounds are 1 000 kills and 100 000 submissions.

``chaos`` is the other half: fewer jobs that do everything that jobs can do.
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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.support import witness
from tests.support.chaos import report
from tests.support.trial import SubmittedJob, Trial

from roost.errors import RoostError

#: Of one round.
KILLS, SUBMISSIONS = 10, 1000
_USERS = 4
#: How many of the lives end while the server starts, and how many of the jobs are cancelled.
_EARLY, _CANCELLED = 0.1, 0.03
#: A start takes about a second; the kill comes somewhere in it.
_START_S = 1.2
#: Between the submission that makes it time and the kill: others are under way then.
_LATER_S = 0.02
#: Entries between looks at the whole core.
_EVERY = 100


@dataclass(slots=True)
class Flood(Trial):
    """One cluster that is flooded."""

    kills: int = 0

    def life(self, count: int) -> None:
        """A server that is killed after so many submissions, by chance even before the first."""
        self.server.start()
        if self.chance.random() < _EARLY:
            time.sleep(self.chance.uniform(0.0, _START_S))
            self._kill()
            return
        if not self.server.ready():
            self.problems.append(f"a server ended by itself with status {self.server.status}")
            return
        self.repeat()
        # Documents are drawn here, not by the users: the seed fixes them.
        orders = iter([self._order() for _ in range(count)])
        users = [threading.Thread(target=self._use, args=(orders,)) for _ in range(_USERS)]
        for user in users:
            user.start()
        # The others still ask when the first has nothing more to ask for.
        users[0].join()
        time.sleep(self.chance.uniform(0.0, _LATER_S))
        self._kill()
        for user in users[1:]:
            user.join()

    def cancel_waiting(self) -> None:
        """Nobody waits for thousands of jobs to run."""
        if not self.server.alive and not self.begin():
            self.problems.append("the last server died before it was ready")
            return
        self.repeat()
        for job in self.jobs:
            if job.id:
                self.command(job, "cancel")

    def _order(self) -> tuple[SubmittedJob, bool]:
        """A job to be, and whether it is cancelled once it is there."""
        key = f"{self.chance.getrandbits(128):032x}"
        document = witness.document(self.folder, self.chance, round(self.chance.uniform(0, 0.3), 2))
        return SubmittedJob(key, document), self.chance.random() < _CANCELLED

    def _use(self, orders: Iterator[tuple[SubmittedJob, bool]]) -> None:
        for job, cancelled in orders:
            # Noted before it is asked for: it may exist from then on.
            self.jobs.append(job)
            self.ask_for(job)
            if cancelled and job.id:
                self.command(job, "cancel")
            if not self.server.alive:
                break

    def _kill(self) -> None:
        self.server.kill()
        self.kills += 1


class RoundResult(NamedTuple):
    """What a round came to."""

    number: int
    acknowledged: int
    kills: int
    problems: int
    took_s: float


def play(seed: int, number: int, base: Path) -> Flood:
    """One round, with all oracles at its end."""
    chance = random.Random(f"flood-{seed}-{number}")
    flood = Flood(
        base / f"flood-{seed}-{number}-{os.getpid()}", chance, slots=2, validate_every=_EVERY
    )
    try:
        while not flood.problems and flood.kills < KILLS:
            left = SUBMISSIONS - sum(bool(job.id) for job in flood.jobs)
            lives = KILLS - flood.kills
            flood.life(max(1, left if lives == 1 else chance.randint(1, 2 * left // lives + 1)))
        if not flood.problems:
            flood.cancel_waiting()
            flood.settle()
            flood.check()
    except RoostError as error:
        flood.problems.append(str(error))
    finally:
        flood.close()
    return flood


def _round(seed: int, base: Path, number: int) -> RoundResult:
    began = time.monotonic()
    flood = play(seed, number, base)
    acknowledged = sum(told.command == "submit" for told in flood.told)
    if flood.problems:
        report(flood, seed, number)
    else:
        shutil.rmtree(flood.folder)
    took_s = time.monotonic() - began
    return RoundResult(number, acknowledged, flood.kills, len(flood.problems), took_s)


def main(arguments: list[str] | None = None) -> int:
    """Run rounds, some at a time; the exit status says whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.flood", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1, help="rounds that are played at a time")
    asked = parser.parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="roost-flood-"))
    acknowledged = kills = problems = 0
    with ProcessPoolExecutor(asked.clusters, get_context("spawn")) as pool:
        rounds = [
            pool.submit(partial(_round, asked.seed, base), number) for number in range(asked.rounds)
        ]
        for done in as_completed(rounds):
            result = done.result()
            acknowledged += result.acknowledged
            kills += result.kills
            problems += result.problems
            sys.stdout.write(
                f"round {result.number}: {result.acknowledged} submissions acknowledged, "
                f"{result.kills} kills, {result.problems} problems, {result.took_s:.0f} s; "
                f"in all {acknowledged} and {kills}\n"
            )
            sys.stdout.flush()
    if problems:
        return 1
    shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it leaves nothing
    sys.exit(main())
