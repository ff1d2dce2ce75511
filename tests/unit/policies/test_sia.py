"""Sia: what its integer program chooses, and what stays out of it."""

from __future__ import annotations

import pytest

from roost.core import Costs, Measured, QueueChanged, Submitted, Training, Woke
from roost.core.spec import JobSpec, Range
from roost.errors import InvalidSpec
from roost.policies.kit.costs import RestartCounts
from roost.policies.kit.moves import Wish, standing
from roost.policies.kit.sizes import offered_sizes
from roost.policies.sia import Sia
from roost.testing.builders import core_with, job, node, queue, run, spec
from roost.testing.engine import FakeEngine

TRAINING = Training(
    batch=128, batch_max=4096, epochs=10, local_min=32, alone=(("old", 100.0), ("new", 400.0))
)
LEARNS = JobSpec(Range(1, 64), training=TRAINING, costs=Costs(restart_s=30.0, resize_s=30.0))


def engine(*, old: int = 2, new: int = 1) -> FakeEngine:
    nodes = [node(f"old{index}", 4, kind="old") for index in range(old)]
    nodes += [node(f"new{index}", 8, kind="new") for index in range(new)]
    return FakeEngine(core_with(Sia(), *nodes))


def submit(world: FakeEngine, name: str, what: JobSpec = LEARNS, at: float = 0.0) -> None:
    world.tell(Submitted(at, job(name), what))


def decide(world: FakeEngine, at: float) -> dict[str, Wish]:
    """Let a round begin, and everything that it asks for be done at once."""
    world.tell(Woke(at))
    world.answer_all()
    return {str(name): wish for name, wish in standing(world.core._plan).items()}


def measure(world: FakeEngine, name: str, kind: str, workers: int, step_s: float = 0.1) -> None:
    seen = Measured(
        world.now,
        run(name),
        workers,
        step_s,
        noise=1e5,
        kind=kind,
        local_batch=128,
        sync_s=0.0 if workers == 1 else 0.01,
    )
    world.tell(seen)


def test_the_sizes_of_the_authors_cluster() -> None:
    nodes = [node(f"t{index}", 4, kind="T4") for index in range(6)]
    nodes += [node(f"a{index}", 8, kind="A100") for index in range(2)]
    nodes += [node(f"r{index}", 8, kind="RTX") for index in range(3)]
    offered = offered_sizes(core_with(Sia(), *nodes)._plan)
    assert {kind: found.gpus for kind, found in offered.items()} == {
        "T4": (1, 2, 4, 8, 12, 16, 20, 24),
        "A100": (1, 2, 4, 8, 16),
        "RTX": (1, 2, 4, 8, 16, 24),
    }


def test_a_new_job_gets_one_gpu_and_then_twice_what_it_was_seen_with() -> None:
    world = engine()
    submit(world, "x")
    assert [wish.workers for wish in decide(world, 60.0).values()] == [1]
    where = decide(world, 120.0)["x"]
    assert where.workers == 1  # nothing was measured yet
    measure(world, "x", where.kind, 1)
    assert decide(world, 3600.0)["x"].workers == 2
    measure(world, "x", decide(world, 3660.0)["x"].kind, 2)
    assert decide(world, 7200.0)["x"] == Wish("new", 4)


def test_a_job_goes_to_the_faster_kind_once_something_is_known_of_it() -> None:
    world = engine()
    submit(world, "x")
    decide(world, 60.0)
    measure(world, "x", "old", 1)
    assert decide(world, 3600.0)["x"].kind == "new"


def test_decisions_fall_at_the_beginning_of_rounds_only() -> None:
    world = engine()
    submit(world, "x", at=61.0)
    assert not world.core.runs
    found = world.core.explain(job("x"))
    assert found is not None
    assert "next round" in found.reason.text
    assert world.core.wake_at == 120.0


def test_few_jobs_with_more_cost_less_than_all_with_their_least() -> None:
    """Two jobs with one GPU cost 1 + 1, one with two and one that waits 0.71 + 1.1."""
    world = engine(old=0)
    for name in "abcdefgh":
        submit(world, name)
    assert sorted(decide(world, 60.0)) == list("abcdefgh")
    for name in "abcdefgh":
        measure(world, name, "new", 1)
    found = decide(world, 36000.0)
    assert [wish.workers for wish in found.values()] == [2] * 4


def test_a_young_job_is_held_back_by_what_its_restarts_cost() -> None:
    restarts = RestartCounts()
    core = core_with(Sia(), node("n0"))
    core.handle(Submitted(0.0, job("x"), LEARNS))
    one = core.jobs[job("x")]
    restarts.look({job("x"): Wish("a", 1)})
    assert restarts.factor(one, 20.0, 30.0) == 1.0
    assert restarts.factor(one, 90.0, 30.0) == pytest.approx(90 / 120)
    restarts.look({job("x"): Wish("a", 2)})
    assert restarts.factor(one, 90.0, 30.0) == pytest.approx(60 / 120)
    restarts.look({})
    restarts.look({job("x"): Wish("a", 2)})  # back again: that was a restart, too
    assert restarts.factor(one, 90.0, 30.0) == pytest.approx(30 / 120)


def test_rigid_jobs_and_jobs_that_do_not_train_take_part() -> None:
    world = engine()
    submit(world, "rigid", spec(1, workers=3))
    submit(world, "picky", spec(2, workers=(1, 4), kinds=("old",)))
    submit(world, "share", spec(0.5))
    submit(world, "cpu", spec(0, cpu_milli=10))
    found = decide(world, 60.0)
    assert found["rigid"].workers == 3
    assert found["picky"].kind == "old"
    assert {"share", "cpu"} <= set(found)


def test_a_queue_at_its_limit_waits_without_taking_room_from_others() -> None:
    world = engine(old=0)
    world.tell(QueueChanged(0.0, queue("red", limit_milli=2000)))
    submit(world, "r1", spec(1, workers=2, queue="red"))
    submit(world, "r2", spec(1, workers=2, queue="red"))
    submit(world, "other", spec(1, workers=6))
    assert set(decide(world, 60.0)) == {"r1", "other"}


def test_who_waits_is_told_that_others_make_more_of_the_gpus() -> None:
    world = engine(old=0)
    submit(world, "x", spec(1, workers=8))
    decide(world, 60.0)
    submit(world, "y", spec(1, workers=8), at=61.0)
    decide(world, 120.0)
    found = world.core.explain(job("y"))
    assert found is not None
    assert "others" in found.reason.text


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="round_s"):
        Sia(round_s=0.0)
    with pytest.raises(InvalidSpec, match="p must"):
        Sia(p=0.5)
