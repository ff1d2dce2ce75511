"""Gandiva: what is tried is measured, and undone if it was a mistake.

After Gandiva (Xiao et al., OSDI 2018). Jobs that may share a GPU get one of their own while there
is an empty one; when there are more jobs than GPUs they are packed, those that keep their GPUs
least busy first, tried for a while, and part if together they do less than one alone. All other
jobs take turns (``timeslice``). When runs end, those that are left move towards fewer nodes, so
that whole nodes are free for gangs. Jobs that can change their size grow into idle GPUs, and shrink
when others come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.state import Job, Run
from roost.errors import InvalidSpec
from roost.perf.interference import PairSpeed
from roost.policies.alnair import Alnair
from roost.policies.fifo import arrival
from roost.policies.kit.costs import restart_s
from roost.policies.kit.introspection import TrialTerms, introspection, measured_beside
from roost.policies.kit.moves import movable
from roost.policies.kit.pairing import Pairing
from roost.policies.kit.sharing import packable
from roost.policies.timeslice import Timeslice

#: How busy a job is taken to keep its GPU of which that was not measured.
_HALF = 0.5
#: A run moves if it has worked so many times longer than the move takes.
_WORTH = 20.0
#: The key of the notes on what was given back when runs were last moved.
_SEEN = "gandiva"
#: How far one job may grow, and how long it is left alone then, is as alnair has it.
_ELASTIC = Alnair()


@dataclass(frozen=True, slots=True)
class Idleness:
    """What jobs leave of their GPUs: two that leave most go together."""

    plan: Plan

    def gain(self, job: Job, others: Sequence[Job]) -> float:
        """What both leave; a third one is not tried."""
        return 2.0 - _busy(job) - _busy(others[0]) if len(others) == 1 else 0.0

    def together(self, jobs: Sequence[Job]) -> float:
        """The sum of their speeds, as they measured it; what was not counts as one alone."""
        runs = [job.run for job in jobs if job.run is not None]
        found = [measured_beside(run, runs) for run in runs]
        return sum(one.speed for one in found if one is not None) if all(found) else 1.0

    def expected(self, job: Job, others: Sequence[Job]) -> PairSpeed:
        """An equal part, where nothing was measured."""
        del job
        part = 1.0 / (1 + len(others))
        return PairSpeed(part, part)


def _busy(job: Job) -> float:
    profile = job.profile
    return profile.busy.mean if profile is not None and profile.busy.count else _HALF


@dataclass(frozen=True, slots=True)
class Gandiva:
    """Packing by trial, turns, moves towards fewer nodes, and growing into idle GPUs."""

    resizes: ClassVar[bool] = True

    quantum_s: float = 60.0
    trial_s: float = 60.0
    most_loss: float = 0.2
    pack: bool = True
    move: bool = True
    grow: bool = True

    def __post_init__(self) -> None:
        """Refuse turns and trials of nothing."""
        Timeslice(self.quantum_s)
        if not 1 <= self.trial_s < math.inf:
            raise InvalidSpec(f"trial_s must be at least a second, got {self.trial_s}")
        if not 0 <= self.most_loss <= 1:
            raise InvalidSpec(f"most_loss must be from 0 to 1, got {self.most_loss}")

    def __call__(self, plan: Plan) -> None:
        """Judge what was tried, let jobs in, then look for what could be better."""
        left = plan.ledger.releases != plan.memo.get(_SEEN)
        if self.grow:
            self._shrink(plan)
        if self.pack:
            self._pack(plan)
        Timeslice(self.quantum_s).serve(plan, self._takes_turns)
        if self.move and left:
            self._tidy(plan)
        if self.grow and not plan.waiting.count:
            _ELASTIC.give_out(plan)
        plan.memo[_SEEN] = plan.ledger.releases

    def _takes_turns(self, job: Job) -> bool:
        return not (self.pack and packable(job))

    def _pack(self, plan: Plan) -> None:
        terms = TrialTerms(self.trial_s, self.most_loss)
        pairing = Pairing.of(plan, introspection(plan), Idleness(plan), terms)
        pairing.introspect()
        pairing.start(arrival, others=False)
        if plan.waiting.count:
            pairing.gather()
        else:
            pairing.spread()

    @staticmethod
    def _shrink(plan: Plan) -> None:
        """Let in those for whom it is enough that others shrink."""
        for line in list(plan.lines(arrival)):
            while line.entries and not packable(line.head) and plan.is_full(line):
                if not _ELASTIC.make_room(plan, line):
                    break

    @staticmethod
    def _tidy(plan: Plan) -> None:
        """Move runs from nodes with most free GPUs to those with fewest, one from each."""
        ledger = plan.ledger
        some = [node for node in ledger.select(ledger.up) if node.free and node.runs]
        for node in sorted(some, key=_emptiness, reverse=True):
            run = _smallest(plan, node)
            if run is None:
                continue
            held = sum(len(part.gpus) for part in run.allocation.parts)
            fuller = [one for one in some if _emptiness(one) < _emptiness(node)]
            for other in sorted(fuller, key=_emptiness):
                if held <= other.free.bit_count() and plan.move(run, other.spec.id):
                    break


def _emptiness(node: Node) -> tuple[int, int]:
    return node.free.bit_count(), node.index


def _smallest(plan: Plan, node: Node) -> Run | None:
    """The run on a node, and on no other, that holds fewest GPUs and may move."""
    found = [
        run
        for run in node.runs
        if run.job.spec.uniform
        and movable(run, plan.now)
        and len(run.allocation.nodes) == 1
        and plan.now - max(run.changed_at, run.started_at or 0.0) > _WORTH * restart_s(run.job)
    ]
    return min(found, key=lambda run: (run.gpu_milli, run.job.seq), default=None)
