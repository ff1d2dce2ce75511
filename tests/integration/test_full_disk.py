"""A full disk: one line that names the file, and under its name what was there before, or nothing."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.integration.commands import JOBS, ROOST, one_error, run

#: Mounts a tiny file system that nobody else sees, runs a command, and lists what it left.
TINY = """
mount -t tmpfs -o size=16k tmpfs "$1" && shift || exit 99
cd "$(dirname "$0")" && cp jobs.csv seed.csv small/ 2>/dev/null; cd small
printf old > old
"$@"; status=$?
cd ..; ls -A small | sort | tr '\\n' ' ' > left; cat small/old > old
exit $status
"""
#: Lets no file grow beyond some KiB.
LIMITED = """
shift; cd small; cp ../jobs.csv . ; printf old > old
ulimit -f 8; "$@"; status=$?; ulimit -f unlimited 2>/dev/null
cd ..; ls -A small | sort | tr '\\n' ' ' > left; cat small/old > old
exit $status
"""
MANY = "jobs=400,load=1.5"
COMMANDS = {
    "report": ["simulate", "jobs.csv", "--nodes", 1, "--report"],
    "compare": ["compare", "jobs.csv", "--nodes", 1, "-p", "fifo,srtf", "-j", 1, "--report"],
    "save": ["simulate", "--synthetic", MANY, "--stop-at", "2d", "--save"],
    "events": ["simulate", "--synthetic", MANY, "--events"],
    "generate": ["generate", "--set", MANY],
    "inspect": ["inspect", "../many.csv", "--to"],
    "demo": ["demo", "--report"],
}
#: These say what they found before they write it down.
TELLING = {"report", "compare", "save", "demo"}


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


@pytest.mark.parametrize("name", ["new", "old"])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_half_written_is_left(command: str, name: str, tmp_path: Path, many: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "many.csv").symlink_to(many)
    # An old file in its place half of the time, and either way of running out of room.
    shell = ["unshare", "-Urm", "bash", "-c", TINY] if can_mount() else ["bash", "-c", LIMITED]

    found = run(
        *(*shell, tmp_path / "shell", "small", ROOST, *COMMANDS[command], name), cwd=tmp_path
    )

    assert found.returncode == 2, found
    error = one_error(found.stderr)
    assert f"cannot write {name}: " in error
    assert any(why in error for why in ("No space left on device", "File too large"))
    assert (tmp_path / "old").read_text() == "old"
    assert (tmp_path / "left").read_text().split() == ["jobs.csv", "old"]
    assert bool(found.stdout) == (command in TELLING | {"generate", "inspect"}), found.stdout


def test_a_full_standard_output_is_an_error_too(tmp_path: Path) -> None:
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
