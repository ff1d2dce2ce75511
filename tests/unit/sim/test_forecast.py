"""The present in the simulator: what it foresees is what would have happened."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
from tests.support.effort import quick

from roost.core import (
    CancelRequested,
    Core,
    Costs,
    Exited,
    GpuFailed,
    JobId,
    NodeJoined,
    NodeLost,
    Outcome,
    Progressed,
    ResumeRequested,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Way,
    Woke,
)
from roost.core.snapshot import digest, dump
from roost.errors import InvalidSpec, NotFound
from roost.placement import placer
from roost.policies import names, policy
from roost.sim.forecast import Forecast, ForecastTimes, Present, forecast, present_run
from roost.sim.metrics import summarise
from roost.sim.saving import load as load_run
from roost.sim.saving import save
from roost.sim.simulation import Setup, Simulation
from roost.testing.builders import core_with, job, node, run, spec, started
from roost.testing.policies import Scripted
from roost.traces.workload import TraceJob, Workload

FIFO = policy("fifo")
FIRST_FIT = placer("first-fit")
EPOCH = 1_700_000_000.0


def foreseen(core: Core, **more: Any) -> Forecast:
    before = digest(core)
    found = forecast(core, core.policy, FIRST_FIT, **more)
    assert digest(core) == before, "the core itself is not touched"
    return found


def jobs(count: int, seed: int) -> list[TraceJob]:
    """Jobs that all come within 100 s and take exactly as long as they say."""
    chance = random.Random(seed)
    found = []
    for index in range(count):
        work_s = chance.choice((30.0, 100.0, 400.0, 900.0))
        wanted = spec(
            chance.choice((0.5, 1, 1, 2, 4)),
            work_s,
            workers=chance.choice((1, 1, (1, 2), 2)),
            user=chance.choice(("ada", "bob")),
            costs=Costs(restart_s=7.0, resize_s=3.0),
        )
        submitted_at = EPOCH + chance.uniform(0.0, 100.0)
        found.append(TraceJob(job(f"j{index}"), submitted_at, wanted, work_s))
    return found


#: These look at the clock now and then, and a restart sets it anew. AlloX draws lines whenever it
#: is asked, as a forecast does between events: whoever holds GPUs is then nearer to its end.
BY_THE_CLOCK = ("allox", "gittins", "las", "tiresias", "timeslice")
#: These remember rounds, leases or what they learnt, and a restart lets them begin anew.
FORGETFUL = (
    "bundles",
    "dl2",
    "gandiva",
    "gavel",
    "harmony",
    "lookahead",
    "optimus",
    "pollux",
    "roost",
    "sia",
    "themis",
)


def halfway(name: str, after_s: float, seed: int) -> tuple[Forecast, dict[JobId, float]]:
    """What is foreseen in the middle of a run, and when its jobs really end."""
    setup = Setup(
        Workload("w", jobs(40, seed)),
        [node("n0", 4), node("n1", 4)],
        quick(name),
        placer("consolidate"),
    )
    whole = Simulation(setup)
    whole.run(until=EPOCH + after_s)
    present = Present.of(whole.core, EPOCH + after_s)
    found = forecast(present, setup.policy, setup.placer)
    whole.run()
    ends = {name: job.finished_at for name, job in whole.core.jobs.items() if name in found.times}
    return found, {name: at for name, at in ends.items() if at is not None}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(set(names()) - {*BY_THE_CLOCK, *FORGETFUL}))
@pytest.mark.parametrize("after_s", [100.0, 130.0, 700.0])
def test_what_is_foreseen_is_what_happens(name: str, after_s: float, seed: int) -> None:
    found, ends = halfway(name, after_s, seed)

    assert len(ends) == len(found.times) > 10
    assert not found.truncated
    for job_id, at in ends.items():
        assert found.times[job_id].ends_at == pytest.approx(at, abs=1e-3), job_id


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", BY_THE_CLOCK + FORGETFUL)
def test_or_nearly_so_by_policies_that_look_at_the_clock(name: str, seed: int) -> None:
    found, ends = halfway(name, 130.0, seed)

    foreseen_s = sum((found.times[job_id].ends_at or 0.0) - found.now for job_id in ends)
    # A slot or a round that begins anew is up to 300 s long here, half of what a job takes.
    assert foreseen_s == pytest.approx(sum(at - found.now for at in ends.values()), rel=0.2)


def test_those_that_wait_start_when_room_is_there() -> None:
    core = core_with(FIFO, node("n0", 2))
    core.handle(*(Submitted(1.0, job(name), spec(2, 100.0)) for name in "abc"))
    core.handle(Started(2.0, run("a")))

    found = foreseen(core)

    assert found.times == {
        "a": ForecastTimes(2.0, 102.0),
        "b": ForecastTimes(102.0, 202.0),
        "c": ForecastTimes(202.0, 302.0),
    }
    assert found.assumptions == ("no new jobs come, and nothing fails",)
    assert found.places[job("b")].nodes == (node("n0").id,)


def test_reported_progress_counts_and_so_does_its_pace() -> None:
    core = core_with(FIFO, node("n0", 2))
    core.handle(*(Submitted(0.0, job(name), spec(2, 100.0)) for name in "ab"))
    core.handle(Started(0.0, run("a")))
    core.handle(Progressed(10.0, run("a"), 60.0, 0.5))

    found = foreseen(core)

    assert found.times[job("a")].ends_at == 10.0 + 40.0 / 0.5
    assert found.times[job("b")] == ForecastTimes(90.0, 190.0)


def test_now_may_be_later_than_the_last_event() -> None:
    core = core_with(FIFO, node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(2, 100.0)))
    core.handle(Started(0.0, run("a")))

    found = forecast(Present.of(core, 30.0), FIFO, FIRST_FIT)

    assert (found.now, found.times[job("a")]) == (30.0, ForecastTimes(0.0, 100.0))


def test_what_is_left_can_be_stretched() -> None:
    core = core_with(FIFO, node("n0", 2))
    core.handle(*(Submitted(0.0, job(name), spec(2, 100.0)) for name in "ab"))
    core.handle(Started(0.0, run("a")))
    core.handle(Woke(20.0))

    found = foreseen(core, pace=1.5)

    assert found.times == {"a": ForecastTimes(0.0, 140.0), "b": ForecastTimes(140.0, 290.0)}


def unknown_and(core: Core) -> tuple[ForecastTimes, str]:
    found = foreseen(core)
    return found.times[job("x")], found.assumptions[0]


def test_jobs_of_unknown_length_are_assumed_to_take_ten_minutes() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("x"), spec(1)))
    core.handle(Started(0.0, run("x")))

    assert unknown_and(core) == (
        ForecastTimes(0.0, 600.0),
        "1 job of unknown length: taken as 10 minutes, or twice what was done so far",
    )


def test_or_twice_what_they_have_done() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("x"), spec(1)))
    core.handle(Started(0.0, run("x")))
    core.handle(Woke(900.0))

    assert unknown_and(core)[0] == ForecastTimes(0.0, 1800.0)


def test_or_the_median_of_those_that_succeeded() -> None:
    core = core_with(FIFO, node("n0", 1))
    for index, took in enumerate((10.0, 30.0, 1000.0)):
        name = f"j{index}"
        core.handle(Submitted(core.now, job(name), spec(1)))
        core.handle(Started(core.now, run(name)))
        core.handle(Exited(core.now + took, run(name), Outcome.SUCCEEDED))
    now = core.now
    core.handle(Submitted(now, job("x"), spec(1)))

    times, assumption = unknown_and(core)
    assert times == ForecastTimes(now, now + 30.0)
    assert assumption.startswith("1 job of unknown length: taken as 30 s, the median of 3 jobs, or")


def test_endless_declarations_are_no_declarations() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("x"), spec(1, math.inf)))

    assert unknown_and(core)[0] == ForecastTimes(0.0, 600.0)


def test_other_assumptions_are_named_too() -> None:
    core = core_with(FIFO, node("n0", 4), node("n1", 1))
    vision = spec(1, user="ada", application="vision")
    core.handle(Submitted(0.0, job("first"), vision))
    core.handle(Started(0.0, run("first")))
    core.handle(Exited(50.0, run("first"), Outcome.SUCCEEDED, 50.0))
    core.handle(
        NodeLost(50.0, node("n1").id),
        Submitted(50.0, job("next"), vision),
        Submitted(50.0, job("late"), spec(1, 10.0)),
        Submitted(50.0, job("held"), spec(1, 10.0)),
    )
    core.handle(*(Started(50.0, run(name)) for name in ("next", "late", "held")))
    core.handle(SuspendRequested(51.0, job("held")))
    core.handle(Suspended(52.0, run("held"), 1.0))
    core.handle(Woke(90.0))

    found = foreseen(core)

    assert found.assumptions == (
        "1 job taken to run as long as its user's earlier ones",
        "1 job past its declared run time: taken to need a tenth more",
        "1 job held by its user: taken to stay so",
        "1 node out of service: taken to stay so",
        "no new jobs come, and nothing fails",
    )
    assert found.times[job("held")] == ForecastTimes(None, None)
    assert found.times[job("late")].ends_at == pytest.approx(94.0)
    assert found.times[job("next")].ends_at == 100.0
    assert found.truncated


def test_everything_that_is_under_way_comes_to_its_end() -> None:
    """Starting, leaving, reserved, suspending, resizing, backing off, cancelled."""
    script = Scripted()
    core = core_with(script, node("n0", 4), node("n1", 4))
    wanted = {
        "leaves": spec(2, 100.0),
        "grows": spec(1, 100.0, workers=(1, 2)),
        "suspends": spec(1, 100.0),
        "reserved": spec(2, 100.0),
        "starts": spec(1, 100.0),
        "fails": spec(1, 100.0, max_retries=3),
        "cancelled": spec(1, 100.0),
    }
    core.handle(*(Submitted(0.0, job(name), need) for name, need in wanted.items()))

    def place(*names: str) -> Any:
        return lambda plan: [plan.place(plan.jobs[JobId(name)]) for name in names]

    first = ("leaves", "grows", "suspends", "fails", "cancelled")
    started(core, script.at(core, 0.0, place(*first)), 1.0)
    core.handle(Exited(2.0, run("fails"), Outcome.FAILED, delay_s=500.0))
    script.at(
        core,
        10.0,
        lambda plan: plan.evict(plan.runs[run("leaves")], "for another"),
        lambda plan: plan.suspend(plan.runs[run("suspends")], "for another"),
        lambda plan: plan.resize(plan.runs[run("grows")], 2),
        place("reserved", "starts"),
    )
    core.handle(CancelRequested(11.0, job("cancelled")))
    assert core.runs[run("reserved")].after

    found = forecast(core, FIFO, FIRST_FIT)

    assert not found.truncated
    ends = {str(name): times.ends_at for name, times in found.times.items()}
    assert set(ends) == set(wanted)
    assert ends["cancelled"] == 11.0
    assert ends["starts"] == ends["reserved"] == 111.0
    assert ends["grows"] == pytest.approx(11.0 + 90.0 / 2)
    assert ends["suspends"] == pytest.approx(11.0 + 90.0)
    assert found.times[job("fails")] == ForecastTimes(502.0, 602.0)
    assert found.times[job("leaves")].starts_at == 11.0


def test_a_job_for_which_there_is_never_room_starts_never() -> None:
    core = core_with(policy("las"), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), spec(1, 50.0)), Submitted(0.0, job("b"), spec(8, 50.0)))
    core.handle(Started(0.0, run("a")), GpuFailed(0.0, node("n0").id, 1))

    found = foreseen(core)

    assert found.times == {"a": ForecastTimes(0.0, 50.0), "b": ForecastTimes(None, None)}
    assert found.truncated


def test_it_goes_only_so_far() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(*(Submitted(0.0, job(f"j{n}"), spec(1, 100.0)) for n in range(20)))

    near = foreseen(core, horizon_s=350.0)
    few = foreseen(core, limit_events=10)
    one = foreseen(core, job=job("j3"))

    assert [near.truncated, few.truncated, one.truncated] == [True, True, True]
    assert near.times[job("j2")] == ForecastTimes(200.0, 300.0)
    assert near.times[job("j3")] == ForecastTimes(300.0, None)
    assert near.times[job("j4")] == ForecastTimes(None, None)
    assert few.times[job("j19")] == ForecastTimes(None, None)
    assert one.times[job("j3")] == ForecastTimes(300.0, None)


def test_nothing_is_foreseen_where_nothing_is() -> None:
    core = Core(FIFO, FIRST_FIT)

    assert forecast(core, FIFO, FIRST_FIT).times == {}


def test_a_thousand_waiting_jobs_take_no_time() -> None:
    core = core_with(FIFO, *(node(f"n{index}", 8) for index in range(8)))
    core.handle(
        *(Submitted(0.0, job(f"j{n}"), spec((1, 2, 4)[n % 3], 100.0 + n)) for n in range(1100))
    )
    core.handle(*(Started(0.0, run_id) for run_id in core.runs))

    before = time.process_time()
    found = forecast(core, policy("backfill"), FIRST_FIT)
    passed = time.process_time() - before

    assert core.waiting.count > 1000
    assert not found.truncated
    assert passed < 2.0, f"it took {passed:.2f} s"  # 0.3 s when this was written


# -- another policy --------------------------------------------------------------------------------


def a_state() -> dict[str, Any]:
    """At 1010 s: one runs since 1000 s, a long and a short one wait for it."""
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(990.0, job("gone"), spec(1, 5.0)))
    core.handle(Started(990.0, run("gone")))
    core.handle(Exited(995.0, run("gone"), Outcome.SUCCEEDED, 5.0))
    core.handle(
        Submitted(1000.0, job("runs"), spec(1, 60.0)),
        Submitted(1001.0, job("long"), spec(1, 500.0)),
        Submitted(1002.0, job("short"), spec(1, 20.0)),
    )
    core.handle(Started(1002.0, run("runs")))
    core.handle(Woke(1010.0))
    return dump(core)


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("fifo", {"runs": 62.0, "long": 562.0, "short": 582.0}),
        ("sjf", {"runs": 62.0, "long": 582.0, "short": 82.0}),
        ("srtf", {"runs": 82.0, "long": 582.0, "short": 30.0}),
    ],
)
def test_a_state_is_replayed_under_a_policy(name: str, ends: dict[str, float]) -> None:
    results = present_run(a_state(), name, "first-fit").simulation.run()

    rows = {row.id: row for row in results.jobs}
    assert {row.id: row.finished_at for row in results.jobs} == ends
    assert [rows[name].submitted_at for name in ("runs", "long", "short")] == [0.0, 1.0, 2.0]
    assert (results.policy, results.placer, results.workload) == (name, "first-fit", "live")
    assert (results.nodes, results.gpus) == (1, 1)
    jct = summarise(results).jct_mean
    assert jct == pytest.approx(sum(ends.values()) / 3 - 1.0)


def test_waits_count_from_the_submission() -> None:
    results = present_run(a_state(), "fifo", "first-fit").simulation.run()
    rows = {row.id: row for row in results.jobs}

    waits = rows["long"]
    assert waits.wait_capacity_s + waits.wait_turn_s == 61.0


def test_a_rehearsal_can_be_saved_and_goes_on(tmp_path: Any) -> None:
    whole = present_run(a_state(), "srtf", "first-fit", timeline=True).simulation
    half = present_run(a_state(), "srtf", "first-fit", timeline=True).simulation
    half.run(until=50.0)
    save(half, tmp_path / "half.roost")

    results, again = whole.run(), load_run(tmp_path / "half.roost").run()

    assert (results.jobs, results.segments) == (again.jobs, again.segments)
    assert results.segments


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="reads versions 1 to 2"):
        present_run({"version": 7}, "fifo", "first-fit")
    with pytest.raises(NotFound, match="unknown policy 'fif'"):
        present_run(a_state(), "fif", "first-fit")
    empty = core_with(FIFO, node("n0", 1))
    with pytest.raises(InvalidSpec, match="there are no jobs that are not over"):
        present_run(dump(empty), "fifo", "first-fit")


def test_a_node_that_joins_again_is_as_before() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(NodeLost(1.0, node("n0").id))
    core.handle(NodeJoined(2.0, node("n0", 1)))
    core.handle(Submitted(2.0, job("a"), spec(1, 5.0)))

    assert foreseen(core).times[job("a")] == ForecastTimes(2.0, 7.0)


def test_who_stands_still_in_its_place_keeps_it_from_others() -> None:
    half = spec(0.5, 100.0, way=Way.SPATIAL)
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("still"), half), Submitted(0.0, job("other"), half))
    core.handle(Started(0.0, run("still")), Started(0.0, run("other")))
    core.handle(Submitted(5.0, job("next"), half), SuspendRequested(5.0, job("still")))
    under_way = foreseen(core)
    core.handle(Suspended(6.0, run("still"), 5.0))
    found = foreseen(core)

    assert found.times[job("next")] == ForecastTimes(100.0, 200.0)
    assert found.times[job("still")] == ForecastTimes(None, None)
    assert under_way.times[job("next")] == found.times[job("next")]
    core.handle(ResumeRequested(10.0, job("still")))
    assert foreseen(core).times[job("still")] == ForecastTimes(10.0, 105.0)
