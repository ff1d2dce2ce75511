"""What a container executes, tried with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from roost.errors import InvalidSpec
from roost.jobfile.program import Program, Task
from roost.kubernetes.jobs.containers import argv_of


def program(script: str = "", command: tuple[str, ...] = (), **more: object) -> Program:
    return Program(tasks={"worker": Task(command, script)}, **more)  # type: ignore[arg-type]


def test_a_plain_command_runs_as_it_is() -> None:
    assert argv_of(program(command=("python", "x.py")), "worker") == ["python", "x.py"]
    assert argv_of(program(command=("a",)), "worker", ("wrap", "--")) == ["wrap", "--", "a"]


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 7", 7), ("true", 0), ("kill -SEGV $$", 139), ("false | true", 1), ("exit 255", 255)],
)
def test_a_script_ends_as_it_ends(script: str, code: int) -> None:
    ran = subprocess.run(argv_of(program(script), "worker"), check=False, timeout=60)  # noqa: S603

    assert ran.returncode == code


def test_setup_comes_first_and_its_failure_is_the_end(tmp_path: Path) -> None:
    fine = argv_of(program("cat made", setup="echo hello > made"), "worker")
    broken = argv_of(program("touch ran", setup="exit 4"), "worker")

    ran = subprocess.run(fine, cwd=tmp_path, capture_output=True, check=True, timeout=60)  # noqa: S603
    assert ran.stdout == b"hello\n"
    assert subprocess.run(broken, cwd=tmp_path, check=False, timeout=60).returncode == 4  # noqa: S603
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_the_whole_group_hears_the_signal_of_its_choice(tmp_path: Path, name: str) -> None:
    heard = tmp_path / "heard"
    loop = "while true; do sleep 0.02; done"
    inner = f"trap 'echo {name} >> {heard}; exit 9' {name}; touch {tmp_path}/up; {loop}"
    argv = argv_of(program(f'bash -c "{inner}" & wait $!', stop_signal=name), "worker")
    process = subprocess.Popen(argv, start_new_session=True)  # noqa: S603
    try:
        _wait_for(tmp_path / "up")
        os.kill(process.pid, signal.SIGTERM)  # what a kubelet sends to the first process
        process.wait(timeout=60)
        _wait_for(heard)
    finally:
        process.kill()
        process.wait()
    assert heard.read_text() == f"{name}\n"


def test_a_repository_is_checked_out(tmp_path: Path) -> None:
    origin, work = tmp_path / "origin", tmp_path / "work"
    work.mkdir()
    git = ["git", "-c", "user.email=a@b.c", "-c", "user.name=a"]
    subprocess.run([*git, "init", "-q", str(origin)], check=True)  # noqa: S603
    (origin / "train.py").write_text("print('trained')")
    subprocess.run([*git, "-C", str(origin), "add", "."], check=True)  # noqa: S603
    subprocess.run([*git, "-C", str(origin), "commit", "-qm", "x"], check=True)  # noqa: S603
    argv = argv_of(program(command=("cat", "train.py"), git=(f"file://{origin}", "")), "worker")

    ran = subprocess.run(argv, cwd=work, capture_output=True, check=True, timeout=60)  # noqa: S603
    assert ran.stdout == b"print('trained')"


def test_an_address_is_no_option() -> None:
    with pytest.raises(InvalidSpec, match="cannot check out"):
        argv_of(program("x", git=("--upload-pack=x", "")), "worker")
    with pytest.raises(InvalidSpec, match="role 'ps' has nothing to run"):
        argv_of(program("x"), "ps")


def _wait_for(file: Path) -> None:
    for _ in range(500):
        if file.exists() and (file.name == "up" or file.read_text()):
            return
        time.sleep(0.02)
    raise AssertionError(f"{file} never came")
