"""When a job will start where there are too many to simulate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roost.core import Core, JobSpec, Outcome, QueueChanged, Started, Submitted, SuspendRequested
from roost.core.events import Exited, MaintenancePlanned
from roost.core.snapshot import digest
from roost.jobs.backlog import ESTIMATE, SIMULATED, Backlog, too_many
from roost.jobs.explain import explain, plan
from roost.placement import placer
from roost.policies import policy
from roost.testing.builders import core_with, job, node, queue, run, spec

FIRST_FIT = placer("first-fit")


def crowded(waiting: int, *more: JobSpec, name: str = "fifo", run_s: float | None = 100.0) -> Core:
    """Ten GPUs that run jobs of 100 s, and very many of these wait; then those named x0, x1, ..."""
    core = core_with(policy(name), node("n0", 10))
    core.handle(*(Submitted(0.0, job(f"r{n}"), spec(1, 100.0)) for n in range(10)))
    core.handle(*(Started(0.0, run(f"r{n}")) for n in range(10)))
    core.handle(*(Submitted(0.0, job(f"j{n}"), spec(1, run_s)) for n in range(waiting)))
    core.handle(*(Submitted(1.0, job(f"x{n}"), wanted) for n, wanted in enumerate(more)))
    return core


def told(core: Core, name: str, now: float = 1.0) -> dict[str, Any]:
    before = digest(core)
    found = explain(core, job(name), core.policy, FIRST_FIT, now)
    assert digest(core) == before
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_few_jobs_are_simulated_and_many_are_not() -> None:
    few, many = crowded(SIMULATED - 10), crowded(SIMULATED - 9)

    assert (too_many(few), too_many(many)) == (False, True)
    assert ESTIMATE not in told(few, "j0")["assumptions"]
    assert ESTIMATE in told(many, "j0")["assumptions"]


def test_an_estimate_counts_those_ahead_and_their_work() -> None:
    core = crowded(1000)

    first, middle, last = (told(core, name) for name in ("j0", "j500", "j999"))

    assert (first["ahead_count"], first["starts_at"], first["ends_at"]) == (0, 100.0, 200.0)
    assert (middle["ahead_count"], middle["starts_at"]) == (500, 100.0 + 50 * 100.0)
    assert (last["ahead_count"], last["starts_at"]) == (999, 100.0 + 99 * 100.0)
    assert [other["job"] for other in middle["ahead"][:2]] == ["j0", "j1"]
    assert middle["starts_between"] == [
        pytest.approx(1.0 + 0.7 * (99 + 5000)),
        pytest.approx(1.0 + 1.5 * (99 + 5000)),
    ]
    assert [holder["job"] for holder in first["held_by"]] == [f"r{n}" for n in range(5)]
    assert first["held_by"][0]["ends_at"] == 100.0
    assert first["remedies"] == []


def test_of_very_many_only_some_are_looked_at() -> None:
    core = crowded(20_000)
    waits = core.jobs[job("j19999")]

    backlog = Backlog.of(core, waits, 1.0)

    assert sum(map(len, backlog.ahead)) <= 2000 < backlog.ahead_count == 19_999
    # 10 x 99 s are left of the runs, 100 s of each that goes first; ten at a time.
    assert backlog.starts_at() == pytest.approx(1.0 + 99 + 19_999 * 100 / 10, rel=1e-3)


def test_jobs_of_unknown_length_are_taken_to_last_as_long_as_usual() -> None:
    core = crowded(300, run_s=None)
    for number in range(3):
        core.handle(Exited(100.0, run(f"r{number}"), Outcome.SUCCEEDED, 100.0))
        core.handle(Started(100.0, run(f"j{number}")))

    found = told(core, "j299", now=100.0)

    assert "jobs of unknown length: taken as 100 s, the median of 3 jobs" in str(found)
    assert found["starts_at"] == pytest.approx(100.0 + 29 * 100, rel=0.01)


def test_the_limit_of_a_queue_counts() -> None:
    core = core_with(policy("fifo"), node("n0", 10))
    core.handle(QueueChanged(0.0, queue("red", limit_milli=1000)))
    core.handle(Submitted(0.0, job("r0"), spec(1, 1000.0, queue="red")))
    core.handle(*(Submitted(0.0, job(f"j{n}"), spec(1, 100.0)) for n in range(300)))
    core.handle(*(Submitted(1.0, job(f"q{n}"), spec(1, 1000.0, queue="red")) for n in range(20)))
    core.handle(Submitted(1.0, job("last"), spec(1, 50.0)))
    later = core.jobs[job("q19")]

    # Those of the queue run one after the other; others are not kept waiting for that.
    assert (Backlog.of(core, later, 1.0).starts_at() or 0) >= 1.0 + 19 * 1000
    assert told(core, "last")["starts_at"] == pytest.approx(1 + 100 * (300 - 9) / 9, rel=0.1)


def test_a_job_that_runs_or_is_held_or_never_fits() -> None:
    core = crowded(300, spec(11, 10.0))
    core.handle(SuspendRequested(2.0, job("j5")))

    running, held, never = told(core, "r0", 2.0), told(core, "j5", 2.0), told(core, "x0", 2.0)

    assert (running["cause"], running["starts_at"], running["ends_at"]) == ("running", 0.0, 100.0)
    assert (held["cause"], held["starts_at"]) == ("held", None)
    assert (never["starts_at"], never["starts_between"]) == (None, [None, None])


# -- of jobs that were not submitted ---------------------------------------------------------------


def planned(core: Core, wanted: JobSpec, now: float = 1.0) -> dict[str, Any]:
    before = digest(core)
    found = plan(core, wanted, core.policy, FIRST_FIT, now)
    assert digest(core) == before
    return found


def test_a_plan_is_an_estimate_too() -> None:
    found = planned(crowded(1000), spec(1, 50.0))

    assert (found["fits"], found["reason"]) == (False, "no GPU is free")
    assert (found["starts_at"], found["ends_at"]) == (10_100.0, 10_150.0)
    assert ESTIMATE in found["assumptions"]


def test_a_plan_says_where_there_is_room() -> None:
    core = core_with(policy("backfill"), node("n0", 300), node("n1", 4))
    for number in range(230):
        core.handle(Submitted(0.0, job(f"r{number}"), spec(1, 100.0)))
        core.handle(Started(0.0, run(f"r{number}")))

    room, limit = planned(core, spec(2, 50.0)), queue("red", limit_milli=1000)
    core.handle(QueueChanged(1.0, limit), MaintenancePlanned(1.0, node("n0", 300).id, 30.0, 60.0))
    late, much = planned(core, spec(2, 50.0)), planned(core, spec(2, 50.0, queue="red"))

    assert (room["fits"], room["starts_at"], room["reason"]) == (
        True,
        1.0,
        "there is room for it now",
    )
    assert room["placement"]
    assert not late["fits"]
    assert "maintenance" in late["reason"]
    assert much["never"]


def test_a_key_that_fails_costs_no_answer() -> None:
    core = crowded(300)

    def fails(_job: object) -> float:
        raise ValueError

    core.waiting.key = fails

    assert planned(core, spec(1, 50.0))["starts_at"] == pytest.approx(3100.0)
