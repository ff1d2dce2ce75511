"""Very many waiting jobs: what is not asked of a policy, and what it does not look at."""

from __future__ import annotations

import pytest

from roost.core import Core, Outcome, Plan, Started, Submitted, Woke
from roost.core.events import Exited
from roost.jobs.policy_guard import PolicyGuard
from roost.policies import policy
from roost.policies.kit.contenders import WEIGHED, contest
from roost.testing.builders import core_with, job, node, run, spec


class Counted:
    """A policy that counts how often it is asked."""

    def __init__(self, name: str) -> None:
        self.policy = policy(name)
        self.asked = 0

    def __call__(self, plan: Plan) -> None:
        """Ask it."""
        self.asked += 1
        self.policy(plan)

    def ignores(self, plan: Plan, newcomer: object) -> bool:
        """As it says."""
        ignores = self.policy.ignores  # type: ignore[attr-defined]
        return bool(ignores(plan, newcomer))


def deep(name: str, waiting: int = 1500) -> tuple[Core, Counted]:
    """Two GPUs that are taken, and very many jobs of one GPU."""
    counted = Counted(name)
    core = core_with(PolicyGuard(counted), node("n0", 2))
    core.handle(*(Submitted(0.0, job(f"r{n}"), spec(1, 50.0)) for n in range(2)))
    core.handle(*(Started(0.0, run(f"r{n}")) for n in range(2)))
    core.handle(*(Submitted(1.0, job(f"j{n}"), spec(1, 100.0)) for n in range(waiting)))
    return core, counted


@pytest.mark.parametrize("name", ["roost", "backfill"])
def test_a_newcomer_behind_many_others_costs_no_decision(name: str) -> None:
    core, counted = deep(name)
    before = counted.asked

    core.handle(*(Submitted(2.0, job(f"k{n}"), spec(1, 100.0)) for n in range(3)))

    assert counted.asked == before
    assert core.waiting.count == 1503
    found = core.explain(job("k2"))
    assert found is not None
    assert (found.ahead_count, bool(found.reason.text)) == (1502, True)


@pytest.mark.parametrize("name", ["roost", "backfill"])
def test_what_may_start_or_goes_first_is_decided(name: str) -> None:
    core, counted = deep(name)
    before = counted.asked

    core.handle(Submitted(2.0, job("larger"), spec(2, 100.0)))  # the first of its shape
    core.handle(Submitted(3.0, job("late"), spec(1, 100.0)), Woke(3.0))
    assert counted.asked == before + 2

    core.handle(Exited(4.0, run("r0"), Outcome.SUCCEEDED, 4.0))
    assert len(core.runs) == 2, "the next one starts"


def test_few_waiting_jobs_are_always_decided_upon() -> None:
    core, counted = deep("roost", 10)
    before = counted.asked

    core.handle(Submitted(2.0, job("one"), spec(1, 100.0)))

    assert counted.asked == before + 1


def test_a_short_job_of_a_higher_priority_is_decided_upon() -> None:
    core, counted = deep("roost")
    before = counted.asked

    core.handle(Submitted(2.0, job("urgent"), spec(1, 100.0, priority=5)))

    assert counted.asked == before + 1


def test_only_the_first_of_very_many_elastic_jobs_are_weighed() -> None:
    sizes: list[int] = []

    def weigh(plan: Plan) -> None:
        plan.lines(lambda waits: waits.seq, apart=True)
        sizes.append(len(contest(plan, (), 60.0, None).jobs))

    core = core_with(weigh, node("n0", 1))
    elastic = spec(1, 100.0, workers=(1, 4))
    core.handle(*(Submitted(0.0, job(f"e{n}"), elastic) for n in range(WEIGHED)))
    core.handle(*(Submitted(1.0, job(f"f{n}"), elastic) for n in range(100)))

    assert sizes[-2:] == [WEIGHED, WEIGHED]


def test_elastic_jobs_that_come_all_the_time_are_weighed_now_and_then() -> None:
    core = core_with(policy("roost"), node("n0", 4))
    elastic = spec(1, 1000.0, workers=(1, 4))
    core.handle(*(Submitted(0.0, job(f"e{n}"), elastic) for n in range(2 * WEIGHED)))
    core.handle(*(Started(0.0, found.id) for found in list(core.runs.values())))

    for number in range(100):
        now = 1.0 + number / 1000
        core.handle(Exited(now, next(iter(core.runs)), Outcome.SUCCEEDED, 1.0))
        core.handle(*(Started(now, found.id) for found in core.runs.values() if not found.settled))

    notes = core.memo["roost"]
    assert notes.spent_until > core.now, "it has had its share"
    assert core.wake_at <= notes.spent_until, "and goes on soon"
    assert core.runs, "GPUs do not wait for that"
