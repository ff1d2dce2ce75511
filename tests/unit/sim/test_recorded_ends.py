"""Jobs that failed, were retried or were killed by their users when the trace was recorded."""

from __future__ import annotations

import math

from tests.oracles.played import cluster, finish, job, play, rebooted, simulation

from roost.core import Costs, Outcome
from roost.policies.fifo import fifo


def test_a_job_that_was_killed_is_cancelled_after_as_much_work() -> None:
    played = play(
        fifo, job("a", 0, 40, outcome=Outcome.CANCELLED), job("b", 1, 5), nodes=cluster(1)
    )

    assert played.times == {"a": (0, 40), "b": (40, 45)}
    assert played.rows["a"].outcome == "cancelled"


def test_a_job_that_failed_fails_after_as_much_work() -> None:
    played = play(fifo, job("a", 0, 40, outcome=Outcome.FAILED), nodes=cluster(1))

    assert played.times == {"a": (0, 40)}
    assert played.rows["a"].outcome == "failed"


def test_attempts_end_where_they_failed_and_are_retried() -> None:
    # Attempts fail at 30 and 50 s of work; restarts take 5 s: 0-30, 35-55, 60-110.
    played = play(
        fifo,
        job("a", 0, 100, fails_at_s=(30.0, 50.0), max_retries=2, costs=Costs(restart_s=5)),
        nodes=cluster(1),
    )

    assert played.began == {"a": [0, 35, 60]}
    assert played.diary.left == {"a": [(30, "failed"), (55, "failed"), (110, "succeeded")]}
    assert played.rows["a"].outcome == "succeeded"
    assert played.rows["a"].runs == 3


def test_when_retries_are_spent_the_job_is_over() -> None:
    played = play(fifo, job("a", 0, 100, fails_at_s=(30.0, 50.0), max_retries=1), nodes=cluster(1))

    assert played.times == {"a": (0, 50)}
    assert played.rows["a"].outcome == "failed"
    assert played.rows["a"].runs == 2


def test_the_last_attempt_may_fail_too() -> None:
    played = play(
        fifo,
        job("a", 0, 100, fails_at_s=(30.0,), max_retries=1, outcome=Outcome.FAILED),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 100)}
    assert played.rows["a"].outcome == "failed"


def test_a_failed_attempt_gives_way_to_who_came_earlier() -> None:
    # a has priority over b only by arrival; when it fails at 30 it is queued again as the older.
    played = play(
        fifo,
        job("a", 0, 50, fails_at_s=(30.0,), max_retries=1),
        job("b", 1, 10),
        nodes=cluster(1),
    )

    assert played.began["a"] == [0, 30]
    assert played.times["b"] == (50, 60)


def test_a_node_lost_in_between_does_not_skip_a_recorded_failure() -> None:
    # Nothing saved at 20: the first attempt begins again, fails after 30 s at 50; what was done
    # then counts: 70 s are left.
    (spec,) = cluster(1)
    never = Costs(checkpoint_every_s=math.inf)
    sim = simulation(
        fifo, [job("a", 0, 100, fails_at_s=(30.0,), max_retries=1, costs=never)], [spec]
    )
    for event in rebooted(20, spec):
        sim.world.schedule(event)
    played = finish(sim)

    assert played.diary.left["a"] == [(20, "lost"), (50, "failed"), (120, "succeeded")]


def test_a_job_without_work_is_over_as_soon_as_it_starts() -> None:
    played = play(fifo, job("a", 0, 10), job("nothing", 3, 0), nodes=cluster(1))

    assert played.times["nothing"] == (10, 10)
    assert played.rows["nothing"].outcome == "succeeded"
