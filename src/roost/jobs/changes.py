"""What a change of a run came to: from which size to which, how long it took and what it cost.

An engine reports that a change is done, and the core no longer knows what there was before. So what
is asked of each run is remembered here until its answer comes, which then is one sentence for the
event log and for the job's record: "2 → 3 workers in 0.4 s, training paused 0.1 s".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from roost.core import (
    Allocation,
    Core,
    Event,
    JobId,
    Resized,
    Run,
    RunId,
    Shrank,
    Started,
    Suspended,
)
from roost.core.transitions import RunPhase
from roost.engines import NOTHING_SAVED
from roost.jobs.record import JobRecord

Kind = Literal["start", "resume", "suspend", "resize", "migrate", "shrink"]
#: Below so many seconds one decimal says too little, and above so many too much.
_SHORT_S = 0.1
_LONG_S = 10.0


@dataclass(frozen=True, slots=True)
class JobChange:
    """What became of a job last: the sentence, and the figures in it (seconds, workers)."""

    kind: Kind
    text: str
    at: float
    took_s: float | None = None
    pause_s: float | None = None
    before: int = 0
    after: int = 0

    @property
    def tells(self) -> bool:
        """Whether it says more than that a state was reached."""
        return self.took_s is not None or self.text not in ("started", "resumed", "suspended")

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _PendingChange:
    """What is under way for a run."""

    kind: Kind
    run: RunId
    before: int
    target: Allocation
    #: Whether it keeps its devices when it is suspended.
    stays: bool = False


class ChangeTracker:
    """Remembers what is asked of runs, and says what it came to."""

    def __init__(self, core: Core) -> None:
        self._asked: dict[JobId, _PendingChange] = {}
        self._sizes: dict[JobId, int] = {}
        self.look(core, core.jobs)

    def told(
        self, core: Core, events: Iterable[Event], records: Mapping[JobId, JobRecord]
    ) -> dict[JobId, JobChange]:
        """What a batch came to that a core has just handled; noted in the jobs' records, too."""
        found: dict[JobId, JobChange] = {}
        for event in events:
            match event:
                case Shrank():
                    change = self._shrunk(core, event)
                case Started() | Resized() | Suspended():
                    change = self._answered(event)
                case _:
                    continue
            if change is not None:
                found[event.run.job] = change
                if event.run.job in records:
                    records[event.run.job].change = change.document()
        return found

    def look(self, core: Core, jobs: Iterable[JobId]) -> None:
        """Take note of what is under way for some jobs, after a core has handled a batch."""
        for job_id in jobs:
            job = core.jobs.get(job_id)
            run = None if job is None else job.run
            asked = None if run is None else _asked(run)
            if run is None or asked is None:
                self._asked.pop(job_id, None)
            else:
                self._asked[job_id] = asked
            if run is None:
                self._sizes.pop(job_id, None)
            else:
                self._sizes[job_id] = run.workers

    def _answered(self, event: Started | Resized | Suspended) -> JobChange | None:
        asked = self._asked.get(event.run.job)
        if asked is None or asked.run != event.run:
            return None
        change = _done(asked, event)
        if change is not None:
            del self._asked[event.run.job]
        return change

    def _shrunk(self, core: Core, event: Shrank) -> JobChange | None:
        run = core.runs.get(event.run)
        before, left = self._sizes.get(event.run.job, 0), event.allocation.workers
        lost = before - left
        if run is None or run.allocation != event.allocation or lost < 1:
            return None  # old news: engines say it again to every server
        what = "a worker" if lost == 1 else f"{lost} workers"
        why = f" ({event.why})" if event.why else ""
        goes_on = f"goes on with {left} worker{'' if left == 1 else 's'}"
        text = f"lost {what}{why}: {goes_on}"
        return JobChange("shrink", text, event.time, before=before, after=left)


def where(allocation: Allocation) -> str:
    """The nodes and devices of an allocation."""
    return "; ".join(
        f"{part.node} GPU {','.join(map(str, part.gpus)) or '-'}" for part in allocation.parts
    )


def under_way(run: Run) -> str:
    """What a run is changing into; empty if it is not."""
    if run.target is None:
        return ""
    if run.target.workers == run.workers:
        return f"migrating to {where(run.target)}"
    return f"from {run.workers} to {run.target.workers} workers"


def seconds(value: float) -> str:
    """A short time as people say it: 40 ms, 0.4 s, 12 s."""
    if value >= _LONG_S:
        return f"{value:.0f} s"
    return f"{value:.1f} s" if value >= _SHORT_S else f"{1000 * value:.0f} ms"


def _asked(run: Run) -> _PendingChange | None:
    """What was asked of a run and has not been answered."""
    target = run.target or run.allocation
    kind: Kind
    match run.activity:
        case RunPhase.SUSPENDING | RunPhase.FREEZING:
            kind = "suspend"
        case RunPhase.EXPECTING | RunPhase.CHANGING:
            kind = "migrate" if target.workers == run.workers else "resize"
        case RunPhase.RECALLED | RunPhase.RESUMING:
            kind = "resume"
        case RunPhase.RESERVED | RunPhase.STARTING:
            kind = "start"
        case _:
            return None
    return _PendingChange(kind, run.id, run.workers, target, run.activity is RunPhase.FREEZING)


def _done(asked: _PendingChange, event: Started | Resized | Suspended) -> JobChange | None:
    """What was asked, if this is its answer."""
    after = asked.target.workers
    done = JobChange(asked.kind, "", event.time, event.took_s, before=asked.before, after=after)
    took = "" if event.took_s is None else f" in {seconds(event.took_s)}"
    point = "from the beginning" if NOTHING_SAVED in event.why else "from its last checkpoint"
    anew = f", started again {point} ({event.why})" if event.why else ""
    match event, asked.kind:
        case Started(), "start":
            return replace(done, text=f"started{took}{anew}", before=0)
        case Started(), "resume":
            return replace(done, text=f"resumed{took}{anew}")
        case Suspended(), "suspend":
            stays = "; its GPU memory stays taken" if asked.stays else ""
            ended = f", to go on {point} ({event.why})" if event.why else ""
            return replace(done, text=f"suspended{took}{stays}{ended}")
        case Resized(), "resize" | "migrate":
            what = (
                f"moved to {where(asked.target)}"
                if asked.kind == "migrate"
                else f"{asked.before} → {after} workers"
            )
            paused = "" if event.pause_s is None else f", training paused {seconds(event.pause_s)}"
            return replace(done, text=f"{what}{took}{paused}{anew}", pause_s=event.pause_s)
        case _:
            return None
