"""Lessons as job files, and what the simulator makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.demo.jobs import NUMPY, TrainerPace, TrainingJob, document, mixed, predict, slots
from roost.demo.server import ScratchServer
from roost.jobfile import JobFile

PACES = {1: TrainerPace(0.5, 100.0), 2: TrainerPace(1.0, 150.0)}
NODES = [{"id": "here", "gpus": 2, "kind": "cpu-slot", "cpus": 2.0}]


def foreseen(*lessons: TrainingJob) -> dict[str, float]:
    return predict(lessons, ScratchServer(Path(), 2, policy="backfill"), NODES, PACES)


def test_a_lesson_declares_what_was_measured() -> None:
    job = JobFile.from_document(document(TrainingJob("pair", 0.0, 4.0, (2, 2)), PACES))

    spec = job.spec("ada")
    assert job.command[3:5] == ("--steps", "600")
    assert (spec.workers, spec.run_time_s) == ((2, 2), 5.0)
    assert (spec.costs.restart_s, spec.costs.checkpoint_every_s) == (1.0, NUMPY.saves_every_s)


def test_the_simulator_plays_the_same_slots_times_and_policy() -> None:
    times = foreseen(
        TrainingJob("long", 0.0, 10.0),
        TrainingJob("wide", 1.0, 4.0, (2, 2)),
        TrainingJob("short", 2.0, 3.0),
        TrainingJob("late", 3.0, 9.0),
    )

    assert times == {
        "long": 10.5,
        "wide": 10.5 + 5.0 - 1.0,  # both slots are free once long is over
        "short": 3.5,  # beside long, over before it
        "late": 15.5 + 9.5 - 3.0,  # would delay wide
    }


def test_a_planned_kill_costs_a_start_and_what_was_not_saved() -> None:
    (calm,) = foreseen(TrainingJob("calm", 0.0, 10.0)).values()
    (killed,) = foreseen(TrainingJob("killed", 0.0, 10.0, killed_at=0.4)).values()

    assert killed == pytest.approx(calm + 0.5 + NUMPY.saves_every_s / 2)


def test_mixed_lessons_are_the_same_every_time_and_differ_from_each_other() -> None:
    lessons = mixed(20, 4.0)

    assert lessons == mixed(20, 4.0)
    assert len({lesson.seconds for lesson in lessons}) > 2
    assert {lesson.workers for lesson in lessons} == {(1, 1), (2, 2)}
    assert [lesson.at_s for lesson in lessons] == sorted({lesson.at_s for lesson in lessons})


def test_a_gang_of_two_always_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, expected in ((1, 2), (3, 3), (64, 4)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert slots() == expected
