"""What a dead shim left behind is found by its marks and killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.engines.local import processes
from roost.engines.local.processes import Traces
from roost.engines.local.shim import process_tree

TRACES = Traces(f"{os.getpid():016x}", 1 << 62 | os.getpid(), "")


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    env = {"ROOST_RUN_TOKEN": TRACES.token}
    with subprocess.Popen(["/bin/sleep", "600"], env=env) as process:
        yield process
        process.kill()


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many processes each look at the whole machine found."""
    found: list[int] = []
    real = processes.leftovers

    def noting(traces: Traces) -> list[process_tree.ProcessInfo]:
        processes = real(traces)
        found.append(len(processes))
        return processes

    monkeypatch.setattr(processes, "leftovers", noting)
    return found


def test_leftovers_are_killed(left: subprocess.Popen[bytes], scans: list[int]) -> None:
    assert processes.kill_leftovers(TRACES) == []
    assert left.wait(60) == -9
    assert scans == [1, 0]


def test_the_machine_is_not_searched_again_while_something_dies(
    left: subprocess.Popen[bytes], scans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "send", lambda *_: True)
    assert processes.kill_leftovers(TRACES, within_s=0.2) == [left.pid]
    assert scans == [1]


def test_a_cgroup_is_killed_before_anybody_is_searched(tmp_path: Path, scans: list[int]) -> None:
    (tmp_path / "cgroup.kill").touch()
    assert processes.kill_leftovers(TRACES._replace(cgroup=str(tmp_path))) == []
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    assert scans == [0]


@pytest.mark.parametrize("told", [True, False], ids=["the kernel tells children", "it does not"])
def test_files_without_a_name_are_found_below_a_process_alone(
    *, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:
        (tmp_path / "proc").mkdir()
        monkeypatch.setattr(processes, "_PROC", tmp_path / "proc")
    script = 'exec 3>"$1"; rm "$1"; head -c 300000 /dev/zero >&3; echo ready; read -r end'
    command = ["sh", "-c", 'sh -c "$0" sh "$1"; :', script, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - ours
        assert process.stdout is not None
        process.stdout.readline()
        device = tmp_path.stat().st_dev
        found = processes.nameless_bytes(os.getpid(), device)
        beside = processes.nameless_bytes(process.pid, device + 1)
        process.communicate()

    assert found >= 300_000
    assert beside == 0
    assert processes.nameless_bytes(process.pid, device) == 0
