"""Jobs with pipelines: policies know their bubbles, and give them whole replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from roost.core import Costs, Measured, Plan, Submitted, Training, Woke
from roost.core.events import Outcome
from roost.core.spec import JobSpec, Range, Resources
from roost.perf.goodput import tune
from roost.perf.hybrid import HybridModel, ReplicaSplit
from roost.perf.kinds import limits
from roost.perf.steps import StepModel
from roost.policies.kit.moves import standing
from roost.policies.kit.prospects import Prospects
from roost.policies.kit.sizes import size_table
from roost.policies.pollux import Pollux
from roost.policies.roost import Roost
from roost.policies.sia import Sia
from roost.testing.builders import core_with, job, node, run
from roost.testing.engine import FakeEngine

#: Four replicas are the fastest at a batch of 64: then the network takes more than a bubble less.
TRUTH = HybridModel(ReplicaSplit(1, 4, 2), StepModel(0.05, 0.1, 0.5, 0.25, 0.3, 0.1, 1.5))
REPLICAS = np.arange(1, 9)
FIXED = Training(64, pipeline=4, micro=2)
ADAPTS = replace(FIXED, batch_max=1024)
JOB = JobSpec(
    Range(1, 8),
    Resources(gpus=4),
    training=FIXED,
    user="ann",
    application="llm",
    costs=Costs(restart_s=30.0, resize_s=30.0),
)
SIZES = ((1, 1), (1, 2), (2, 4), (4, 8))


def engine(policy: Callable[[Plan], None]) -> FakeEngine:
    """Two replicas have room on each of four nodes."""
    return FakeEngine(core_with(policy, *(node(f"n{index}", 8) for index in range(4))))


def measure(
    world: FakeEngine, name: str, size: tuple[int, int], noise: float | None, local: int = 0
) -> None:
    """Let a program tell of a step at nodes and replicas; it chooses the best batch by itself."""
    own, (nodes, replicas) = world.core.jobs[job(name)], size
    assert own.run is not None
    assert own.spec.training is not None
    if not local:
        where = np.array([nodes]), np.array([replicas])
        local = tune(TRUTH, noise or 0.0, limits(own.spec.training, "gpu"), *where).local.item()
    step = float(TRUTH.step_s(nodes, replicas, local))
    seen = Measured(world.now, own.run.id, replicas, step, noise=noise, kind="gpu", nodes=nodes)
    sync = step - float(TRUTH.compute_s(local))
    world.tell(replace(seen, local_batch=local, sync_s=sync))
    world.answer_all()


def grown(world: FakeEngine, *names: str, noise: float | None = None) -> dict[str, int]:
    """Replicas of each job after a few hours, over which they tell how fast they are."""
    for at in range(600, 12_000, 600):
        world.tell(Woke(float(at)))
        world.answer_all()
        for name in names:
            own = world.core.jobs[job(name)].run
            if own is not None:
                parts = own.allocation.parts
                assert all(len(part.gpus) == 4 * part.workers for part in parts)
                measure(world, name, (len(parts), own.allocation.workers), noise)
    return {str(name): wish.workers for name, wish in standing(world.core._plan).items()}


def best(training: Training, noise: float) -> int:
    found = tune(TRUTH, noise, limits(training, "gpu"), -(-REPLICAS // 2), REPLICAS)
    return int(REPLICAS[found.rate.argmax()])


@pytest.mark.parametrize("policy", [Sia(), Pollux()])
def test_who_grows_by_what_was_measured_ends_at_the_best_size(policy: Sia | Pollux) -> None:
    world = engine(policy)
    world.tell(Submitted(0.0, job("a"), JOB))

    assert grown(world, "a") == {"a": best(FIXED, 0.0)} == {"a": 4}


@pytest.mark.parametrize("policy", [Roost(), Sia(), Pollux()])
def test_who_may_choose_its_batch_fills_the_pipelines_of_more_replicas(
    policy: Roost | Sia | Pollux,
) -> None:
    world = engine(policy)
    world.tell(Submitted(0.0, job("a"), replace(JOB, training=ADAPTS)))

    assert grown(world, "a", noise=500.0) == {"a": best(ADAPTS, 500.0)} == {"a": 8}


@pytest.mark.parametrize("policy", [Roost(), Sia(), Pollux()])
def test_two_share_the_nodes_by_whole_replicas(policy: Roost | Sia | Pollux) -> None:
    world = engine(policy)
    for name in ("a", "b"):
        world.tell(Submitted(0.0, job(name), JOB))

    found = grown(world, "a", "b")
    assert min(found["a"], found["b"]) >= 2
    assert found["a"] + found["b"] <= 8


def test_roost_starts_a_job_at_the_best_size_of_its_application() -> None:
    world = engine(Roost())
    world.tell(Submitted(0.0, job("first"), JOB))
    world.answer_all()
    for size in SIZES:
        measure(world, "first", size, noise=None)
    world.end(run("first"), Outcome.SUCCEEDED)
    world.tell(Submitted(100.0, job("next"), JOB))
    world.answer_all()

    found = standing(world.core._plan)[job("next")]
    assert found.workers == best(FIXED, 0.0)


def test_rates_are_those_of_the_pipeline_and_none_of_torn_replicas() -> None:
    world = engine(Roost())
    world.tell(Submitted(0.0, job("a"), replace(JOB, training=ADAPTS)))
    world.answer_all()
    for size in SIZES:
        measure(world, "a", size, 500.0, local=16)
    own = world.core.jobs[job("a")]
    table = size_table(world.core._plan, [own])
    rates = Prospects(library=False).rates(own, table)

    whole = table.gpus[:-1] % 4 == 0
    assert ((rates[:-1] > 0) == whole).all()
    replicas = table.gpus[:-1][whole] // 4
    truth = tune(TRUTH, 500.0, limits(ADAPTS, "gpu"), -(-replicas // 2), replicas).rate
    assert rates[:-1][whole].tolist() == pytest.approx(truth.tolist(), rel=0.05)
