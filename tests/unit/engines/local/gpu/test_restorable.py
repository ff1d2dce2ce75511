"""What the driver cannot bring back is not taken off its GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.engines.local.gpu.restorable import driver_version, refusal


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Two processes; the second maps the driver's file for CUDA IPC."""
    for pid, maps in ((1, "7f00 /usr/lib/libcuda.so.1"), (2, "7f00 /dev/shm/cuda.shm.0.bee.1")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(maps + "\n")
    return tmp_path


def test_memory_shared_between_processes_needs_a_newer_driver(proc: Path) -> None:
    assert "CUDA IPC" in refusal([1, 2], version=580, proc=proc)
    assert refusal([1, 2], version=610, proc=proc) == ""
    assert "CUDA IPC" in refusal([1, 2], version=0, proc=proc)


def test_a_process_alone_shares_with_nobody(proc: Path) -> None:
    assert refusal([2], version=580, proc=proc) == ""
    assert refusal([1, 3], version=580, proc=proc) == ""


def test_a_process_that_the_driver_does_not_know(proc: Path) -> None:
    assert "process 9 holds GPU memory" in refusal([1], [1, 9], 580, proc)


def test_the_version_of_the_driver(tmp_path: Path) -> None:
    assert driver_version(tmp_path / "none") == 0
    (tmp_path / "version").write_text("580.159.04\n")
    assert driver_version(tmp_path / "version") == 580
