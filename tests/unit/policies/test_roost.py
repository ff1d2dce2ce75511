"""Roost's own policy: who gets what, what a change has to pay, and what it says."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from roost.core import Costs, Measured, QueueChanged, Submitted, Training, Woke
from roost.core.decisions import Reshape, SetAside
from roost.core.events import Outcome
from roost.core.spec import JobSpec, QueueId, Range, Resources
from roost.errors import InvalidSpec
from roost.policies import policy
from roost.policies.kit.moves import Wish, standing
from roost.policies.kit.prospects import worth
from roost.policies.kit.sizes import offered
from roost.policies.roost import Roost, _weights
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.engine import FakeEngine

TRAINING = Training(
    batch=128, batch_max=4096, epochs=10, local_min=32, alone=(("old", 100.0), ("new", 400.0))
)
LEARNS = JobSpec(
    Range(1, 64), training=TRAINING, application="net", costs=Costs(restart_s=30.0, resize_s=30.0)
)


def engine(policy: Roost | None = None) -> FakeEngine:
    nodes = [node(f"old{index}", 4, kind="old") for index in range(2)]
    return FakeEngine(core_with(policy or Roost(), *nodes, node("new0", 8, kind="new")))


def submit(world: FakeEngine, name: str, what: JobSpec = LEARNS, at: float = 0.0) -> None:
    world.tell(Submitted(at, job(name), what))
    world.answer_all()


def later(world: FakeEngine, at: float) -> dict[str, Wish]:
    world.tell(Woke(at))
    world.answer_all()
    return {str(name): wish for name, wish in standing(world.core._plan).items()}


def measure(world: FakeEngine, name: str, wish: Wish, step_s: float = 0.1) -> None:
    world.tell(
        Measured(
            world.now,
            run(name),
            wish.workers,
            step_s,
            noise=1e5,
            kind=wish.kind,
            local_batch=128,
            sync_s=0.0 if wish.workers == 1 else 0.01,
            epochs=0.5,
        )
    )


def test_a_job_starts_at_once_on_the_kind_that_suits_it_best() -> None:
    world = engine()
    submit(world, "a", at=3.0)

    held = standing(world.core._plan)[job("a")]
    assert held.kind == "new"
    assert held.workers > 1


def test_jobs_that_come_together_share() -> None:
    world = engine()
    for name in "abcd":
        submit(world, name)

    held = later(world, 120.0)
    assert set(held) == set("abcd")


def test_a_run_is_not_changed_for_what_does_not_pay() -> None:
    world = engine()
    dear = replace(LEARNS, costs=Costs(restart_s=3000.0, resize_s=3000.0))
    submit(world, "a", dear)
    before = later(world, 60.0)["a"]
    submit(world, "b", at=100.0)
    world.end(run("b"), Outcome.SUCCEEDED)

    assert later(world, 220.0)["a"] == before


def test_it_says_what_a_change_is_worth() -> None:
    world = engine()
    for name in "abcdefgh":
        submit(world, name)
    for name, wish in later(world, 60.0).items():
        measure(world, name, wish)
    for name in "abcdefg":
        world.end(run(name), Outcome.SUCCEEDED)
    told = [
        decision.reason
        for at in range(260, 40_000, 600)
        for decision in _decided(world, float(at))
        if isinstance(decision, Reshape | SetAside)
    ]
    assert any(re.search(r"saves \d+ min, costs 30 s", text) for text in told)


def _decided(world: FakeEngine, at: float) -> list[object]:
    world.tell(Woke(at))
    found: list[object] = list(world.core.decisions)
    world.answer_all()
    return found


def test_a_rigid_job_of_which_nothing_is_known_runs_as_it_asks() -> None:
    world = engine()
    submit(world, "a", spec(2))
    submit(world, "b", spec(4))

    gpus = {run.job.id: run.gpu_milli for run in world.core.runs.values()}
    assert gpus == {job("a"): 2000, job("b"): 4000}


UNSAVED = spec(8, workers=2, costs=Costs(checkpoint_every_s=math.inf))


@pytest.mark.parametrize(
    ("first", "second", "aside"),
    [
        (UNSAVED, spec(8, workers=2), False),
        (UNSAVED, spec(8, 10.0, workers=2), False),
        (UNSAVED, spec(8, workers=2, priority=60), True),
        (UNSAVED, spec(8, workers=2, queue="team"), True),
        # It has had 32 GPU hours, and a stop costs it nothing.
        (replace(UNSAVED, costs=Costs()), spec(8, 10.0, workers=2), True),
        (replace(UNSAVED, costs=Costs()), spec(8, 100_000.0, workers=2), False),
        # A stop costs it about 5 minutes: too much for an equal before it had 100.
        (replace(UNSAVED, costs=Costs(600.0)), spec(8, 10.0, workers=2), True),
        (replace(UNSAVED, costs=Costs(3600.0)), spec(8, 10.0, workers=2), False),
    ],
)
def test_a_rigid_run_is_set_aside_for_who_counts_more_or_if_it_costs_little(
    first: JobSpec, second: JobSpec, *, aside: bool
) -> None:
    world = FakeEngine(core_with(Roost(), *(node(f"n{index}", 8) for index in range(2))))
    world.tell(QueueChanged(0.0, queue("team", quota_milli=16_000)))
    submit(world, "old", first)
    submit(world, "new", second, at=7200.0)
    for at in range(7260, 7260 + 1800, 60):
        later(world, float(at))

    assert world.core.jobs[job("old")].waiting == aside


def test_every_step_of_priority_counts_double_unless_there_are_many() -> None:
    world = engine()
    for name, priority in (("a", 50), ("b", 51), ("c", 50)):
        submit(world, name, replace(LEARNS, priority=priority))
    few = _weights(list(world.core.jobs.values()), [100.0] * 3, [50.0] * 3, 3.0, 0.0)
    submit(world, "d", replace(LEARNS, priority=100))
    many = _weights(list(world.core.jobs.values()), [100.0] * 4, [50.0] * 4, 4.0, 0.0)

    assert few.tolist() == [1.0, 2.0, 1.0]
    assert many.max() == pytest.approx(1024.0)
    assert many[0] < many[1] < many[3]


def test_a_kind_that_will_not_do_is_not_given() -> None:
    world = engine()
    picky = replace(LEARNS, resources=Resources(kinds=("old",)))
    submit(world, "a", picky)

    assert later(world, 60.0)["a"].kind == "old"


def test_who_will_be_the_last_of_all_does_not_wait_for_the_short() -> None:
    world = engine()
    for name in ("a", "b", "c", "d"):
        submit(world, name)
    jobs = list(world.core.jobs.values())

    short_first = _weights(jobs, [400.0, 100.0, 200.0, 300.0], [200.0] * 4, 4.0, 1.0)
    last = _weights(jobs, [4000.0, 100.0, 200.0, 300.0], [2000.0, 50.0, 90.0, 150.0], 4.0, 1.0)

    assert short_first.tolist() == [0.25, 1.75, 1.25, 0.75]
    assert last.tolist() == [0.5, 1.75, 1.25, 0.75]


def test_without_any_gpu_a_job_waits() -> None:
    world = FakeEngine(core_with(Roost(), node("cpus", 0)))

    submit(world, "a")

    assert world.core.jobs[job("a")].waiting


def test_limits_of_queues_hold() -> None:
    world = engine()
    world.tell(QueueChanged(0.0, queue("small", limit_milli=2000)))
    submit(world, "a", replace(LEARNS, queue=QueueId("small")))

    assert later(world, 60.0)["a"].workers <= 2


def test_who_was_promised_room_gets_it() -> None:
    world = engine()
    world.tell(QueueChanged(0.0, queue("team", quota_milli=8000)))
    for index in range(16):
        submit(world, f"x{index}", spec(1), at=float(index))
    submit(world, "mine", spec(4, queue="team"), at=20.0)

    held = {**later(world, 90.0), **later(world, 180.0)}
    assert "mine" in held


def test_without_the_library_other_jobs_tell_nothing() -> None:
    world = engine(Roost(library=False))
    submit(world, "a")
    first = later(world, 60.0)["a"]
    measure(world, "a", first, step_s=5.0)
    submit(world, "b", at=100.0)
    notes = world.core.memo["roost"]
    rates = notes.prospects._rates[job("b")][1]
    fresh = engine(Roost(library=False))
    submit(fresh, "b")

    assert np.array_equal(rates, fresh.core.memo["roost"].prospects._rates[job("b")][1])


def test_sizes_are_all_within_a_node_and_coarser_beyond() -> None:
    assert offered(8, 24) == [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24]
    assert offered(4, 3) == [1, 2, 3]


def test_worth_bends_but_agrees_at_the_usual_pace() -> None:
    for bend in (1.0, 0.5, 0.0, -0.5):
        one, two = worth(np.array([1.0, 2.0]), bend)
        assert one == pytest.approx(1.0)
        assert 1.0 < two <= 2.0


@pytest.mark.parametrize("wrong", ["toll=-1", "least_s=0", "bend=2", "probe_s=-1"])
def test_settings_that_make_no_sense_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidSpec):
        policy(f"roost:{wrong}")
