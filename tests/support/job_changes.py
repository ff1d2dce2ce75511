"""A trial in which running jobs change: resized in place, suspended, moved, kept, cloned, shrunk.

``provoke`` does to a job that can change whatever leads to one failpoint of a change
(``failpoints.CHANGING``) or of a snapshot (``KEEPING``). ``compare_members`` holds the processes
that are there against what the server says once everything has settled.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support import oracles, witness
from tests.support.trial import LATER, OVER, SETTLE_S, SubmittedJob, Trial, kill_exactly

from roost.failpoints import CHANGING, KEEPING

_UNDER_WAY, _CONFLICT, _GONE = 202, 409, 404
#: How often a snapshot that is under way is asked for.
_ASKED = 3
#: Attempts to reach a failpoint with one job.
_TURNS = 8
#: Until a job that goes first is set up, and how long one trains that is to be changed. On a GPU a
#: process takes seconds to begin, and nothing is changed before it has.
_STEADY_S, _STEADY_ON_GPU_S = 10.0, 25.0
_LONG_S, _LONG_ON_GPU_S = 4.0, 15.0
#: Before all others: what is to be changed must run, however many wait.
_FIRST = 9
#: What is done to a running job that can change, and how often.
_CHANGES = {
    "scale": 8,
    "snapshot": 3,
    "clone": 2,
    "suspend": 2,
    "resume": 2,
    "migrate": 2,
    "lose": 2,
}


@dataclass(slots=True)
class ChangingTrial(Trial):
    """A cluster whose elastic jobs are changed while they run."""

    #: How often each was acknowledged; what became of it is in the journal.
    changed: Counter[str] = field(default_factory=Counter)
    #: Snapshots that were acknowledged; of those under removal nobody knows.
    kept: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    #: When to begin nothing new, by the monotonic clock.
    ends_at: float = math.inf

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.ends_at

    @property
    def steady_s(self) -> float:
        """How long to wait for a job that is being set up or changed."""
        return _STEADY_ON_GPU_S if self.on_gpu else _STEADY_S

    @property
    def long_s(self) -> float:
        """Long enough for a job to be changed while it runs."""
        return _LONG_ON_GPU_S if self.on_gpu else _LONG_S

    def submit_elastic(self, seconds: float) -> SubmittedJob:
        """A witness that changes its size while it runs, and goes before all others."""
        found = witness.document(self.folder, self.chance, seconds, gpu=self.on_gpu)
        found |= witness.elastic(self.folder, seconds, gpu=self.on_gpu)
        return self.submit(found | {"priority": _FIRST})

    def change_any(self) -> None:
        """Something happens to an elastic job that runs, if there is one."""
        jobs = [job for job in self.elastic("running") if self._is_steady(job, 1)]
        if jobs:
            what = self.chance.choices(list(_CHANGES), list(_CHANGES.values()))[0]
            self._change(self.chance.choice(jobs), what)

    def provoke(self, point: str, fired: Callable[[], bool]) -> None:
        """Do to an elastic job what leads to a failpoint, until a server or a shim dies there."""
        job: SubmittedJob | None = None
        for _ in range(_TURNS):
            if self.late:
                return
            if job is None or self._state(job) in OVER:
                job = self.submit_elastic(self.long_s)
            for what in _leading_to(point):
                steady = partial(self._is_steady, job, 1 + (what == "lose"))
                if not self.reach(steady, self.steady_s):
                    break
                self._change(job, what)
            if not self.server.alive or fired():
                return

    def elastic(self, state: str) -> list[SubmittedJob]:
        """The elastic jobs in a state."""
        answer = self.server.ask("GET", f"/api/v1/jobs?limit=200&state={state}")
        if answer is None or not answer.is_success:
            return []
        there = {item["id"] for item in answer.json()["items"]}
        return [job for job in self.jobs if job.id in there and witness.is_elastic(job.document)]

    def compare_members(self) -> None:
        """Two jobs that everything happens to: then there are as many processes as the books say.

        Both grow; one is kept, cloned, moved, suspended and resumed, the other loses a worker.
        """
        if not self.server.alive and not self.begin():
            self.problems.append("a server died before it was ready")
            return
        self.reach(lambda: not any(map(_is_first, self.elastic("running"))))
        jobs = [self.submit_elastic(3 * self.long_s) for _ in range(2)]
        for job in jobs:
            self.reach(partial(self._is_steady, job, 1))
            self._scale(job, 2, 3)
            self.reach(partial(self._is_steady, job, 2), self.steady_s)
        self._change(jobs[0], "lose")
        for what in ("clone", "migrate", "suspend"):
            self._change(jobs[1], what)
            self.reach(
                lambda: self._state(jobs[1]) in ("running", "suspended", *OVER), self.steady_s
            )
        self.reach(lambda: self._state(jobs[1]) in ("suspended", *OVER), self.steady_s)
        self._change(jobs[1], "resume")
        self.reach(partial(self._is_steady, jobs[1], 1), self.steady_s)
        seen = dict[str, tuple[int, int]]()

        def settled() -> bool:
            for job in jobs:
                seen[job.id] = (self._now(job), len(self._processes(job)))
            return all(said == there for said, there in seen.values())

        if not self.reach(settled, SETTLE_S):
            self.problems += [
                f"members: {job} has {said} workers by the books and {there} processes"
                for job, (said, there) in seen.items()
            ]
        for job in jobs:
            if job.id:
                self.command(job, "cancel")

    def check_kept(self) -> None:
        """Every snapshot that was acknowledged is listed."""
        listed = {item["id"] for item in self.server.get("/snapshots?limit=200")["items"]}
        lost = sorted(self.kept - self.doubtful - listed)
        self.problems += [f"O1: snapshot {one} was acknowledged and is not listed" for one in lost]

    def reach(self, done: Callable[[], bool], within_s: float = SETTLE_S) -> bool:
        """Wait until something is so; a server that dies meanwhile is no problem here."""
        problems = len(self.problems)
        reached = self.wait(done, within_s)
        if not self.server.alive:
            del self.problems[problems:]
        return reached

    # -- what happens to a job -----------------------------------------------------------------

    def _change(self, job: SubmittedJob, what: str) -> None:
        low = self.chance.randint(1, 3)
        does: dict[str, Callable[[], object]] = {
            "grow": lambda: self._scale(job, 3, 3),
            "shrink": lambda: self._scale(job, 1, 1),
            "scale": lambda: self._scale(job, low, max(low, self.chance.randint(1, 3))),
            "snapshot": lambda: self._snapshot(job),
            "forget": lambda: self._forget(job),
            "clone": lambda: self._clone(job),
            "lose": lambda: self._lose(job),
            "migrate": lambda: self.command(job, "migrate", {"node": None}),
        }
        answer = does[what]() if what in does else self.command(job, what)
        self.changed[what] += bool(answer is not None and getattr(answer, "is_success", answer))

    def _scale(self, job: SubmittedJob, low: int, high: int) -> object:
        return self.command(job, "scale", {"min": low, "max": high})

    def _snapshot(self, job: SubmittedJob) -> bool:
        """Keep what the job has saved; it may have saved nothing yet, or be over."""
        name = f"s{self.chance.getrandbits(32):08x}"
        path = f"/api/v1/jobs/{job.id}/snapshots"
        for _ in range(_ASKED):
            answer = self.server.ask("POST", path, {"name": name}, f"key-{name}")
            if answer is None or answer.status_code != _UNDER_WAY:
                break
        if answer is None or answer.status_code in (*LATER, _CONFLICT, _GONE):
            return False
        if not answer.is_success:
            self.problems.append(f"a snapshot of {job.id} was refused: {answer.text}")
        elif answer.status_code == 201:
            self.kept.add(f"{job.id}@{name}")
            return True
        return False

    def _forget(self, job: SubmittedJob) -> bool:
        """Delete a snapshot of the job; one is taken if there is none."""
        mine = sorted(one for one in self.kept - self.doubtful if one.startswith(f"{job.id}@"))
        if not mine:
            return self._snapshot(job)
        self.doubtful.add(mine[0])
        answer = self.server.ask("DELETE", f"/api/v1/jobs/{mine[0].replace('@', '/snapshots/')}")
        return answer is not None and answer.is_success

    def _clone(self, job: SubmittedJob) -> bool:
        """A new job from the newest snapshot of the job; one is taken if there is none."""
        if not any(one.startswith(f"{job.id}@") for one in self.kept - self.doubtful):
            self._change(job, "snapshot")
        clone = self.submit(dict(job.document), source=job.id)
        return bool(clone.id)

    def _lose(self, job: SubmittedJob) -> bool:
        """Kill a member of a job."""
        found = self._processes(job)
        return bool(found) and kill_exactly(
            self.chance.choice(found), self.mark.encode(), "environ"
        )

    def _processes(self, job: SubmittedJob) -> list[int]:
        return sorted(one.pid for one in oracles.carrying(self.mark) if one.job == job.id)

    def _now(self, job: SubmittedJob) -> int:
        """How many workers it has, by the books."""
        return int(self._seen(job).get("workers", {}).get("now", 0))

    def _is_steady(self, job: SubmittedJob, workers: int) -> bool:
        """Whether it runs with so many workers or more, all of which are set up, or is over."""
        state = self._state(job)
        if state != "running" or self._now(job) < workers:
            return state in OVER
        ledger = oracles.read_ledger(self.folder / "ledger")
        begun = {line.pid for line in ledger if line.job == job.id and line.what == "start"}
        return begun.issuperset(self._processes(job))

    def _state(self, job: SubmittedJob) -> str:
        return str(self._seen(job).get("state", ""))

    def _seen(self, job: SubmittedJob) -> dict[str, Any]:
        answer = self.server.ask("GET", f"/api/v1/jobs/{job.id}")
        found: dict[str, Any] = answer.json() if answer is not None and answer.is_success else {}
        return found


def _is_first(job: SubmittedJob) -> bool:
    return bool(job.document["priority"] == _FIRST)


def leads(point: str) -> bool:
    """Whether somebody has to provoke this failpoint."""
    return point in CHANGING or point in KEEPING


def _leading_to(point: str) -> tuple[str, ...]:
    if point == "shim.after-loss":
        return ("grow", "lose")
    if point == "keep.before-removal":
        return ("snapshot", "forget")
    return ("snapshot",) if point in KEEPING else ("grow", "shrink")


def happened(events: Counter[str], changed: Counter[str]) -> dict[str, int]:
    """What became of running jobs, for the report of a round."""
    return {
        "resized in place": events["in place"],
        "resized by a restart": events["Resized"] - events["in place"],
        "shrank": events["Shrank"],
        "suspended": events["Suspended"],
        "snapshots": changed["snapshot"],
        "clones": changed["clone"],
    }
