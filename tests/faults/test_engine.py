"""The local engine when folders cannot be reached, records are forged, or somebody died half-way.

What cannot be looked at may be alive: it is neither called lost nor started again, and every order
has its answer in the end.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.local_world import (
    World,
    alive,
    assigned,
    await_end,
    await_file,
    clear,
    shell,
    world,
)

from roost.core.actions import Launch, Resume, Suspend
from roost.core.events import Started, Suspended
from roost.core.spec import JobId, JobSpec, RunId
from roost.engines import Ended, ProgressReport, RunOrder
from roost.engines.local import engine as engine_module
from roost.engines.local import limits, run_status
from roost.engines.local.run_folders import RunFolders
from roost.engines.local.run_status import RunStatus
from roost.engines.local.shim import slot_file
from roost.errors import Fatal

FOREVER = "exec sleep 600"
GATED = 'until [ -e "$HOME/go" ]; do sleep 0.01; done; '


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="engine-"))
    monkeypatch.setenv("HOME", str(place))
    yield place
    monkeypatch.undo()
    clear(place)
    shutil.rmtree(place)


@pytest.fixture
def out_of_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Let so many looks at folders fail; which ones did."""

    def arm(count: int) -> list[str]:
        failed: list[str] = []
        real = os.open

        def flaky(path: str, flags: int, *more: int, dir_fd: int | None = None) -> int:
            if path == "job" and dir_fd is not None and len(failed) < count:
                failed.append(path)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(path, flags, *more, dir_fd=dir_fd)

        monkeypatch.setattr("roost.engines.local.run_folders.os.open", flaky)
        return failed

    return arm


def shim_of(home: Path) -> int:
    with (home / "runs/job/1/start.json").open("rb") as file:
        start = slot_file.read(file.fileno())
    assert start is not None
    return int(start["pid"])


@pytest.mark.parametrize("again", [True, False], ids=["order", "no order"])
def test_a_run_that_cannot_be_looked_at_is_neither_lost_nor_started_twice(
    home: Path,
    out_of_files: Callable[[int], list[str]],
    again: bool,  # noqa: FBT001
) -> None:
    program = shell("echo started; " + FOREVER)
    with world(home) as here:
        run = here.launch("job", program)
        here.until(Started, run)
        order = RunOrder(Launch(run, JobSpec(), here.place()), program)
    pid, failed = shim_of(home), out_of_files(2)
    with world(home, alive={run: assigned(order if again else None)}) as here:
        here.until(Started, run)
        assert failed == ["job"] * 2
        assert not any(isinstance(report, Ended) for report in here.reports)
        assert shim_of(home) == pid
        assert alive(pid)
        assert here.end(run).cause == "stopped"
        assert here.log(run) == "started\n"


def test_a_server_that_cannot_look_does_not_start(
    home: Path, out_of_files: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER))
        here.until(Started, run)
    monkeypatch.setattr(engine_module, "_LOOK_S", 0.2)
    out_of_files(1 << 30)
    there = World(home)
    with pytest.raises(Fatal, match=r"job#1 cannot be looked at: .*Too many open files"):
        there.start({run: assigned()})
    there.close()

    assert alive(shim_of(home))
    assert [type(report).__name__ for report in there.reports] == ["NodeJoined"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error"), Fatal("odd"), KeyError("odd")])
def test_a_launch_is_answered_once_its_folder_can_be_looked_at(
    home: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, real = [1, 2, 3], run_status.examine

    def failing(runs: RunFolders, run: RunId) -> RunStatus:
        if left:
            left.pop()
            raise error
        return real(runs, run)

    monkeypatch.setattr(run_status, "examine", failing)
    with world(home) as here:
        run = here.launch("job", shell("exit 6"))
        assert here.until(Ended, run).exits[0].code == 6
    assert not left


def test_an_end_is_noticed_although_nobody_can_look_at_first(
    home: Path, out_of_files: Callable[[int], list[str]]
) -> None:
    with world(home) as here:
        run = here.launch("job", shell(GATED + "exit 7"))
        here.until(Started, run)
        failed = out_of_files(3)
        (home / "go").touch()
        ended = here.until(Ended, run)

    assert (ended.cause, ended.exits[0].code) == ("exit", 7)
    assert len(failed) == 3


def test_what_can_have_no_folder_is_never_started(home: Path) -> None:
    with world(home) as here:
        ended = here.until(Ended, here.launch("../etc", shell("true")))
    assert ended.cause == "never-started"
    assert "'../etc' is no job id" in ended.detail


@pytest.mark.parametrize("how", ["ended", "stopped", "parked"])
def test_what_a_job_said_while_nobody_served_comes_before_its_end(home: Path, how: str) -> None:
    say = """echo '{"done": 0.5, "saved": 0.4, "step": 9}' > $ROOST_PROGRESS; """
    rest = {
        "ended": GATED + say + "exit 1",
        "stopped": say + FOREVER,
        "parked": say + "sleep 600 & wait",
    }
    program = shell(rest[how], suspend="stop")
    with world(home) as here:
        run = here.launch("job", program)
        here.until(Started, run)
        if how == "ended":
            assert not any(isinstance(report, ProgressReport) for report in here.reports)
        else:
            here.until(ProgressReport, run)
        if how == "parked":
            here.order(Suspend(run, "test"), program)
            here.until(Suspended, run)
        elif how == "stopped":
            here.end(run)
    (home / "go").touch()
    await_end(home, run)

    with world(home, alive={run: assigned(parked=how == "parked")}) as here:
        told, then = [report for report in here.reports if getattr(report, "run", None) == run]
        if how == "parked":
            here.end(run)

    assert isinstance(told, ProgressReport)
    assert (told.done, told.saved, told.step) == (0.5, 0.4, 9)
    assert isinstance(then, Suspended if how == "parked" else Ended)


def test_a_cgroup_goes_before_the_run_can_want_it_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = shell("trap 'exit 0' TERM; sleep 600 & wait", suspend="stop")
    removing, go_on = threading.Event(), threading.Event()
    real = limits.remove

    def slow(group: str) -> None:
        removing.set()
        assert go_on.wait(60)
        real(group)

    with world(home) as here:
        run = here.launch("job", program)
        here.until(Started, run)
        monkeypatch.setattr(limits, "remove", slow)
        here.order(Suspend(run, "test"), program)
        here.until(Suspended, run)
        assert here.loop.run_until_complete(here.loop.run_in_executor(None, removing.wait, 10))
        assert run in here.engine._keepers, "it is not for another to look after meanwhile"
        here.order(Resume(run, here.place()), program)
        go_on.set()
        here.until(Started, run)
        group = here.state(run).cgroup
        assert not group or Path(group).is_dir()
        assert here.end(run).cause == "stopped"


def test_what_deleted_jobs_left_behind_goes(home: Path) -> None:
    with world(home) as here:
        for job in ("kept", "unknown", "half"):
            here.until(Ended, here.launch(job, shell("true")))
        stray = here.launch("stray", shell("trap '' TERM; echo > $HOME/up; " + FOREVER, 0.5))
        here.until(Started, stray)
        await_file(home / "up")
    (home / "runs/half").rename(home / "runs/.gone-1")
    with world(home) as here:
        asked: list[JobId] = []

        def known(job: JobId) -> bool:
            asked.append(job)
            return job == "kept"

        here.engine.sweep(known)
        here.until(Ended, stray)
        assert sorted(asked) == ["kept", "unknown"], "what may be alive is left alone"
    assert sorted(path.name for path in (home / "runs").iterdir()) == ["kept", "stray"]


@pytest.mark.parametrize(
    "forged",
    [
        {"told": {"done": "x", "saved": True, "step": [1], "loss": "NaN"}},
        {"told": 5},
        {"stuck": "all"},
        {"stuck": [{}]},
        {"phase": ["frozen"]},
        {"phase": 7},
        [[]],
    ],
)
def test_what_a_job_tells_the_ear_harms_nobody(home: Path, forged: object) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER))
        here.until(Started, run)
        state = here.state(run)
        whose = {"run": list(run), "token": state.token, "generation": 1}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            mouth.connect(str(home / "engine.sock"))
            for one in (forged, {"told": {"step": 4}}):
                mouth.send(json.dumps({**whose, **one} if isinstance(one, dict) else one).encode())
            mouth.send(b"[" * 60_000)
        heard = here.until(ProgressReport, run)
        while heard.step is None:
            assert heard == ProgressReport(heard.time, run)
            heard = here.until(ProgressReport, run)
        assert heard == ProgressReport(heard.time, run, step=4)
        assert here.end(run).cause == "stopped"


def test_a_job_that_spoils_its_records_is_stopped_all_the_same(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER))
        here.until(Started, run)
    pid = shim_of(home)
    fd = os.open(home / "runs/job/1/run.json", os.O_RDWR)
    slot_file.write(fd, {"version": 1, "parts": 7})
    os.close(fd)
    with world(home, alive={run: assigned()}) as here:
        here.until(Started, run)
        assert here.end(run).cause == "lost"
        assert not alive(pid)
    shutil.rmtree(home / "runs/job")
