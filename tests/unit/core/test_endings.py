"""How runs end, what is tried again, and what is remembered of it."""

from __future__ import annotations

import pytest

from roost.core import Core, Exited, JobState, Launch, Outcome, Progressed, Started, Submitted
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, run, spec
from roost.testing.checks import validate

A = job("a")


def running(max_retries: int = 0) -> Core:
    core = core_with(fifo, node("n0", 2))
    core.handle(Submitted(0.0, A, spec(2, 100.0, max_retries=max_retries)))
    core.handle(Started(1.0, run("a")))
    return core


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.SUCCEEDED, JobState.SUCCEEDED),
        (Outcome.FAILED, JobState.FAILED),
        (Outcome.CANCELLED, JobState.CANCELLED),
    ],
)
def test_a_job_is_over_when_its_run_is(outcome: Outcome, state: JobState) -> None:
    core = running()

    assert core.handle(Exited(11.0, run("a"), outcome, 10.0)) == []
    done = core.jobs[A]
    assert (done.state, done.finished_at, done.run) == (state, 11.0, None)
    assert (done.saved_s, done.attained_gpu_s) == (10.0, 20.0)
    assert core.finished == 1
    assert list(core.history.service) == [20.0]
    validate(core)


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.LOST])
def test_a_run_that_was_taken_away_is_tried_again(outcome: Outcome) -> None:
    core = running()

    (launch,) = core.handle(Exited(11.0, run("a"), outcome, 9.0))

    assert launch.run == run("a", 2)
    assert core.runs[run("a", 2)].done_s == 9.0
    validate(core)


def test_a_failing_job_is_tried_again_as_often_as_it_may() -> None:
    core = running(max_retries=2)

    for attempt in (1, 2):
        (launch,) = core.handle(Exited(10.0 * attempt, run("a", attempt), Outcome.FAILED))
        assert isinstance(launch, Launch)
        assert launch.run == run("a", attempt + 1)
    assert core.handle(Exited(30.0, run("a", 3), Outcome.FAILED)) == []
    assert core.jobs[A].state is JobState.FAILED
    assert core.jobs[A].failures == 3


def test_progress_is_believed_and_carried_on() -> None:
    core = running()

    core.handle(Progressed(5.0, run("a"), done_s=40.0, rate=10.0))

    a = core.runs[run("a")]
    assert a.done(6.0) == 50.0
    assert a.remaining_s(6.0) == 5.0
    assert a.ends_at == 11.0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_cannot_be_is_not_believed(rate: float) -> None:
    core = running()

    core.handle(Progressed(5.0, run("a"), done_s=40.0, rate=rate))

    assert core.runs[run("a")].done(5.0) == 4.0


def test_run_times_are_predicted_from_earlier_jobs_of_the_same_application() -> None:
    core = core_with(fifo, node("n0"))
    mine = spec(1, user="ann", application="bert")
    for index, took_s in enumerate((10.0, 30.0)):
        core.handle(Submitted(1.0, job(f"j{index}"), mine))
        core.handle(Exited(1.0, run(f"j{index}"), Outcome.SUCCEEDED, took_s))
    core.handle(Submitted(2.0, job("lost"), mine))
    core.handle(Exited(3.0, run("lost"), Outcome.FAILED, 999.0))

    core.handle(
        Submitted(4.0, job("same"), mine),
        Submitted(4.0, job("declared"), spec(1, 7.0, user="ann", application="bert")),
        Submitted(4.0, job("other user"), spec(1, user="bob", application="bert")),
        Submitted(4.0, job("nameless"), spec(1, user="ann")),
    )

    assert core.jobs[job("same")].run_time_s == 20.0
    assert core.jobs[job("declared")].run_time_s == 7.0
    assert core.jobs[job("other user")].run_time_s is None
    assert core.jobs[job("nameless")].run_time_s is None
