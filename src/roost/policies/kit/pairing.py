"""Putting jobs that may share on GPUs, beside partners that a policy likes, and taking them apart.

A policy says what it expects of jobs on one GPU (``Taste``). Who comes gets an empty GPU; if there
is none, the partner of whom most is expected. What came of it is tried and measured
(``introspection``); jobs that failed together part. Runs move to GPUs that nobody waits for, and
together where that makes room for a job that waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from roost.core.plan import Plan
from roost.core.spec import NodeId
from roost.core.state import Job, Run
from roost.core.waiting import KeyOf, Line
from roost.perf.interference import PairSpeed
from roost.policies.kit.costs import switch_s
from roost.policies.kit.introspection import Introspection, TrialOutcome, TrialTerms
from roost.policies.kit.moves import movable
from roost.policies.kit.sharing import Crowds, Gpu, crowds, gpu_of, packable, rooms, seat, sit

#: How many jobs of a line may look for a partner in one decision.
_DEEP = 64
#: How many times more than it costs a move must bring.
_WORTH = 2.0
_WHY = "waits for an empty GPU, or for a partner with whom it goes well"


class Taste(Protocol):
    """What a policy expects of jobs on one GPU."""

    def gain(self, job: Job, others: Sequence[Job]) -> float:
        """What is done more with one more job there, in GPUs; not above 0: they stay apart."""

    def together(self, jobs: Sequence[Job]) -> float:
        """The work that they do together, in GPUs, as far as that is known."""

    def expected(self, job: Job, others: Sequence[Job]) -> PairSpeed | None:
        """The part of its speed that a job keeps beside others; None: nothing is known."""


@dataclass(slots=True)
class Pairing:
    """One decision about who shares a GPU with whom."""

    plan: Plan
    notes: Introspection
    taste: Taste
    terms: TrialTerms
    crowds: Crowds
    jobs: dict[Gpu, list[Job]]
    trying: set[NodeId] = field(default_factory=set)

    @classmethod
    def of(cls, plan: Plan, notes: Introspection, taste: Taste, terms: TrialTerms) -> Pairing:
        """What is there at the beginning of a decision."""
        found = crowds(plan)
        jobs = {gpu: [run.job for run in runs] for gpu, runs in found.items()}
        return cls(plan, notes, taste, terms, found, jobs)

    # -- trials --------------------------------------------------------------------------------

    def introspect(self) -> None:
        """Judge what was put together: it stays, or parts."""
        for judged in self.notes.judge(self.plan, self.crowds, self._expected, self.terms):
            gpu = gpu_of(judged.run)
            if judged.stays or not self._part(judged, gpu):
                self.notes.settle(gpu, self.crowds[gpu])
        self.trying = self.notes.busy_nodes()

    def _expected(self, run: Run, crowd: Sequence[Run]) -> PairSpeed | None:
        return self.taste.expected(run.job, [other.job for other in crowd if other is not run])

    def _part(self, judged: TrialOutcome, gpu: Gpu) -> bool:
        """Take the newest run of a GPU away: to another GPU, or until there is one."""
        plan, run = self.plan, judged.run
        others = [other for other in self.crowds[gpu] if other is not run]
        if not movable(run, plan.now):
            return False
        together = "" if judged.together is None else f": together {judged.together.speed:.2f}"
        why = f"goes badly with {', '.join(other.job.id for other in others)}{together} of one"
        self.notes.undo(plan, gpu, run, others)
        if self._move(run, why) or plan.suspend(run, why) or plan.evict(run, why):
            self._leave(run, gpu)
            return True
        return False

    # -- newcomers -----------------------------------------------------------------------------

    def start(self, key: KeyOf, *, others: bool = True) -> None:
        """Start jobs in an order, those that may share beside partners where no GPU is empty.

        Not ``others``: only those that may share.
        """
        plan, tired = self.plan, set[Line]()
        lines = plan.lines(key)
        entries = [(*entry, line) for line in lines for entry in islice(line.entries, _DEEP)]
        for _, _, job, line in sorted(entries, key=lambda entry: entry[:2]):
            if line in tired or line.refused_at == plan.ledger.releases:
                continue
            if packable(job):
                if not self._start(job) and not any(True for _ in rooms(plan, job)):
                    plan.hold(line)
            elif others and not plan.place(job):
                tired.add(line)
                plan.hold(line)
        for line in plan.waiting.open:
            if packable(line.head):
                plan.say(line, _WHY)

    def _start(self, job: Job) -> bool:
        found = self._best(job)
        if found is None or not sit(self.plan, job, found):
            return False
        self._join(job, found)
        return True

    def _best(self, job: Job, but: Gpu | None = None) -> Gpu | None:
        """An empty GPU, or that of the partners of whom most is expected beside a job."""
        best, most = None, 0.0
        for gpu, empty in rooms(self.plan, job):
            if gpu == but:
                continue
            if empty:
                return gpu
            others = self.jobs.get(gpu)
            if not others or gpu.node in self.trying or not self.notes.may_try(job, others):
                continue
            gain = self.taste.gain(job, others)
            if gain > most:
                best, most = gpu, gain
        return best

    # -- moves ---------------------------------------------------------------------------------

    def spread(self) -> None:
        """Let runs that share go to GPUs that nobody waits for; those that lose most, first."""
        crowded = [gpu for gpu in self.crowds if len(self.crowds[gpu]) > 1]
        for gpu in sorted(crowded, key=lambda gpu: (self.taste.together(self.jobs[gpu]), gpu)):
            run = self.crowds[gpu][-1]
            empty = next((there for there, empty in rooms(self.plan, run.job) if empty), None)
            gain = 1.0 + self.taste.together(_without(self.jobs[gpu], run.job))
            gain -= self.taste.together(self.jobs[gpu])
            if empty is not None and self._pays(run, gain):
                self._take(run, empty, "has a GPU to itself")

    def gather(self) -> None:
        """Bring two runs together where that makes room for a job that waits."""
        for job in self._stranded():
            alone = [
                runs[0]
                for gpu, runs in self.crowds.items()
                if len(runs) == len(self.jobs[gpu]) == 1
            ]
            choices = [
                (gain, run.job.seq, run, gpu_of(other))
                for run in alone
                if movable(run, self.plan.now) and self._would_hold(gpu_of(run), run.job, job)
                for other in alone
                if other is not run and (gain := self._fits(run, other)) > 0
            ]
            for gain, _, run, gpu in sorted(choices, key=lambda one: one[:2], reverse=True):
                if self._pays(run, gain) and self._take(run, gpu, f"makes room for {job.id}"):
                    self._start(job)
                    break

    def _stranded(self) -> list[Job]:
        """The first jobs that may share and wait."""
        waiting = [line.entries[0] for line in self.plan.waiting.open if packable(line.head)]
        return [job for _, _, job in sorted(waiting, key=lambda entry: entry[:2])]

    def _would_hold(self, gpu: Gpu, leaves: Job, comes: Job) -> bool:
        """Whether a GPU would be empty for a job once another has left it."""
        node = self.plan.ledger.nodes[gpu.node]
        need = comes.spec.resources
        return (
            len(self.jobs[gpu]) == 1
            and leaves is self.jobs[gpu][0]
            and (self.plan.ledger.suits(node, need) and gpu not in self.notes.trials)
        )

    def _fits(self, run: Run, other: Run) -> float:
        """What is gained by a run beside another, if it may be there."""
        gpu, others = gpu_of(other), self.jobs[gpu_of(other)]
        if gpu.node in self.trying or not self.notes.may_try(run.job, others):
            return 0.0
        if all(there != gpu for there, _ in rooms(self.plan, run.job)):
            return 0.0
        return self.taste.gain(run.job, others)

    def _pays(self, run: Run, gain: float) -> bool:
        """Whether a run may move, and what is gained is more than a move costs."""
        left_s = run.remaining_s(self.plan.now)
        if math.isinf(left_s):
            left_s = self.plan.now - (run.started_at or self.plan.now)
        return movable(run, self.plan.now) and gain * left_s > _WORTH * switch_s(run.job)

    # -- who is where --------------------------------------------------------------------------

    def _move(self, run: Run, why: str) -> bool:
        """Give a run the best GPU but its own."""
        gpu = self._best(run.job, but=gpu_of(run))
        return gpu is not None and self._take(run, gpu, why)

    def _take(self, run: Run, gpu: Gpu, why: str) -> bool:
        """Move a run to a GPU."""
        before = gpu_of(run)
        if not self.plan.reshape(run, seat(run.job, gpu), why):
            return False
        self._leave(run, before)
        self._join(run.job, gpu)
        return True

    def _join(self, job: Job, gpu: Gpu) -> None:
        there = self.jobs.setdefault(gpu, [])
        if there:
            self.trying.add(gpu.node)
            # Nobody tells that it is up while no job waits: its trial begins then, all the same.
            self.plan.wake(self.plan.now + self.terms.trial_s)
        there.append(job)

    def _leave(self, run: Run, gpu: Gpu) -> None:
        self.jobs[gpu] = _without(self.jobs[gpu], run.job)
        self.crowds[gpu] = [other for other in self.crowds[gpu] if other is not run]


def _without(jobs: Sequence[Job], job: Job) -> list[Job]:
    return [other for other in jobs if other is not job]
