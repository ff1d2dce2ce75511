"""CPU slots: real process trees that are stopped and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from roost.engines.local.gpu.driver import NOT_READY, DriverRefused, Stage
from roost.engines.local.gpu.signals import SignalDriver, cpu_s, family
from roost.engines.local.shim import process_tree

FAMILY = "import subprocess, time; subprocess.Popen(['/bin/sleep', '600']); time.sleep(600)"


@pytest.fixture
def parent() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", FAMILY]) as process:  # noqa: S603 - our own
        # One that forks waits for the kernel until its child is a program of its own.
        until(lambda: states(process.pid) == "SS")
        yield process.pid
        for one in reversed(family(process.pid)):
            os.kill(one.pid, signal.SIGKILL)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def states(pid: int) -> str:
    return "".join(one.state for one in family(pid))


def test_a_tree_is_stopped_and_goes_on(parent: int) -> None:
    driver = SignalDriver()
    assert driver.state(parent) is Stage.RUNNING
    driver.lock(parent, 1000)
    assert states(parent) == "TT"
    assert driver.state(parent) is Stage.LOCKED
    driver.unlock(parent)
    until(lambda: "T" not in states(parent))
    assert driver.state(parent) is Stage.RUNNING


def test_parked_means_no_more_than_stopped(parent: int) -> None:
    driver = SignalDriver()
    with pytest.raises(DriverRefused, match="not stopped"):
        driver.checkpoint(parent)
    driver.lock(parent, 1000)
    driver.checkpoint(parent)
    assert driver.state(parent) is Stage.CHECKPOINTED
    driver.restore(parent)
    assert driver.state(parent) is Stage.LOCKED
    driver.unlock(parent)


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    driver = SignalDriver()
    for call in (driver.state, driver.unlock, driver.checkpoint, driver.restore):
        with pytest.raises(DriverRefused, match="gone"):
            call(process.pid)
    assert cpu_s([process.pid]) == 0.0


def test_what_does_not_stop_in_time_goes_on(parent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = signal.SIGSTOP
    send = process_tree.send
    monkeypatch.setattr(
        process_tree, "send", lambda one, number: number == stop or send(one, number)
    )
    with pytest.raises(DriverRefused, match="does not come to a stop") as told:
        SignalDriver().lock(parent, 20)
    assert told.value.code == NOT_READY
    assert "T" not in states(parent)
