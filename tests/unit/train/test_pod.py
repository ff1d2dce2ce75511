"""The first process of a pod: ends as its command does, passes signals on, leaves nothing."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.train.pod import FORWARDED

WRAPPER = [sys.executable, "-m", "roost.train.pod", "--"]
_ADOPT_ORPHANS = 36
#: What the command does not inherit as ignored. SIGPIPE and SIGXFSZ are ignored by Python itself.
RESET = (*FORWARDED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
#: The first of the signals for real time, as a mask: some of them are the C library's own.
REAL_TIME = 1 << 31


def plain(**more: str) -> dict[str, str]:
    found = {name: text for name, text in os.environ.items() if not name.startswith("ROOST_")}
    return found | more


def start(*command: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own
        [*WRAPPER, *command],
        env=plain(**environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=adopt_orphans,  # noqa: PLW1509 - as the first process of a container does
    )


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def until(seen: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -SEGV $$"], 139),
        (["/nowhere/to/be/found"], 127),
        (["/"], 126),
        ([], 2),
    ],
)
def test_it_ends_as_its_command_does(command: list[str], status: int) -> None:
    wrapper = start(*command)
    out, _ = wrapper.communicate(timeout=60)
    assert (wrapper.returncode, out) == (status, "")


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1"])
def test_signals_are_passed_on_to_the_whole_group(name: str) -> None:
    script = f"trap 'echo {name}; exit 5' {name}; echo up; while :; do sleep 0.05; done"
    wrapper = start("bash", "-c", f"({script}) & {script}; wait")
    assert wrapper.stdout is not None
    assert [wrapper.stdout.readline(), wrapper.stdout.readline()] == ["up\n", "up\n"]
    wrapper.send_signal(getattr(signal, f"SIG{name}"))
    out, _ = wrapper.communicate(timeout=60)
    assert wrapper.returncode == 5
    assert set(out.split()) == {name}


def test_orphans_are_taken_leave_of(tmp_path: Path) -> None:
    script = "(sleep 0.1 & echo $! > orphan) & wait; sleep 30"
    wrapper = start("sh", "-c", f"cd {tmp_path}; {script}")
    orphan = tmp_path / "orphan"
    until(lambda: orphan.exists() and bool(orphan.read_text().strip()))
    pid = orphan.read_text().strip()
    until(lambda: not Path("/proc", pid).exists())
    assert wrapper.poll() is None
    wrapper.terminate()
    assert wrapper.wait(60) == 143
    wrapper.communicate()


def test_nothing_of_the_command_outlives_it(tmp_path: Path) -> None:
    wrapper = start("sh", "-c", f"sleep 300 >/dev/null 2>&1 & echo $! > {tmp_path}/left; exit 3")
    wrapper.communicate(timeout=60)
    assert wrapper.returncode == 3
    pid = (tmp_path / "left").read_text().strip()
    until(lambda: not Path("/proc", pid).exists())


def test_the_command_begins_as_if_nobody_stood_by() -> None:
    look = "import os; print(os.getpgrp() == os.getpid(), 'ROOST_RUN_TOKEN' in os.environ)"
    wrapper = start(sys.executable, "-c", look)
    assert wrapper.communicate(timeout=60)[0].split() == ["True", "False"]
    wrapper = start("grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
    _, blocked, _, ignored = wrapper.communicate(timeout=60)[0].split()
    assert int(blocked, 16) == 0
    inherited = ignored_here() & ~sum(1 << (number - 1) for number in RESET)
    assert int(ignored, 16) % REAL_TIME == inherited % REAL_TIME


def ignored_here() -> int:
    """The signals that this process ignores, as a mask: a shell's background job ignores some."""
    (line,) = re.findall(r"^SigIgn:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(line, 16)


def test_it_can_be_stopped_while_it_waits_to_be_told_who_trains(tmp_path: Path) -> None:
    told = {"ROOST_JOB": "a", "ROOST_ATTEMPT": "1", "ROOST_MEMBER": "0", "ROOST_RUN_TOKEN": "x"}
    wrapper = start(
        "touch",
        str(tmp_path / "begun"),
        ROOST_MEETING="http://127.0.0.1:9",
        ROOST_MEMBERS=str(tmp_path / "io" / "members.json"),
        ROOST_PROGRESS=str(tmp_path / "io" / "progress"),
        **told,
    )
    assert wrapper.stderr is not None
    assert "cannot be reached" in wrapper.stderr.readline()
    wrapper.terminate()
    wrapper.communicate(timeout=60)
    assert wrapper.returncode == 143
    assert not (tmp_path / "begun").exists()


def test_it_brings_the_library_to_where_it_is_missing(tmp_path: Path) -> None:
    subprocess.run([*WRAPPER[:-1], "--install", str(tmp_path)], check=True, timeout=60)  # noqa: S603
    subprocess.run([*WRAPPER[:-1], "--install", str(tmp_path)], check=True, timeout=60)  # noqa: S603
    assert sorted(path.name for path in (tmp_path / "roost").iterdir()) == [
        "__init__.py",
        "elastic",
        "train",
    ]
    look = "import roost.train as t, roost.train.pod; print(t.__file__, t.report(1))"
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-S", "-c", look],
        env={"PYTHONPATH": str(tmp_path)},
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.split() == [str(tmp_path / "roost" / "train" / "__init__.py"), "None"]
