"""What was measured of applications, and what it costs to disturb them."""

from __future__ import annotations

import json
import math

import pytest

from roost.core import (
    Core,
    Costs,
    JobSpec,
    Measured,
    Range,
    Resized,
    ResumeRequested,
    ScaleRequested,
    Shrank,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
)
from roost.core.history import History, Profile, Spending
from roost.core.history_codec import encode_observed, profile_records
from roost.core.observed import Mean
from roost.core.snapshot import digest, dump, load
from roost.core.wire import canonical
from roost.placement import placer
from roost.policies.alnair import Alnair
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, held, job, node, run, spec

WHOSE = ("ada", "vision")
APP = spec(1, 1000.0, workers=(1, 2), user="ada", application="vision")


def up(wanted: JobSpec = APP) -> Core:
    core = core_with(fifo, node("n0", 4))
    core.handle(Submitted(0.0, job("a"), wanted))
    core.handle(Started(1.0, run("a"), took_s=3.0))
    return core


def test_steps_are_kept_by_workers_and_share() -> None:
    core = up()
    for workers, step_s in ((1, 0.4), (1, 0.6), (2, 0.3)):
        core.handle(Measured(2.0, run("a"), workers, step_s))
    profile = core.history.profiles[WHOSE]

    assert profile.steps[1, 1000] == Mean(2, 0.5)
    assert profile.step_s(2, 1000) == 0.3
    assert profile.rate(2, 1000) == pytest.approx(0.5 / 0.3)
    assert profile.rate(1, 1000) == 1.0
    assert profile.rate(4, 1000) is None
    assert profile.rate(1, 500) is None
    assert core.jobs[job("a")].profile is profile


def test_the_most_memory_and_the_last_noise_are_kept() -> None:
    core = up()
    core.handle(Measured(2.0, run("a"), 1, 0.4, 700, 50.0))
    core.handle(Measured(3.0, run("a"), 1, 0.4, 600))
    core.handle(Measured(4.0, run("a"), 1, 0.4, 0, 80.0))

    profile = core.history.profiles[WHOSE]
    assert (profile.memory_mib, profile.noise) == (700, 80.0)
    core.handle(Measured(5.0, run("a"), 1, 0.0, busy=0.5), Measured(6.0, run("a"), 1, 0.0, busy=1))
    assert (profile.busy.count, profile.busy.mean) == (2, 0.75)
    assert profile.steps[1, 1000].count == 3


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.inf, math.nan])
def test_nonsense_is_not_learnt(step_s: float) -> None:
    core = up()
    core.handle(Measured(2.0, run("a"), 1, step_s), Measured(2.0, run("a"), 0, 1.0))

    assert not core.history.profiles


def test_nothing_is_kept_of_a_job_without_an_application_or_a_run() -> None:
    core = up(spec(1, user="ada"))
    core.handle(Measured(2.0, run("a"), 1, 0.4), Measured(2.0, run("a", 7), 1, 0.4))

    assert not core.history.profiles
    assert not core.history.costs
    assert core.jobs[job("a")].profile is None
    assert core.jobs[job("a")].spent is None


def test_what_disturbances_took_is_kept() -> None:
    core = up()
    core.handle(SuspendRequested(5.0, job("a")))
    core.handle(Suspended(6.0, run("a"), 4.0, took_s=0.5))
    core.handle(ResumeRequested(7.0, job("a")))
    core.handle(Started(8.0, run("a"), took_s=1.5))
    core.handle(Resized(9.0, run("a"), 9.0, 9.0))  # nobody asked for it

    spent = core.history.costs[WHOSE]
    assert (spent.start, spent.suspend, spent.resume) == (Mean(1, 3.0), Mean(1, 0.5), Mean(1, 1.5))
    assert spent.resize.count == spent.pause.count == 0
    assert core.jobs[job("a")].spent is spent


def test_what_a_change_of_size_took_is_kept() -> None:
    core = core_with(Alnair(calm_s=0), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), APP))
    core.handle(Started(1.0, run("a")))
    core.handle(Shrank(2.0, run("a"), held("n0", (0,))))
    core.handle(Resized(3.0, run("a"), took_s=2.0, pause_s=0.1))

    spent = core.history.costs[WHOSE]
    assert (spent.resize, spent.pause) == (Mean(1, 2.0), Mean(1, 0.1))


def test_a_change_of_size_speeds_a_run_up_as_much_as_was_measured() -> None:
    core = core_with(Alnair(calm_s=0), node("n0", 2))
    core.handle(Submitted(0.0, job("a"), APP))
    core.handle(Started(0.0, run("a")))
    assert core.runs[run("a")].rate == 2.0, "in proportion, as long as nobody measured"
    core.handle(Measured(1.0, run("a"), 2, 0.4), Measured(1.0, run("a"), 1, 0.6))
    core.handle(Shrank(100.0, run("a"), held("n0", (0,))))

    assert core.runs[run("a")].rate == pytest.approx(2.0 * 0.4 / 0.6)
    core.handle(Submitted(200.0, job("b"), APP))
    assert core.jobs[job("b")].speed_up(2, 1) == pytest.approx(1.5)


def test_a_stop_costs_what_restarts_were_measured_to() -> None:
    declared = Costs(restart_s=100.0)
    later = spec(1, user="ada", application="vision", costs=declared)
    core = up()
    core.handle(Submitted(5.0, job("b"), later))
    core.handle(Started(5.0, run("b")))

    assert core.runs[run("b")].disturbance_s(9.0) == 3.0
    core.handle(Submitted(6.0, job("c"), spec(1, application="other", costs=declared)))
    core.handle(Started(6.0, run("c")))
    assert core.runs[run("c")].disturbance_s(9.0) == 100.0


def test_a_mean_that_is_steady_follows_slow_changes() -> None:
    mean = Mean()
    for _ in range(1000):
        mean.add(1.0)
    for _ in range(300):
        mean.add(2.0)

    assert 1.9 < mean.mean < 2.0


def test_only_so_many_applications_are_remembered() -> None:
    history = History()
    for index in range(2100):
        wanted = spec(1, application=f"app-{index}")
        history.measure(wanted, Measured(0.0, run("a"), 1, 1.0))
        history.spend(wanted, Spending.RESIZE, 1.0)
        history.measure(spec(1, application="busy"), Measured(0.0, run("a"), 1, 1.0))

    assert len(history.profiles) == len(history.costs) == 2000
    assert ("", "app-0") not in history.profiles
    assert ("", "busy") in history.profiles


def test_only_so_many_sizes_of_an_application_are_remembered() -> None:
    history = History()
    for workers in range(1, 251):
        history.measure(APP, Measured(0.0, run("a"), workers, 1.0))
        history.measure(APP, Measured(0.0, run("a"), 1, 1.0))

    sizes = [workers for workers, _ in history.profiles[WHOSE].steps]
    assert (len(sizes), sizes[0], sizes[-1]) == (200, 52, 1)


def test_work_is_counted_anew_at_the_measured_speed_of_the_new_least_workers() -> None:
    core = up()
    core.handle(Measured(1.0, run("a"), 1, 0.4), Measured(1.0, run("a"), 2, 0.3))
    core.handle(ScaleRequested(301.0, job("a"), Range(2, 2)))
    now = core.runs[run("a")]

    assert core.jobs[job("a")].run_time_s == pytest.approx(750.0)
    assert now.done(301.0) == pytest.approx(225.0)
    core.handle(Resized(301.0, run("a")))
    assert now.rate == pytest.approx(1.0), "it has the workers in whose seconds work is counted"


def test_a_snapshot_keeps_it() -> None:
    core = up()
    core.handle(Measured(2.0, run("a"), 1, 0.4, 700, 50.0), Measured(2.0, run("a"), 2, 0.3))
    again = load(json.loads(canonical(dump(core))), fifo, placer("first-fit"))

    assert profile_records(again.history) == profile_records(core.history)
    assert encode_observed(again.jobs[job("a")].observed) == encode_observed(
        core.jobs[job("a")].observed
    )
    assert again.history.costs == core.history.costs
    assert again.jobs[job("a")].spent is again.history.costs[WHOSE]
    assert digest(again) == digest(core)


def test_a_snapshot_of_before_there_were_measurements_can_be_read() -> None:
    core = up()
    data = {key: value for key, value in dump(core).items() if key not in ("profiles", "costs")}
    again = load(data, fifo, placer("first-fit"))

    assert not again.history.profiles
    assert again.runs[run("a")].settled


def test_an_empty_profile_knows_nothing() -> None:
    assert Profile().rate(1, 1000) is None
    assert Profile().step_s(1, 1000) is None
