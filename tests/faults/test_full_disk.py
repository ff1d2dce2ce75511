"""A full disk: one line that names the file, and there is what was there before, or nothing."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.integration.commands import JOBS, ROOST, one_error, run

#: Makes room scarce, runs a command in a folder with an old file, and notes what it left there.
SCRIPT = """
{scarce} || exit 99
cd small && cp ../jobs.csv . && printf old > old || exit 99
"$@"; status=$?
cd .. && ls -A small > left && cat small/old > kept
exit $status
"""
#: A tiny file system that nobody else sees, or no file beyond 8 KiB.
TINY = "mount -t tmpfs -o size=16k tmpfs small"
LIMITED = "ulimit -f 8"
MANY = "jobs=400,load=1.5"
COMMANDS: dict[str, list[object]] = {
    "report": ["simulate", "jobs.csv", "--nodes", 1, "--report"],
    "compare": ["compare", "jobs.csv", "--nodes", 1, "-p", "fifo,srtf", "-j", 1, "--report"],
    "save": ["simulate", "--synthetic", MANY, "--stop-at", "1d", "--save"],
    "events": ["simulate", "--synthetic", MANY, "--events"],
    "generate": ["generate", "--set", MANY],
    "inspect": ["inspect", "../many.csv", "--to"],
}
#: Who has figures prints them all the same: the run may have taken long.
TELLING = {"report", "compare", "save", "inspect"}


@cache
def can_mount() -> bool:
    """Whether this user may mount in a name space of their own."""
    tried = subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True)  # noqa: S607
    return tried.returncode == 0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    assert run(ROOST, "generate", "many.csv", "--set", MANY, cwd=folder).returncode == 0
    return folder / "many.csv"


@pytest.mark.parametrize(
    ("scarce", "name", "why"),
    [(TINY, "old", "No space left on device"), (LIMITED, "new", "File too large")],
    ids=["full", "limited"],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_half_written_is_left(
    command: str, scarce: str, name: str, why: str, tmp_path: Path, many: Path
) -> None:
    if scarce == TINY and not can_mount():
        pytest.skip("needs unshare and mount")
    (tmp_path / "small").mkdir()
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "many.csv").symlink_to(many)
    shell = ["bash", "-c", SCRIPT.format(scarce=scarce), "bash"]

    found = run(
        *(["unshare", "-Urm"] if scarce == TINY else []),
        *(*shell, ROOST, *COMMANDS[command], name),
        cwd=tmp_path,
    )

    assert found.returncode == 2, found
    assert one_error(found.stderr) == f"roost: error: cannot write {name}: {why}\n"
    assert (tmp_path / "left").read_text().split() == ["jobs.csv", "old"]
    assert (tmp_path / "kept").read_text() == "old"
    assert bool(found.stdout) == (command in TELLING)


def test_a_full_standard_output_is_an_error_too() -> None:
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(  # noqa: S603 - our own
            [ROOST, "policies"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert found.returncode == 2
    assert one_error(found.stderr) == "roost: error: standard output: No space left on device\n"


@pytest.mark.skipif(os.geteuid() == 0 and not can_mount(), reason="root may write everywhere")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_written_to_is_refused_at_once(
    command: str, tmp_path: Path, many: Path
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "many.csv").symlink_to(many)
    bound = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    shell = ["unshare", "-Urm", "bash", "-c", bound, "shell", "small"] if can_mount() else []
    if not can_mount():
        folder.chmod(0o500)

    arguments = [str(word).replace("../", "") for word in COMMANDS[command]]
    found = run(*shell, ROOST, *arguments, "small/new", cwd=tmp_path)

    assert found.returncode == 2
    assert "cannot write 'small/new': nothing can be written to" in one_error(found.stderr)
    assert found.stdout == ""
    assert not list(folder.iterdir())
