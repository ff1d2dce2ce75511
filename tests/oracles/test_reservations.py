"""Backfilling keeps its word: reservations that were ever announced, against what happened.

All run times are declared truly, so no reservation may slip: under EASY that of the first in line,
under conservative backfill those of all. After every batch of events the reservations of all
waiting jobs are read (``Core.explain``), as a user would read them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.played import cluster, job, simulation
from tests.support.effort import examples

from roost.core import Action, Decision, Event, JobId, NodeId, Policy
from roost.placement import PLACERS
from roost.policies.backfill import Easy
from roost.policies.conservative import Conservative
from roost.sim.simulation import Simulation
from roost.testing.builders import node, queue
from roost.traces.workload import TraceJob

GPUS = 4
NODES = 3
#: Milliseconds are no sums of powers of two; policies may round times a little.
ROUNDING_S = 1e-8


#: (submission, run time, workers) of rigid jobs, some of them gangs over two or three nodes.
Rows: TypeAlias = list[tuple[int, int, int]]
ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 30), st.sampled_from([1, 2, 3, 4, 5, 8, 12])),
    min_size=2,
    max_size=14,
)


def workload(rows: Rows, unit: float = 1.0) -> list[TraceJob]:
    """Jobs whose times are multiples of ``unit``."""
    return [
        job(f"j{i}", at * unit, work * unit, workers=workers)
        for i, (at, work, workers) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]


@dataclass(slots=True)
class Witness:
    """An observer that notes every reservation, in order.

    With ``recount`` it checks that of the first in line by counting GPUs itself.
    """

    sim: Simulation
    recount: bool
    told: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __call__(
        self, _events: Sequence[Event], _decisions: Sequence[Decision], _actions: Sequence[Action]
    ) -> None:
        for rank, waiting in enumerate(self.sim.core.waiting):
            found = self.sim.core.explain(waiting.id)
            assert found is not None
            at = found.reason.starts_at
            if rank == 0 and self.recount:
                assert at == pytest.approx(earliest(self.sim, waiting.id), abs=1e-6)
            if at is not None:
                self.told[waiting.id].append(at)


def earliest(sim: Simulation, name: str) -> float:
    """When a gang will first fit if nobody else starts: GPUs per node, counted by hand.

    The truth comes from the world: what runs hold, and when they really end. A gang that fits on
    one node stays on one node; a larger one takes whole nodes.
    """
    gpus = sim.jobs[JobId(name)].trace.spec.workers.min
    free = dict.fromkeys(sim.world.nodes, GPUS)
    ends: dict[float, list[tuple[NodeId, int]]] = defaultdict(list)
    for run in sim.world.runs.values():
        ends[run.since + run.job.trace.work_s - run.done_s] += [
            (part.node, len(part.gpus)) for part in run.allocation.parts
        ]
        for part in run.allocation.parts:
            free[part.node] -= len(part.gpus)
    for at in sorted(ends):
        for name_of, count in ends[at]:
            free[name_of] += count
        if gpus <= GPUS:
            fits = any(count >= gpus for count in free.values())
        else:
            fits = sum(count == GPUS for count in free.values()) * GPUS >= gpus
        if fits:
            return at
    return math.inf


def witnessed(policy: Policy, jobs: list[TraceJob], *, recount: bool = False) -> Witness:
    sim = simulation(policy, jobs, cluster(GPUS, nodes=NODES))
    witness = Witness(sim, recount)
    sim.run(observer=witness)
    assert sim.over
    return witness


def starts(witness: Witness) -> dict[str, float]:
    found = {row.id: row.started_at for row in witness.sim.results().jobs}
    return {name: at for name, at in found.items() if at is not None}


@settings(max_examples=examples(150))
@given(ROWS)
def test_easy_keeps_the_first_reservation_of_everyone_who_was_ever_first(
    rows: Rows,
) -> None:
    witness = witnessed(Easy(), workload(rows), recount=True)
    started = starts(witness)

    for name, told in witness.told.items():
        assert started[name] <= told[0]


@settings(max_examples=examples(100))
@given(ROWS)
def test_easy_keeps_its_word_in_milliseconds(rows: Rows) -> None:
    witness = witnessed(Easy(), workload(rows, unit=0.001))
    started = starts(witness)

    for name, told in witness.told.items():
        assert started[name] <= told[0] + ROUNDING_S


@pytest.mark.parametrize("placer", ["consolidate", "topology", "pack", "spread", "anywhere"])
def test_easy_keeps_its_word_whatever_the_placer(placer: str) -> None:
    @settings(max_examples=examples(25))
    @given(ROWS)
    def check(rows: Rows) -> None:
        sim = simulation(Easy(), workload(rows), cluster(GPUS, nodes=NODES), placer=PLACERS[placer])
        first: dict[str, float] = {}

        def note(
            _events: Sequence[Event], _decisions: Sequence[Decision], _actions: Sequence[Action]
        ) -> None:
            for waiting in sim.core.waiting:
                found = sim.core.explain(waiting.id)
                if found is not None and found.reason.starts_at is not None:
                    first.setdefault(waiting.id, found.reason.starts_at)

        found = sim.run(observer=note).jobs
        assert sim.over
        for row in found:
            assert row.started_at is not None
            assert row.started_at <= first.get(row.id, math.inf)

    check()


@settings(max_examples=examples(150))
@given(ROWS)
def test_conservative_keeps_every_reservation_ever_announced(rows: Rows) -> None:
    witness = witnessed(Conservative(), workload(rows))
    started = starts(witness)

    for name, told in witness.told.items():
        assert started[name] <= min(told)
        assert told == sorted(told, reverse=True), f"the reservation of {name} moved back"
    waited = {row.id for row in witness.sim.results().jobs if row.started_at != row.submitted_at}
    assert waited == set(witness.told), "someone waited without a reservation"


@settings(max_examples=examples(100))
@given(ROWS)
def test_conservative_keeps_its_word_in_milliseconds(rows: Rows) -> None:
    witness = witnessed(Conservative(), workload(rows, unit=0.001))
    started = starts(witness)

    for name, told in witness.told.items():
        assert started[name] <= min(told) + ROUNDING_S


#: (submission, run time, GPUs of a worker, workers, kinds, queue) of jobs for unlike nodes.
Motley: TypeAlias = list[tuple[int, int, float, int, tuple[str, ...], str]]
MOTLEY = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(1, 30),
        st.sampled_from([1, 1, 2, 0.5, 0.25]),
        st.sampled_from([1, 2, 3, 5]),
        st.sampled_from([(), (), ("x",)]),
        st.sampled_from("ab"),
    ),
    min_size=2,
    max_size=12,
)


@pytest.mark.parametrize("policy", [Easy(), Conservative()])
@pytest.mark.parametrize("placer", ["first-fit", "pack"])
def test_promises_are_kept_among_shares_kinds_and_limits_too(policy: Policy, placer: str) -> None:
    nodes = [node("n0", 2, kind="x"), node("n1", 4, kind="y"), node("n2", 8, kind="x")]

    @settings(max_examples=examples(40))
    @given(MOTLEY)
    def check(rows: Motley) -> None:
        jobs = [
            job(f"j{i}", at, work, gpus, workers=workers, kinds=kinds, queue=tenant)
            for i, (at, work, gpus, workers, kinds, tenant) in enumerate(rows)
        ]
        sim = simulation(
            policy,
            jobs,
            nodes,
            placer=PLACERS[placer],
            queues=[queue("a", limit_milli=10_000)],
        )
        witness = Witness(sim, recount=False)
        sim.run(observer=witness)
        started = starts(witness)

        assert sim.over
        for name, told in witness.told.items():
            assert started[name] <= (min(told) if isinstance(policy, Conservative) else told[0])

    check()
