"""Resizing a live run: who stays, who comes and goes, and what is left when anybody is killed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration import elastic_puppet
from tests.integration.local_world import (
    KILLED,
    PYTHON,
    World,
    alive,
    apart,
    assigned,
    await_end,
    clear,
    run_id,
    start_record,
    world,
)

from roost.core.actions import Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, Part
from roost.core.events import Resized, Shrank, Started, Suspended
from roost.core.spec import JobSpec, Range, Resources, Role, RunId
from roost.engines import Assigned, Ended, ProgressReport, RunOrder, WorkerExit
from roost.engines.local import launcher
from roost.failpoints import CHANGING
from roost.jobfile.program import Program, Task

JOB = "job"
RUN = run_id(JOB)
SPEC = JobSpec(workers=Range(1, 3))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="resize-"))
    monkeypatch.setenv("HOME", str(place))
    yield place
    clear(place)
    shutil.rmtree(place)


def puppet(mode: str = "fine", grace_s: float = 5.0, **more: Any) -> Program:
    command = (PYTHON, "-I", "-S", elastic_puppet.__file__, mode)
    return Program({"worker": Task(command=command)}, grace_s=grace_s, **more)


def begin(here: World, program: Program, *gpus: int) -> None:
    """Start a job, and wait until it says that it can change."""
    where = here.place(*gpus, workers=len(gpus))
    here.launch(JOB, program, where, SPEC)
    here.until(Started, RUN)
    for rank in range(len(gpus)):
        here.follow(RUN, "member", f"worker-{rank}")
    if "rigid" not in program.tasks["worker"].command:
        while not here.until(ProgressReport, RUN).elastic:
            pass


def pids(home: Path) -> dict[str, int]:
    return {name: pid for name, (pid, _) in start_record(home, JOB)["workers"].items()}


def test_a_run_grows_and_shrinks_while_it_runs(home: Path) -> None:
    with world(home, slots=3) as here:
        begin(here, puppet(), 1)
        first = pids(home)["worker-0"]
        here.order(Resize(RUN, here.place(0, 1, 2, workers=3)), puppet())
        grown = here.until(Resized, RUN)
        here.follow(RUN, "member 0 of 0 1 2")
        assert pids(home)["worker-0"] == first
        assert len(pids(home)) == 3
        assert here.log(RUN, "worker-1").startswith("up 1 1 3 1\n")
        assert grown.took_s is not None
        assert grown.pause_s == elastic_puppet.PAUSE_S
        # The seats of the first worker and of one new one stay.
        here.order(Resize(RUN, here.place(1, 2, workers=2)), puppet())
        shrunk = here.until(Resized, RUN)
        here.follow(RUN, "member 0 of 0 2")
        told = here.until(ProgressReport, RUN)
        while told.world != 2:
            told = here.until(ProgressReport, RUN)
        assert shrunk.pause_s == elastic_puppet.PAUSE_S
        assert pids(home)["worker-0"] == first
        assert [seat.gpus for seat in here.state(RUN).seats] == [(1,), (2,)]
        assert "left 1" in here.log(RUN, "worker-1")
        assert here.state(RUN).generation == 1
        ended = here.end(RUN)

    assert sorted((one.index, one.code) for one in ended.exits) == [(0, 143), (1, 143)]


def test_a_run_moves_without_a_restart(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0)
        here.order(Migrate(RUN, here.place(1)), puppet())
        moved = here.until(Resized, RUN)
        log = here.follow(RUN, "member 1 of 1\n")
        assert here.state(RUN).generation == 1
        assert [seat.gpus for seat in here.state(RUN).seats] == [(1,)]
        assert os.sched_getaffinity(pids(home)["worker-0"]) == {sorted(os.sched_getaffinity(0))[1]}
        here.end(RUN)

    assert moved.pause_s == 2 * elastic_puppet.PAUSE_S
    assert "left 0" in log


@pytest.mark.parametrize("mode", ["rigid", "slow", "fails", "deaf", "breaks"])
def test_what_cannot_change_starts_anew(
    home: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PATIENCE", {"ready_s": 0.3, "join_s": 0.3})
    with world(home) as here:
        begin(here, puppet(mode), 0)
        here.order(Resize(RUN, here.place(0, 1, workers=2)), puppet(mode))
        resized = here.until(Resized, RUN)
        assert here.state(RUN).generation == 2
        here.follow(RUN, "up 0 0 2 2")
        here.follow(RUN, "up 1 1 2 2", "worker-1")
        assert ("its size cannot be changed" in here.log(RUN)) == (mode != "rigid")
        here.end(RUN)

    assert resized.took_s == resized.pause_s


def test_a_training_that_ends_in_the_middle_of_a_change_has_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PATIENCE", {"ready_s": 60.0, "join_s": 60.0})
    with world(home) as here:
        begin(here, puppet("ends"), 0)
        here.order(Resize(RUN, here.place(0, 1, workers=2)), puppet("ends"))
        ended = here.until(Ended, RUN, 40.0)
        assert here.state(RUN).generation == 1

    assert (ended.cause, [one.code for one in ended.exits]) == ("exit", [0])


def test_a_job_that_is_done_with_training_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PATIENCE", {"ready_s": 0.3, "join_s": 0.3})
    program = puppet("lingers")
    with world(home) as here:
        begin(here, program, 0)
        (home / "runs/job/checkpoints/over").touch()
        here.follow(RUN, "lingers")
        here.order(Resize(RUN, here.place(0, 1, workers=2)), program)
        time.sleep(1.0)  # longer than anybody's patience
        assert alive(pids(home)["worker-0"])
        (home / "runs/job/checkpoints/end").touch()
        ended = here.until(Ended, RUN)
        assert here.state(RUN).generation == 1

    assert (ended.cause, [one.code for one in ended.exits]) == ("exit", [0])


def test_a_worker_that_is_done_before_the_others_is_not_waited_for(home: Path) -> None:
    program = puppet("early")
    with world(home) as here:
        begin(here, program, 0, 1)
        (home / "runs/job/checkpoints/early").touch()
        shrank = here.until(Shrank, RUN)
        here.follow(RUN, "member 0 of 0\n")
        here.order(Resize(RUN, here.place(0, 1, workers=2)), program)
        here.until(Resized, RUN)
        assert start_record(home, JOB)["members"] == ["0", "2"]
        assert here.state(RUN).generation == 1
        (home / "runs/job/checkpoints/over").touch()
        ended = here.until(Ended, RUN)

    assert shrank.why == "worker-1 exited with 0"
    assert shrank.allocation.workers == 1
    assert (ended.cause, [one.code for one in ended.exits]) == ("exit", [0, 0, 0])


def test_who_does_not_leave_is_killed(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet("stays", grace_s=0.2), 0, 1)
        leaver = pids(home)["worker-1"]
        here.order(Resize(RUN, here.place(0)), puppet("stays"))
        here.until(Resized, RUN)
        assert not alive(leaver)
        assert here.state(RUN).generation == 1
        here.end(RUN)


def test_an_order_given_twice_is_carried_out_once(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0)
        wider = here.place(0, 1, workers=2)
        here.order(Resize(RUN, wider), puppet())
        here.order(Resize(RUN, wider), puppet())
        here.until(Resized, RUN)
        here.order(Resize(RUN, wider), puppet())
        here.until(Resized, RUN)
        assert here.state(RUN).generation == 1
        assert sorted(start_record(home, JOB)["members"]) == ["0", "1"]
        here.end(RUN)


@pytest.mark.parametrize("order", [Stop(RUN, "test"), Suspend(RUN, "test")])
def test_an_order_in_the_middle_of_a_change(home: Path, order: Stop | Suspend) -> None:
    with world(home) as here:
        begin(here, puppet("slow"), 0)
        wider = here.place(0, 1, workers=2)
        here.order(Resize(RUN, wider), puppet("slow"))
        here.follow(RUN, "up 1", "worker-1")
        here.order(order, puppet("slow"))
        if isinstance(order, Stop):
            assert here.until(Ended, RUN).cause == "stopped"
            return
        here.until(Suspended, RUN)
        here.order(Resume(RUN, wider), puppet())
        here.until(Started, RUN)
        here.follow(RUN, "up 0 0 2 2")
        here.end(RUN)


@pytest.mark.parametrize("point", [name for name in CHANGING if name.startswith("resize.")])
def test_a_server_killed_anywhere_in_a_change(home: Path, point: str) -> None:
    with world(home) as here:
        begin(here, puppet(), 0)
        wider = here.place(0, 1, workers=2)
    known = {RUN: assigned(RunOrder(Resize(RUN, wider), puppet()))}

    assert apart(partial(resize, home, known), point) == KILLED
    with world(home, alive=known) as here:
        resized = here.until(Resized, RUN)
        here.follow(RUN, "member 0 of 0 1")
        assert resized.took_s is not None
        assert here.state(RUN).generation == 1
        assert len(pids(home)) == 2
        here.end(RUN)


def test_a_change_that_ends_while_nobody_serves_is_known_to_the_next_server(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0)
        wider = here.place(0, 1, workers=2)
    known = {RUN: assigned(RunOrder(Resize(RUN, wider), puppet()))}
    assert apart(partial(resize, home, known), "resize.after-signal") == KILLED
    wait_until(lambda: "change" in start_record(home, JOB))

    with world(home, alive=known) as here:
        resized = here.until(Resized, RUN)
        here.end(RUN)

    assert resized.pause_s == elastic_puppet.PAUSE_S


@pytest.mark.parametrize(
    "point", [name for name in CHANGING if name.startswith("shim.") and "loss" not in name]
)
def test_a_shim_killed_anywhere_in_a_change(
    home: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_FAILPOINT", point)
    with world(home) as here:
        begin(here, puppet(), 0)
        here.order(Resize(RUN, here.place(0, 1, workers=2)), puppet())
        ended = here.until(Ended, RUN)

    assert ended.cause == "lost"


def test_a_shim_killed_when_it_lost_a_worker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_FAILPOINT", "shim.after-loss")
    with world(home) as here:
        begin(here, puppet(), 0, 1)
        os.kill(pids(home)["worker-1"], signal.SIGKILL)
        assert here.until(Ended, RUN).cause == "lost"


def test_the_others_go_on_without_a_lost_worker(home: Path) -> None:
    with world(home, slots=3) as here:
        begin(here, puppet(), 0, 1, 2)
        os.kill(pids(home)["worker-0"], signal.SIGKILL)
        shrank = here.until(Shrank, RUN)
        assert shrank.allocation == here.place(1, 2, workers=2)
        assert shrank.why == "worker-0 was killed by signal 9"
        here.follow(RUN, "member 1 of 1 2", "worker-1")
        here.follow(RUN, "[roost: worker 0 is process")
        assert set(pids(home)) == {"worker-0", "worker-1"}
        here.order(Resize(RUN, here.place(0, 1, 2, workers=3)), puppet())
        here.until(Resized, RUN)
        assert here.state(RUN).members == ("1", "2", "3")
        assert here.state(RUN).generation == 1
        here.end(RUN)


def test_a_loss_while_nobody_serves_is_told_by_the_next_servers(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0, 1)
        less = here.place(0)
    os.kill(pids(home)["worker-1"], signal.SIGKILL)
    wait_until(lambda: "lost" in start_record(home, JOB))

    for _ in range(2):  # the first may have died before anybody wrote it down
        with world(home, alive={RUN: assigned()}) as here:
            shrank = here.until(Shrank, RUN)
            assert shrank.allocation == less
            assert "signal 9" in shrank.why
    with world(home, alive={RUN: assigned()}) as here:
        here.until(Started, RUN)
        here.end(RUN)


@pytest.mark.parametrize(("mode", "least"), [("rigid", 1), ("deaf", 1), ("fine", 2)])
def test_a_loss_that_cannot_be_borne_ends_the_run(
    home: Path, mode: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PATIENCE", {"ready_s": 0.3, "join_s": 0.3})
    monkeypatch.setattr(f"{__name__}.SPEC", JobSpec(workers=Range(least, 3)))
    with world(home) as here:
        begin(here, puppet(mode), 0, 1)
        os.kill(pids(home)["worker-1"], signal.SIGKILL)
        ended = here.until(Ended, RUN)

    assert ended.cause == "exit"
    assert ended.exits[0] == WorkerExit("worker", 1, None, signal.SIGKILL)
    assert ended.detail.startswith("worker-1 was killed by signal 9")


def test_a_change_stands_still_while_the_run_is_frozen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PATIENCE", {"ready_s": 60.0, "join_s": 1.0})
    with world(home) as here:
        begin(here, puppet(), 0, 1)
        here.order(Suspend(RUN, "test"), puppet())
        assert (here.until(Suspended, RUN).took_s or 0) > 0
        here.order(Resume(RUN, here.place(0, 1, workers=2)), puppet())
        assert (here.until(Started, RUN).took_s or 0) > 0
        here.order(Resize(RUN, here.place(0)), puppet())
        here.until(Resized, RUN)
        assert here.state(RUN).generation == 1
        here.end(RUN)


def test_roles_other_than_workers_stay(home: Path) -> None:
    tasks = {**puppet().tasks, "ps": Task(script="echo up; exec sleep 600")}
    program = Program(tasks, grace_s=5.0)
    spec = JobSpec(workers=Range(1, 2), roles=(Role("ps", 1, Resources(gpus=0)),))
    with world(home) as here:
        ps = Part(here.node, (), 1000, 1, "ps")
        here.launch(JOB, program, Allocation((Part(here.node, (0,)), ps)), spec)
        while not here.until(ProgressReport, RUN).elastic:
            pass
        other = pids(home)["ps-0"]
        wider = Allocation((ps, Part(here.node, (0, 1), 1000, 2)))
        here.order(Resize(RUN, wider), program)
        here.until(Resized, RUN)
        assert (here.state(RUN).generation, pids(home)["ps-0"]) == (1, other)
        assert here.log(RUN, "ps-0") == "up\n"
        here.end(RUN)


def resize(home: Path, known: dict[RunId, Assigned]) -> None:
    with world(home, alive=known) as here:
        here.until(Resized, RUN)


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_training_that_is_over_waits_for_nobody_to_join(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet("slow"), 0)
        here.order(Resize(RUN, here.place(0, 1, workers=2)), puppet("slow"))
        here.follow(RUN, "up 1", "worker-1")
        (home / "runs/job/checkpoints/over").touch()
        ended = here.until(Ended, RUN)

    assert (ended.cause, ended.exits) == ("exit", (WorkerExit("worker", 0, 0, None),))


def test_a_shim_killed_while_new_workers_get_ready_takes_them_along(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet("slow"), 0)
        here.order(Resize(RUN, here.place(0, 1, workers=2)), puppet("slow"))
        here.follow(RUN, "up 1", "worker-1")
        os.kill(start_record(home, JOB)["pid"], signal.SIGKILL)
        assert here.until(Ended, RUN).cause == "lost"
    await_end(home, RUN)


def test_a_full_disk_keeps_nobody_from_changing(home: Path) -> None:
    disk = home / "disk"
    disk.mkdir()

    def story() -> None:
        with world(disk, slots=3) as here:
            begin(here, puppet(), 0, 1, 2)
            with (disk / "filler").open("wb") as file, suppress(OSError):
                while True:
                    file.write(b"0" * 65536)
                    file.flush()
            os.kill(pids(disk)["worker-2"], signal.SIGKILL)
            here.until(Shrank, RUN)
            here.order(Resize(RUN, here.place(0)), puppet())
            here.until(Resized, RUN)
            assert here.state(RUN).generation == 1
            assert here.end(RUN).cause == "stopped"

    assert apart(story, tmpfs=(disk, "4m")) == 0
