"""The calls of NVIDIA's driver, against a library that notes what it is given."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.engines.local.gpu.fakes import FakeDriver

from roost.engines.local.gpu import driver as module
from roost.engines.local.gpu.driver import (
    NOT_READY,
    NOT_SUPPORTED,
    STOPPED,
    CudaDriver,
    DriverRefused,
    Stage,
    advance,
)

OLD, NEW = "GPU-00112233-4455-6677-8899-aabbccddeeff", "GPU-ffeeddcc-bbaa-9988-7766-554433221100"


class Library:
    """Stands in for libcuda: raw bytes of what it was given, by call."""

    def __init__(self) -> None:
        self.version = 13000
        self.given: list[tuple[str, int, bytes]] = []
        self.codes: dict[str, int] = {}
        self.state = 0
        self.pairs = b""
        self.held = threading.Event()
        self.held.set()

    def cuInit(self, _flags: int) -> int:  # noqa: N802 - its name
        return self.codes.get("Init", 0)

    def cuDriverGetVersion(self, found: Any) -> int:  # noqa: N802
        found._obj.value = self.version
        return 0

    def cuGetErrorString(self, _code: int, text: Any) -> int:  # noqa: N802
        text._obj.value = b"something else"
        return 0

    def __getattr__(self, name: str) -> Any:
        verb = name.removeprefix("cuCheckpointProcess")
        if verb == name:
            raise AttributeError(name)

        def call(pid: int, argument: Any) -> int:
            given = argument._obj
            self.given.append((verb, pid, bytes(given)))
            if verb == "GetState":
                given.value = self.state
            if verb == "Restore" and given.count:
                self.pairs = ctypes.string_at(given.pairs, 32 * given.count)
            if verb == "Lock":
                self.held.wait(60)
            return self.codes.get(verb, 0)

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: found)
    return found


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def test_every_structure_has_64_bytes_and_reserves_are_zero(library: Library) -> None:
    driver = CudaDriver()
    pid = os.getpid()
    driver.lock(pid, 1234)
    driver.checkpoint(pid)
    driver.restore(pid)
    driver.unlock(pid)
    assert [verb for verb, _, _ in library.given] == ["Lock", "Checkpoint", "Restore", "Unlock"]
    lock, *others = [given for _, _, given in library.given]
    assert lock == (1234).to_bytes(4, "little") + bytes(60)
    assert others == [bytes(64)] * 3


def test_moves_become_pairs_of_uuids(library: Library) -> None:
    CudaDriver().restore(7, [(OLD, NEW)])
    assert library.pairs.hex() == OLD[4:].replace("-", "") + NEW[4:].replace("-", "")
    assert library.given[0][2][8:12] == (1).to_bytes(4, "little")


def test_a_move_to_where_it_was_is_none(library: Library) -> None:
    CudaDriver().restore(7, [(OLD, OLD)])
    assert library.given == [("Restore", 7, bytes(64))]


def test_an_older_driver_cannot_move(library: Library) -> None:
    library.version = 12080
    with pytest.raises(DriverRefused, match="another GPU"):
        CudaDriver().restore(7, [(OLD, NEW)])
    assert library.given == []


def test_a_uuid_that_is_none(library: Library) -> None:
    assert library.version
    with pytest.raises(DriverRefused, match="not the UUID"):
        CudaDriver().restore(7, [(OLD, "GPU-1")])


def test_states(library: Library) -> None:
    library.state = 2
    assert CudaDriver().state(7) is Stage.CHECKPOINTED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (NOT_SUPPORTED, "MPS"),
        (401, "not in the state"),
        (3, "does not use CUDA"),
        (77, "something"),
    ],
)
def test_refusals_are_sentences(library: Library, code: int, words: str) -> None:
    library.codes["Unlock"] = code
    with pytest.raises(DriverRefused, match=words) as told:
        CudaDriver().unlock(7)
    assert told.value.code == code


def test_a_driver_that_does_not_start(library: Library) -> None:
    library.codes["Init"] = 100
    with pytest.raises(DriverRefused, match="no device"):
        CudaDriver()


def test_an_old_driver_has_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert "no process checkpoint" in CudaDriver.missing()
    with pytest.raises(DriverRefused, match="no process checkpoint"):
        CudaDriver()


def test_no_driver_at_all() -> None:
    assert "no NVIDIA driver" in CudaDriver.missing("libnothing.so.0")
    with pytest.raises(DriverRefused, match="no NVIDIA driver"):
        CudaDriver("libnothing.so.0")


def test_a_stopped_process_is_not_locked(
    library: Library, sleeper: subprocess.Popen[bytes]
) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    with pytest.raises(DriverRefused, match="a signal has stopped it") as told:
        CudaDriver().lock(sleeper.pid, 1000)
    assert told.value.code == STOPPED
    assert library.given == []


def test_a_lock_that_comes_too_late_is_undone(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRACE_MS", 0)
    undone = threading.Event()
    driver = CudaDriver()
    monkeypatch.setattr(driver, "unlock", lambda _pid: undone.set())
    library.held.clear()
    with pytest.raises(DriverRefused, match="in time") as told:
        driver.lock(os.getpid(), 10)
    assert told.value.code == NOT_READY
    assert not undone.is_set()
    library.held.set()
    assert undone.wait(60)


def test_whatever_was_done_to_it_a_process_goes_on() -> None:
    driver = FakeDriver(1, 2, 3, 4)
    driver.stages |= {2: Stage.LOCKED, 3: Stage.CHECKPOINTED, 4: Stage.FAILED}
    for pid in (1, 2, 3):
        advance(driver, pid)
        assert driver.stages[pid] is Stage.RUNNING
    with pytest.raises(DriverRefused, match="lost its state"):
        advance(driver, 4)
