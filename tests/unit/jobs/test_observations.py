"""What jobs say of their steps beside others: measured once the neighbours have settled."""

from __future__ import annotations

from roost.core import Core, Exited, Measured, Outcome, Started, Submitted
from roost.core.snapshot import digest, dump, load
from roost.engines import ProgressReport
from roost.jobs.observations import COMPANY_S, EVERY_S, measured
from roost.jobs.record import JobRecord
from roost.placement import placer
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, run, spec


def sharing(*names: str) -> Core:
    """These jobs on one GPU, each up since the moment of its number."""
    core = core_with(fifo, node("n0", 1))
    for at, name in enumerate(names):
        wanted = spec(0.25, application=f"app-{name}", user="ada")
        core.handle(Submitted(float(at), job(name), wanted))
        core.handle(Started(float(at), run(name)))
    return core


def told(core: Core, record: JobRecord, name: str, now: float) -> list[Measured]:
    said = ProgressReport(now, run(name), step_s=0.5)
    return measured(core, core.runs[run(name)], record, said, now)


def test_neighbours_are_told_once_they_have_been_there_for_a_while() -> None:
    core, record = sharing("c", "a", "b"), JobRecord(job("a"), None, "ada", "", "", {})

    assert told(core, record, "a", 10.0) == [], "its steps may be from before they came"
    (seen,) = told(core, record, "a", 10.0 + COMPANY_S)

    assert seen.beside == (("ada", "app-b"), ("ada", "app-c"))
    assert told(core, record, "a", 12.0 + COMPANY_S) == [], "too soon for the same again"
    assert told(core, record, "a", 10.0 + COMPANY_S + EVERY_S) != []


def test_another_company_is_measured_at_once() -> None:
    core, record = sharing("a", "b"), JobRecord(job("a"), None, "ada", "", "", {})
    assert told(core, record, "a", 10.0) == []
    assert told(core, record, "a", 20.0) != []
    core.handle(Exited(21.0, run("b"), Outcome.SUCCEEDED))

    assert told(core, record, "a", 22.0) == [], "it was there a moment ago"
    (alone,) = told(core, record, "a", 22.0 + COMPANY_S)

    assert alone.beside == ()


def test_a_job_that_is_alone_is_measured_as_ever() -> None:
    core, record = sharing("a"), JobRecord(job("a"), None, "ada", "", "", {})

    (seen,) = told(core, record, "a", 5.0)

    assert seen.beside == ()
    core.handle(seen)
    observed = core.jobs[job("a")].observed
    assert observed is not None
    assert not observed.shared
    assert len(observed.timings) == 1


def test_what_was_seen_beside_others_is_kept_apart_and_survives_a_snapshot() -> None:
    core, record = sharing("a", "b"), JobRecord(job("a"), None, "ada", "", "", {})
    told(core, record, "a", 10.0)
    (seen,) = told(core, record, "a", 20.0)
    core.handle(seen)

    observed = core.history.profiles["ada", "app-a"].observed
    assert not observed.timings
    (mean,) = observed.shared.values()
    assert mean.mean == 0.5
    again = load(dump(core), fifo, placer("first-fit"))
    assert digest(again) == digest(core)
    assert again.history.profiles["ada", "app-a"].observed.shared == observed.shared
