"""A real training under the engine: it grows, shrinks, moves, loses a worker, rests and ends."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.local_world import PYTHON, World, clear, run_id, start_record, world

from roost.core.actions import Migrate, Resize, Resume, Suspend
from roost.core.events import Resized, Shrank, Started, Suspended
from roost.core.spec import JobSpec, Range
from roost.engines import ProgressReport
from roost.jobfile.program import Program, Task

RUN = run_id("job")
SPEC = JobSpec(workers=Range(1, 3))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="elastic-"))
    monkeypatch.setenv("HOME", str(place))
    yield place
    clear(place)
    shutil.rmtree(place)


def training(*options: str) -> Program:
    command = (PYTHON, "-P", "-m", "roost.train.example", "--size", "16", *options)
    return Program({"worker": Task(command=command)}, grace_s=10.0)


def started(here: World, program: Program, *gpus: int) -> None:
    here.launch("job", program, here.place(*gpus, workers=len(gpus)), SPEC)
    here.until(Started, RUN)
    while not here.until(ProgressReport, RUN, 60.0).elastic:
        pass


def test_a_training_changes_its_size_while_it_runs(home: Path) -> None:
    program = training("--seconds", "600")
    with world(home, slots=3) as here:
        started(here, program, 0)
        first = start_record(home, "job")["workers"]["worker-0"]
        here.order(Resize(RUN, here.place(0, 1, 2, workers=3)), program)
        grown = here.until(Resized, RUN, 60.0)
        here.order(Resize(RUN, here.place(0, 1, workers=2)), program)
        shrunk = here.until(Resized, RUN, 60.0)
        assert start_record(home, "job")["workers"]["worker-0"] == first
        here.order(Migrate(RUN, here.place(1, 2, workers=2)), program)
        moved = here.until(Resized, RUN, 60.0)
        os.kill(start_record(home, "job")["workers"]["worker-1"][0], signal.SIGKILL)
        here.until(Shrank, RUN, 60.0)
        kept = here.loop.run_until_complete(here.engine.snapshot(RUN, home / "kept", 20.0))
        here.order(Suspend(RUN, "test"), program)
        here.until(Suspended, RUN)
        here.order(Resume(RUN, here.place(0)), program)
        here.until(Started, RUN)
        assert here.state(RUN).generation == 1
        ended = here.end(RUN)

    assert [one.code for one in ended.exits] == [143]
    assert kept.fresh
    for resized in (grown, shrunk, moved):
        assert resized.pause_s is not None
        assert resized.pause_s < min(5.0, resized.took_s or 0.0)
