"""In the shell: pipes that close, streams that are not there, and how soon it answers."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
from tests.integration.commands import JOBS, ROOST, run

#: What ``import roost`` must not bring along.
HEAVY = {"numpy", "rich", "click", "asyncio", "multiprocessing", "importlib.metadata", "roost.core"}
#: What ``roost --help`` must not bring along.
HEAVIER = {"numpy", "rich", "multiprocessing", "importlib.metadata", "roost.core", "roost.sim"}
BUDGET_S = 0.3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def shell(script: str, cwd: Path) -> tuple[int, str, str]:
    """A script in bash, with ROOST for the command; a failure in a pipe counts."""
    found = run("bash", "-o", "pipefail", "-c", script, cwd=cwd, ROOST=ROOST)
    return found.returncode, found.stdout, found.stderr


@pytest.mark.parametrize(
    "command",
    [
        "policies",
        "policies -o json",
        "placers",
        "simulate jobs.csv --nodes 1",
        "simulate --synthetic jobs=3000 -o csv",
        "simulate jobs.csv --nodes 1 --events /dev/stdout",
        "compare jobs.csv --nodes 1 -p fifo,srtf -j 1",
        "inspect jobs.csv",
        "--help",
    ],
)
def test_whoever_reads_may_go(command: str, folder: Path) -> None:
    status, out, err = shell(f'"$ROOST" {command} | head -1', folder)

    assert status == 0
    assert len(out.splitlines()) == 1
    assert err == ""


def test_files_are_written_though_nobody_reads(folder: Path) -> None:
    status, _, err = shell(
        '"$ROOST" simulate jobs.csv --nodes 1 --report p.html --save run --events log | true',
        folder,
    )
    assert (status, err) == (0, "")
    assert {path.name for path in folder.iterdir()} == {"jobs.csv", "p.html", "run", "log"}


def test_streams_that_are_closed_do_no_harm(folder: Path) -> None:
    assert shell('"$ROOST" policies >&-', folder) == (0, "", "")
    assert shell('"$ROOST" polcies 2>&-', folder) == (2, "", "")
    assert shell('"$ROOST" simulate jobs.csv --nodes 1 <&- >&- 2>&-', folder) == (0, "", "")


def test_a_trace_can_come_through_a_pipe(folder: Path) -> None:
    status, out, _ = shell('"$ROOST" simulate /dev/stdin --nodes 1 -o csv < jobs.csv', folder)
    assert status == 0
    assert out.count("succeeded") == 3


def test_words_beyond_ascii_can_be_printed_anywhere(folder: Path) -> None:
    compare = '"$ROOST" compare --synthetic jobs=20 --nodes 1 --seeds 2 -p fifo -j 1'
    for locale in ("C", "C.UTF-8"):
        status, out, err = shell(
            f"LC_ALL={locale} PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {compare}", folder
        )
        assert (status, err) == (0, ""), locale
        assert "fifo" in out


def test_two_equal_commands_write_equal_logs_whatever_the_hashes(folder: Path) -> None:
    simulate = (
        '"$ROOST" simulate --synthetic jobs=60,elastic=0.3,load=1.3 --nodes 2 -p tiresias '
        "--node-mtbf 9d --seed 3 --events"
    )
    status, out, _ = shell(
        f"PYTHONHASHSEED=1 {simulate} a > a.txt && PYTHONHASHSEED=2 {simulate} b > b.txt "
        '&& cmp a b && "$ROOST" diff a b',
        folder,
    )
    assert status == 0
    assert out.startswith("the same: ")
    status, out, _ = shell(f'{simulate} c --seed 4 > c.txt; "$ROOST" diff a c', folder)
    assert status == 1
    assert out.startswith("first difference at line ")


def best_of(times: int, *args: object, cwd: Path) -> float:
    """The least CPU time that a command took, in seconds."""
    taken = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run(*args, cwd=cwd).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def test_help_and_import_take_little_time(tmp_path: Path) -> None:
    # Measured at 0.05 and 0.02 s.
    assert best_of(5, ROOST, "--help", cwd=tmp_path) < BUDGET_S
    assert best_of(5, sys.executable, "-c", "import roost", cwd=tmp_path) < BUDGET_S
    assert best_of(3, ROOST, "simulate", "--help", cwd=tmp_path) < BUDGET_S


def imported(cwd: Path, *args: object) -> set[str]:
    """The modules that a command brings along."""
    found = run(sys.executable, "-X", "importtime", *args, cwd=cwd)
    assert found.returncode == 0
    return {line.rpartition("|")[2].strip() for line in found.stderr.splitlines()}


def test_heavy_modules_are_imported_when_they_are_needed(tmp_path: Path) -> None:
    assert not HEAVY & imported(tmp_path, "-c", "import roost")
    assert not HEAVIER & imported(tmp_path, ROOST, "--help")
    assert not {"numpy", "rich"} & imported(tmp_path, ROOST, "simulate", "--help")
