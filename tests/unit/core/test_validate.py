"""The checks themselves: whatever is put wrong in a core is found, and said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roost.core import Core, JobState, Launch, Part, Started, Submitted
from roost.policies import policy
from roost.testing.builders import core_with, held, job, node, queue, run, shared, spec
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine

A, B, C = job("a"), job("b"), job("c")


def small_world() -> Core:
    """One run that leaves, one that is reserved, one that shares, and one job that waits."""
    core = core_with(policy("srtf"), node("n0", 1, cpu_milli=1000), node("n1", 1))
    core.handle(Submitted(0.0, A, spec(1, 900.0, cpu_milli=500)))
    core.handle(Submitted(0.0, B, spec(0.5, 5.0, preemptible=False)))
    core.handle(Started(0.0, run("a")), Started(0.0, run("b")))
    core.handle(
        Submitted(1.0, C, spec(1, 10.0, cpu_milli=500)), Submitted(1.0, job("d"), spec(1, 99.0))
    )
    return core


def overlap(core: Core) -> None:
    core.runs[run("c")].after.clear()


def lose_a_job(core: Core) -> None:
    core.waiting.leave(core.jobs[job("d")], core.now)


def double_a_job(core: Core) -> None:
    core.waiting.join(core.jobs[job("d")], core.now)


def split_a_gang(core: Core) -> None:
    core.runs[run("c")].allocation = held("n0", ())


def lower_a_limit(core: Core) -> None:
    tenant = next(iter(core.queues.values()))
    lower = queue(limit_milli=tenant.used_milli - 1)
    core.waiting.regroup(core.now, lambda: setattr(tenant, "spec", lower))


TAMPERING: list[tuple[Callable[[Core], object], str]] = [
    (overlap, "processes use 2000 milli-GPUs of GPU 0 on n0"),
    (lose_a_job, "job d .* stands in line 0 times"),
    (double_a_job, "job d .* stands in line 2 times"),
    (split_a_gang, "does not have 1 GPUs for each worker"),
    (lower_a_limit, "its limit is"),
    (lambda core: setattr(core.ledger.order[0], "taken", 0), "n0: taken is 0"),
    (lambda core: setattr(core.ledger.order[0], "cpu_left", 0), "n0: cpu_left is 0"),
    (lambda core: setattr(core.ledger.order[1].shared[0], "left_milli", 1), "n1: shared is"),
    (lambda core: setattr(core.ledger, "free_milli", 7), "free_milli is 7"),
    (lambda core: setattr(core.ledger, "full", 3), "full is 3"),
    (lambda core: setattr(core.ledger, "sharing", 0), "sharing is 0"),
    (lambda core: core.ledger.at_least.__setitem__(1, 3), "at_least is"),
    (lambda core: core.ledger.order[0].runs.clear(), r"node n0 lists \[\]"),
    (lambda core: setattr(core.state, "finished", 1), "1 jobs are counted as over, 0 are"),
    (lambda core: setattr(core.jobs[A], "state", JobState.QUEUED), "job a is queued"),
    (lambda core: setattr(core.jobs[A], "run", None), "run a#1 belongs to a"),
    (lambda core: setattr(core.waiting, "count", 5), "5 jobs are counted as waiting"),
    (lambda core: setattr(core.runs[run("a")], "leaving", ()), "a#1 is STOPPING and leaves"),
    (lambda core: core.jobs[C].queue.__setattr__("used_milli", 0), "uses"),
]


def test_a_sound_core_passes() -> None:
    core = small_world()

    assert core.runs[run("a")].leaves
    assert core.runs[run("c")].after == {run("a")}
    assert core.waiting.count == 1
    validate(core)


@pytest.mark.parametrize(("tamper", "found"), TAMPERING)
def test_what_is_put_wrong_is_found(tamper: Callable[[Core], object], found: str) -> None:
    core = small_world()
    tamper(core)

    with pytest.raises(AssertionError, match=found):
        validate(core)


def test_a_limit_that_was_lowered_may_be_let_pass() -> None:
    core = small_world()
    lower_a_limit(core)

    validate(core, limits=False)


def test_a_fake_engine_refuses_to_put_two_runs_on_one_device() -> None:
    engine = FakeEngine(small_world())
    wanted = spec(1, 10.0)
    engine._begin(Launch(run("a"), wanted, held("n0", (0,))))

    with pytest.raises(AssertionError, match="over-commits: 2000 milli-GPUs"):
        engine._begin(Launch(run("c"), wanted, held("n0", (0,))))


def test_parts_and_allocations_are_built_as_the_core_builds_them() -> None:
    core = small_world()

    assert core.runs[run("b")].allocation == shared("n1", 0, 500)
    assert core.runs[run("a")].allocation.parts == (Part(node("n0").id, (0,)),)
