"""Ctrl-C, termination and killed processes: nothing goes on running, no file is left."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.commands import ROOST, one_error

#: Long enough that it cannot be over before it is interrupted.
LONG = ["--synthetic", "jobs=8000,load=1.5", "--nodes", "8", "--progress"]
SIMULATE = [
    "simulate",
    *LONG,
    "-p",
    "las",
    "--report",
    "page.html",
    "--save",
    "run",
    "--events",
    "log",
]
COMPARE = ["compare", *LONG, "-p", "las,gittins,drf", "-j", "2", "--report", "page.html"]
BENCH = ["bench", "sim", "--trace", "jobs.csv", "--nodes", "8", "--policies", "las"]


@contextmanager
def started(arguments: list[str], cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a group of its own that is well under way."""
    with subprocess.Popen(  # noqa: S603 - our own
        [ROOST, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Read standard error until that text has come."""
    assert process.stderr is not None
    seen = b""
    while text not in seen:
        more = os.read(process.stderr.fileno(), 65536)
        assert more, seen
        seen += more


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a command has started to work for it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@contextmanager
def all_end(pids: list[int]) -> Iterator[None]:
    """Whatever happens inside, these processes end soon after."""
    with ExitStack() as stack:
        handles = [os.pidfd_open(pid) for pid in pids]
        for handle in handles:
            stack.callback(os.close, handle)
        yield
        for handle in handles:
            ready, _, _ = select.select([handle], [], [], 20.0)
            assert ready, "a worker goes on"


def last_line(process: subprocess.Popen[bytes]) -> str:
    """What a command says in the end, after its progress."""
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err, err.decode()
    return err.decode().splitlines()[-1].rpartition("\x1b[2K")[2].rpartition("\x1b[?25h")[2]


def to_all(process: subprocess.Popen[bytes]) -> None:
    """As a terminal does it."""
    os.killpg(process.pid, signal.SIGINT)


def to_one(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)


def terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()


def hang_up(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGHUP)


@pytest.mark.parametrize(("stop", "status"), [(to_one, 130), (terminate, 143), (hang_up, 129)])
def test_a_run_that_is_stopped_leaves_nothing(
    stop: Callable[[subprocess.Popen[bytes]], None], status: int, tmp_path: Path
) -> None:
    with started(SIMULATE, tmp_path) as process:
        wait_for(process, b"jobs, simulated")
        assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]  # the draft of the log
        stop(process)
        said = last_line(process)
    assert process.returncode == status
    assert said == "interrupted" or status != 130
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("stop", "status"), [(to_all, 130), (to_one, 130), (terminate, 143)])
def test_a_comparison_that_is_stopped_takes_its_processes_along(
    stop: Callable[[subprocess.Popen[bytes]], None], status: int, tmp_path: Path
) -> None:
    with started(COMPARE, tmp_path) as process:
        wait_for(process, b"jobs, simulated")
        working = workers(process)
        assert len(working) == 2
        with all_end(working):
            stop(process)
            said = last_line(process)
    assert process.returncode == status
    assert said == "interrupted" or status != 130
    assert not list(tmp_path.iterdir())


def test_the_processes_of_a_killed_comparison_end_too(tmp_path: Path) -> None:
    with started(COMPARE, tmp_path) as process:
        wait_for(process, b"jobs, simulated")
        with all_end(workers(process)):
            process.kill()
    assert not list(tmp_path.iterdir())


def test_a_killed_worker_is_an_error_of_one_line(tmp_path: Path) -> None:
    with started(COMPARE, tmp_path) as process:
        wait_for(process, b"jobs, simulated")
        working = workers(process)
        with all_end(working):
            os.kill(working[0], signal.SIGKILL)
            said = last_line(process)
    assert process.returncode == 2
    assert "a worker process was killed" in one_error(f"{said}\n")
    # Which of the two has begun by now is chance: the other may still be reading its jobs.
    assert re.search(r"under way: '(las|gittins)' with seed 0", said)
    assert not list(tmp_path.iterdir())


def test_a_benchmark_takes_its_process_along(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    subprocess.run(  # noqa: S603 - our own
        [ROOST, "generate", jobs, "--set", "jobs=8000,load=1.5"], check=True, capture_output=True
    )
    with started(BENCH, tmp_path) as process:
        while not (working := workers(process)):
            assert process.poll() is None
        with all_end(working):
            to_all(process)
            said = last_line(process)
    assert process.returncode == 130
    assert said == "interrupted"
