"""Which processes are a worker's: its tree, what left it, and nobody else's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.engines.local.gpu.activity_meters import CpuMeter
from roost.engines.local.gpu.signals import SignalDriver
from roost.engines.local.gpu.worker_processes import WorkerProcesses
from roost.engines.local.shim import process_tree

#: A reaper with two workers. Each has a child that stays, one that leaves its tree, and one that
#: leaves its session as well.
SHIM = """
import ctypes, os, signal, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)

def note(name):
    with open(f"draft-{name}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"draft-{name}", name)
    while True:
        time.sleep(60)

def worker(name):
    os.setsid()
    if os.fork() == 0:
        note(f"{name}-stays")
    if os.fork() == 0:
        if os.fork() == 0:
            note(f"{name}-leaves")
        os._exit(0)
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            note(f"{name}-hides")
        os._exit(0)
    os.wait()
    os.wait()
    note(name)

for name in ("a", "b"):
    if os.fork() == 0:
        worker(name)
while True:
    time.sleep(60)
"""
NAMES = [f"{worker}{part}" for worker in "ab" for part in ("", "-stays", "-leaves", "-hides")]


@pytest.fixture
def pids(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """The processes by name; their reaper passes for a shim, or for anybody."""
    program = tmp_path / getattr(request, "param", "shim") / "__main__.py"
    program.parent.mkdir()
    program.write_text(SHIM)
    command = [sys.executable, "-I", "-S", str(program)]
    with subprocess.Popen(command, cwd=tmp_path) as process:  # noqa: S603 - our own
        try:
            deadline = time.monotonic() + 60
            while not all((tmp_path / name).exists() for name in NAMES):
                assert time.monotonic() < deadline
                time.sleep(0.005)
            yield {name: int((tmp_path / name).read_text()) for name in NAMES}
        finally:
            for one in reversed(process_tree.descendants(process.pid)):
                process_tree.send(one, signal.SIGKILL)
            process.kill()


def test_what_left_a_worker_is_still_its_own(pids: dict[str, int]) -> None:
    found = {one.pid for one in WorkerProcesses(pids["a"], [pids["b"]])()}
    mine = {pids[name] for name in NAMES if name.startswith("a")}
    assert found == mine | {pids["b-hides"]}, "nobody can tell whose that is"


@pytest.mark.parametrize("pids", ["someone"], indirect=True)
def test_another_reaper_has_other_children(pids: dict[str, int]) -> None:
    assert [one.pid for one in WorkerProcesses(pids["a"])()] == [pids["a"], pids["a-stays"]]


def test_all_of_a_worker_is_stopped_and_goes_on(pids: dict[str, int]) -> None:
    driver = SignalDriver()
    driver.trees[pids["a"]] = WorkerProcesses(pids["a"], [pids["b"]])

    def states(worker: str) -> str:
        found = [process_tree.look(pids[name]) for name in NAMES if name.startswith(worker)]
        return "".join(one.state for one in found if one)

    driver.lock(pids["a"], 10_000)
    assert states("a") == "TTTT"
    assert "T" not in states("b")[:3]
    driver.unlock(pids["a"])
    assert "T" not in states("a") + states("b")


def test_a_process_lives_on_when_its_first_thread_has_ended(tmp_path: Path) -> None:
    script = """if 1:
        import ctypes, threading, time
        def stay():
            open("up", "w").close()
            time.sleep(600)
        threading.Thread(target=stay).start()
        ctypes.CDLL(None).pthread_exit(None)
    """
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) as process:  # noqa: S603
        try:
            stat = Path(f"/proc/{process.pid}/stat")
            deadline = time.monotonic() + 60
            while not (tmp_path / "up").exists() or ") Z " not in stat.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.005)
            found = process_tree.look(process.pid)
            assert found is not None
            assert found.state in "SR"
            SignalDriver().lock(process.pid, 10_000)
            found = process_tree.look(process.pid)
            assert found is not None
            assert found.state == "T"
            assert process.pid in {one.pid for one in process_tree.descendants(os.getpid())}
        finally:
            process.kill()


def test_the_work_of_children_that_ended_counts() -> None:
    before = CpuMeter().used_s([os.getpid()])
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", burn], check=True)  # noqa: S603 - our own
    assert CpuMeter().used_s([os.getpid()]) - before > 0.15


def test_a_worker_that_is_gone() -> None:
    with subprocess.Popen([shutil.which("true") or "/bin/true"]) as process:  # noqa: S603
        process.wait()
    assert WorkerProcesses(process.pid)() == []
