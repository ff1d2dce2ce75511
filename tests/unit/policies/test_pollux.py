"""Pollux: what it knows of jobs, and what becomes of the places that its search finds."""

from __future__ import annotations

import pytest

from roost.core import Costs, Measured, Submitted, Training, Woke
from roost.core.spec import JobSpec, Range
from roost.errors import InvalidSpec
from roost.policies.kit.moves import Wish, standing
from roost.policies.pollux import Pollux, _mixed
from roost.testing.builders import core_with, job, node, run, spec
from roost.testing.engine import FakeEngine

TRAINING = Training(batch=128, batch_max=4096, epochs=10, local_min=32)
LEARNS = JobSpec(Range(1, 64), training=TRAINING, costs=Costs(restart_s=30.0, resize_s=30.0))


def engine(*sizes: tuple[str, int], policy: Pollux | None = None) -> FakeEngine:
    nodes = [node(f"n{index}", gpus, kind=kind) for index, (kind, gpus) in enumerate(sizes)]
    return FakeEngine(core_with(policy or Pollux(population=30, generations=30), *nodes))


def decide(world: FakeEngine, at: float) -> dict[str, Wish]:
    """Let a round begin, and everything that it asks for be done at once."""
    world.tell(Woke(at))
    world.answer_all()
    return {str(name): wish for name, wish in standing(world.core._plan).items()}


def measure(world: FakeEngine, name: str, kind: str, workers: int, step_s: float = 0.1) -> None:
    sync_s = 0.0 if workers == 1 else 0.01
    world.tell(
        Measured(
            world.now,
            run(name),
            workers,
            step_s,
            noise=1e5,
            kind=kind,
            local_batch=128,
            sync_s=sync_s,
        )
    )


def test_a_new_job_gets_one_gpu_and_then_twice_what_it_was_seen_with() -> None:
    world = engine(("a", 4), ("a", 4))
    world.tell(Submitted(0.0, job("x"), LEARNS))
    assert decide(world, 60.0) == {"x": Wish("a", 1)}
    measure(world, "x", "a", 1)
    assert decide(world, 3600.0) == {"x": Wish("a", 2)}
    measure(world, "x", "a", 2)
    assert decide(world, 7200.0) == {"x": Wish("a", 4)}


def test_all_jobs_get_their_share() -> None:
    world = engine(("a", 4), ("a", 4))
    for name in "xyzw":
        world.tell(Submitted(0.0, job(name), LEARNS))
    decide(world, 60.0)
    for name in "xyzw":
        measure(world, name, "a", 1)
    assert {wish.workers for wish in decide(world, 36000.0).values()} == {2}


def test_of_several_kinds_a_job_keeps_that_of_which_it_has_most() -> None:
    world = engine(("a", 1), ("b", 3))
    world.tell(Submitted(0.0, job("x"), spec(1, workers=(1, 4))))
    assert decide(world, 60.0) == {"x": Wish("b", 3)}


def test_measurements_of_all_kinds_are_mixed_and_the_first_of_a_setting_counts() -> None:
    world = engine(("a", 4), ("b", 4))
    world.tell(Submitted(0.0, job("x"), LEARNS))
    decide(world, 60.0)
    measure(world, "x", "b", 1, 0.3)
    measure(world, "x", "a", 1, 0.1)
    measure(world, "x", "a", 2, 0.2)
    observed = world.core.jobs[job("x")].observed
    assert observed is not None
    assert {(seen.workers, seen.step_s) for seen in _mixed(observed)} == {(1, 0.3), (2, 0.2)}


def test_large_nodes_are_shown_in_pieces() -> None:
    """With pieces of two, a job of four spans them, which a second one then cannot."""
    world = engine(("a", 8), policy=Pollux(population=30, generations=30, piece=2))
    world.tell(Submitted(0.0, job("x"), spec(1, workers=8)))
    assert decide(world, 60.0) == {"x": Wish("a", 8)}


def test_jobs_of_other_shapes_find_room_beside() -> None:
    world = engine(("a", 4))
    world.tell(Submitted(0.0, job("x"), LEARNS))
    decide(world, 60.0)
    measure(world, "x", "a", 1)
    measure(world, "x", "a", 2)
    assert decide(world, 36000.0) == {"x": Wish("a", 4)}
    world.tell(Submitted(36000.0, job("share"), spec(0.5)))
    found = decide(world, 36060.0)
    assert found["x"].workers < 4
    assert found["share"].workers == 1


def test_rigid_gangs_are_whole_or_wait_with_a_reason() -> None:
    world = engine(("a", 4), ("b", 2))
    world.tell(Submitted(0.0, job("x"), spec(1, workers=3, kinds=("a",))))
    world.tell(Submitted(0.0, job("y"), spec(1, workers=3)))
    assert decide(world, 60.0) in ({"x": Wish("a", 3)}, {"y": Wish("a", 3)})
    waiting = next(iter(world.core.waiting))
    found = world.core.explain(waiting.id)
    assert found is not None
    assert "others" in found.reason.text


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="population"):
        Pollux(population=0)
    with pytest.raises(InvalidSpec, match="round_s"):
        Pollux(round_s=-1.0)
