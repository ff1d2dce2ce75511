"""Jobs that learn: epochs, batches, what they see of themselves, and what a restart costs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from tests.oracles.profiled import NAME, step, toy_tables

from roost.core.actions import Action
from roost.core.allocation import Allocation, Part
from roost.core.decisions import Decision
from roost.core.events import Event, Exited, Measured, Progressed, Resized, Started
from roost.core.plan import Plan
from roost.core.spec import JobId, NodeId
from roost.errors import Fatal
from roost.sim.learning import Terms
from roost.sim.simulation import Simulation
from roost.sim.worlds.learning import LearningWorld, steps_at
from roost.traces.profiles import Choice, Tables
from roost.traces.sia import SiaJob
from roost_bench.sia.benchmark import prepare

ONE, TWO = JobId("one"), JobId("two")
PENALTY_S = 30.0
ADAPTIVE = Terms(adaptive=True)
TUNED = Terms(adaptive=False)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return toy_tables(tmp_path)


def row(name: JobId, at: float = 0.0, workers: int = 2, batch: int = 64) -> SiaJob:
    return SiaJob(name, at, NAME, workers, batch)


def on(*counts: tuple[str, int]) -> Allocation:
    """The first GPUs of nodes, one for each worker."""
    return Allocation(
        tuple(Part(NodeId(node), tuple(range(gpus)), workers=gpus) for node, gpus in counts)
    )


class Script:
    """A policy that gives one job these places at these times; None: it stands aside."""

    def __init__(self, *steps: tuple[float, Allocation | None]) -> None:
        self.steps = list(steps)

    def __call__(self, plan: Plan) -> None:
        job = plan.jobs.get(ONE)
        while job is not None and self.steps and self.steps[0][0] <= plan.now:
            wanted = self.steps[0][1]
            if job.waiting and wanted is not None:
                plan.place_at(job, wanted)
            elif not job.waiting and wanted is None and job.run is not None:
                plan.suspend(job.run, "as the script says")
            elif not job.waiting and wanted is not None and job.run is not None:
                assert plan.reshape(job.run, wanted)
            self.steps.pop(0)
            if self.steps and self.steps[0][0] <= plan.now:
                return  # in the next batch of this instant
        if self.steps:
            plan.wake(self.steps[0][0])


E = TypeVar("E")


class Log:
    """What happened, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        del decisions, actions
        self.events += events

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def play(
    tables: Tables,
    *rows: SiaJob,
    policy: Callable[[Plan], None],
    terms: Terms = ADAPTIVE,
    until: float | None = None,
) -> tuple[Simulation, LearningWorld, Log]:
    simulation, _ = prepare(tables, rows or [row(ONE)], "script", policy=policy, terms=terms)
    log = Log()
    if until is None:
        simulation.run(observer=log)
    else:
        simulation.run(until, observer=log)
    world = simulation.world
    assert isinstance(world, LearningWorld)
    return simulation, world, log


def test_a_tuned_job_takes_its_steps_and_its_start(tables: Tables) -> None:
    toy = tables[NAME]
    sim, _, _ = play(tables, policy=Script((0.0, on(("t4-0", 2)))), terms=TUNED)

    seconds, _ = step("T4", 1, 2, 32)
    expected = sum(1000.0 / toy.gain(64, epoch) for epoch in range(3)) * seconds
    (job,) = sim.results().jobs
    assert job.finished_at == pytest.approx(PENALTY_S + expected)
    assert job.work_s == pytest.approx(steps_at(toy, 64)[-1])
    assert job.service_gpu_s == pytest.approx(2 * (PENALTY_S + expected))


def test_a_tuned_job_goes_at_the_rate_that_was_promised(tables: Tables) -> None:
    sim, _, log = play(tables, policy=Script((0.0, on(("a100-0", 2)))), terms=TUNED)

    spec = sim.core.jobs[ONE].spec
    rates = [event.rate for event in log.of(Progressed)]
    assert rates == [pytest.approx(dict(spec.rates)["A100"])] * len(rates)
    assert spec.training is not None
    assert (spec.training.batch, spec.training.adaptive, spec.elastic) == (64, False, False)


def test_an_adaptive_job_begins_with_the_batch_for_which_it_was_tuned(tables: Tables) -> None:
    _, _, log = play(tables, policy=Script((0.0, on(("t4-0", 2)))), until=45.0)

    first = log.of(Measured)[0]
    assert first.time == PENALTY_S + 1.0  # it has to train before it can tell
    assert (first.kind, first.nodes, first.workers, first.local_batch) == ("T4", 1, 2, 8)
    assert (first.step_s, first.sync_s) == step("T4", 1, 2, 8)
    assert first.noise == pytest.approx(tables[NAME].noise(16, 0))
    assert first.epochs == pytest.approx(1.0 / step("T4", 1, 2, 8)[0] / 1000)


def test_it_chooses_its_batch_at_the_next_tick_once_it_has_seen_its_speed(tables: Tables) -> None:
    _, world, log = play(tables, policy=Script((0.0, on(("a100-0", 2)))), until=50.0)
    before = world.learners[ONE].choice
    _, world, log = play(tables, policy=Script((0.0, on(("a100-0", 2)))), until=60.0)

    after = world.learners[ONE].choice
    assert before == Choice(8, 0)
    assert after.total(2) > before.total(2)
    changed = log.of(Progressed)[-1]
    assert changed.time == 60.0


def test_work_is_done_epoch_by_epoch_at_the_rate_of_each(tables: Tables) -> None:
    """Against a sum over the reports: work between two of them is time by rate."""
    sim, _, log = play(tables, policy=Script((0.0, on(("rtx2080ti-0", 4)))))
    reports = log.of(Progressed)

    assert {event.epochs for event in log.of(Measured)} >= {1.0, 2.0}
    for early, late in pairwise(reports):
        done = early.done_s + (late.time - early.time) * early.rate
        assert late.done_s == pytest.approx(done)
    (end,) = log.of(Exited)
    assert end.saved_s == 3000.0
    last = reports[-1]
    assert last.done_s + (end.time - last.time) * last.rate == pytest.approx(3000.0)
    assert sim.over


def test_a_new_epoch_tells_its_noise_at_once(tables: Tables) -> None:
    _, _, log = play(tables, policy=Script((0.0, on(("t4-0", 4)))))
    noises = {
        int(event.epochs): event.noise for event in log.of(Measured) if event.epochs is not None
    }
    assert noises == {epoch: pytest.approx(16.0 * 3**epoch) for epoch in (0, 1, 2)}


def test_a_setting_is_told_of_once(tables: Tables) -> None:
    places = (on(("t4-0", 4)), on(("t4-1", 4)))
    script = Script((0.0, places[0]), (100.0, None), (200.0, places[1]))
    _, _, log = play(tables, policy=script)
    settings = [
        (event.kind, event.nodes, event.workers, event.local_batch)
        for event in log.of(Measured)
        if event.step_s
    ]
    assert len(settings) == len(set(settings))


@pytest.mark.parametrize(
    ("steps", "restarts", "times"),
    [
        # Elsewhere in the same numbers: free.
        ([(0.0, on(("t4-0", 2))), (50.0, on(("t4-1", 2)))], 0, [30.0, 50.0]),
        # More, on more nodes, and on another kind: a restart each.
        ([(0.0, on(("t4-0", 2))), (50.0, on(("t4-0", 3)))], 1, [30.0, 80.0]),
        ([(0.0, on(("t4-0", 2))), (50.0, on(("t4-0", 1), ("t4-1", 1)))], 1, [30.0, 80.0]),
        ([(0.0, on(("t4-0", 2))), (50.0, on(("a100-0", 2)))], 1, [30.0, 80.0]),
        # Aside and back in the same instant, with the same numbers: free; with others it is not.
        ([(0.0, on(("t4-0", 2))), (50.0, None), (50.0, on(("t4-3", 2)))], 0, [30.0, 50.0]),
        ([(0.0, on(("t4-0", 2))), (50.0, None), (50.0, on(("t4-3", 4)))], 1, [30.0, 80.0]),
        # Aside, and back later.
        ([(0.0, on(("t4-0", 2))), (50.0, None), (51.0, on(("t4-0", 2)))], 1, [30.0, 81.0]),
        # The order of the numbers counts.
        (
            [(0.0, on(("t4-0", 1), ("t4-1", 2))), (50.0, on(("t4-0", 2), ("t4-1", 1)))],
            1,
            [30.0, 80.0],
        ),
    ],
)
def test_what_is_charged_as_a_restart(
    tables: Tables,
    steps: list[tuple[float, Allocation | None]],
    restarts: int,
    times: list[float],
) -> None:
    _, world, log = play(tables, policy=Script(*steps), until=85.0)

    assert world.learners[ONE].restarts == restarts
    ups = [event for event in log.events if isinstance(event, Started | Resized)]
    assert [event.time for event in ups] == times
    assert [event.took_s for event in ups] == [30.0, 30.0 if restarts else None]


def test_a_pause_does_not_make_a_job_forget(tables: Tables) -> None:
    script = Script((0.0, on(("t4-0", 2))), (50.0, None), (500.0, on(("t4-0", 2))))
    sim, world, log = play(tables, policy=script, until=531.0)
    resumed = [event for event in log.of(Progressed) if event.time == 530.0]

    assert resumed[0].done_s == pytest.approx(20.0 / step("T4", 1, 2, 8)[0])
    assert sim.core.jobs[ONE].observed is not None
    assert world.learners[ONE].own.version >= 1


def both(plan: Plan) -> None:
    """Each job gets a node of its own."""
    for job in plan.pending:
        plan.place_at(job, on((f"a100-{0 if job.id == ONE else 1}", 4)))


def test_with_a_library_a_job_begins_where_others_have_got(tables: Tables) -> None:
    rows = row(ONE), row(TWO, 200.0)
    batches = {}
    for library in (False, True):
        terms = Terms(adaptive=True, library=library)
        _, _, log = play(tables, *rows, policy=both, terms=terms)
        batches[library] = next(
            event.local_batch for event in log.of(Measured) if event.run.job == TWO
        )
    assert batches[False] == 8
    assert batches[True] > 8


def test_gpus_of_two_kinds_at_once_are_refused(tables: Tables) -> None:
    with pytest.raises(Fatal, match="A100, T4"):
        play(tables, policy=Script((0.0, on(("t4-0", 2), ("a100-0", 2)))))


def test_a_job_is_told_no_truth(tables: Tables) -> None:
    sim, _, _ = play(tables, policy=Script((0.0, on(("t4-0", 2)))), until=1.0)
    spec = sim.core.jobs[ONE].spec
    assert spec.run_time_s is None
    assert spec.rates == ()
    assert spec.training is not None
    assert spec.training.epochs == 3
    assert spec.costs.restart_s == spec.costs.resize_s == PENALTY_S
