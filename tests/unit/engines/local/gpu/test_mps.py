"""MPS daemons: started once, found again, told from others', and gone when they are."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roost.engines.local.gpu import mps
from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.gpu.mps import MpsDaemon

CONTROL = """#!/bin/bash
set -e
folder=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -d ]; then
  echo "$CUDA_VISIBLE_DEVICES" >> "$folder/started"
  (exec -a nvidia-cuda-mps-control /bin/sleep 600) > /dev/null 2>&1 & echo $! > "$folder/number"
else
  read -r command
  [ "$command" = "quit -t 1" ] && kill "$(cat "$folder/number")"
fi
"""


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control program that only starts something that sleeps."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(CONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")
    return program


@pytest.fixture
def daemon(control: Path, tmp_path: Path) -> Iterator[MpsDaemon]:
    assert control.exists()
    found = MpsDaemon(tmp_path / "gpu", "GPU-1", 0)
    yield found
    found.stop()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_it_is_started_once(daemon: MpsDaemon) -> None:
    assert not daemon.alive()
    daemon.start()
    daemon.start()
    assert daemon.alive()
    assert (daemon.pipe / "started").read_text() == "GPU-1\n"


def test_another_server_finds_it(daemon: MpsDaemon, tmp_path: Path) -> None:
    daemon.start()
    assert MpsDaemon(tmp_path / "gpu", "GPU-1", 0).alive()
    assert not MpsDaemon(tmp_path / "gpu", "GPU-2", 1).alive()


def test_it_ends_when_told(daemon: MpsDaemon) -> None:
    daemon.start()
    daemon.stop()
    assert not daemon.alive()


def test_its_death_is_noticed_and_it_can_be_started_again(daemon: MpsDaemon) -> None:
    daemon.start()
    os.kill(int((daemon.pipe / "number").read_text()), signal.SIGKILL)
    until(lambda: not daemon.alive())
    daemon.start()
    assert daemon.alive()


def test_one_that_does_not_listen_is_killed(
    daemon: MpsDaemon, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "_STOP_S", 0.2)
    daemon.start()
    control.write_text("#!/bin/bash\ncat > /dev/null")
    daemon.stop()
    until(lambda: not daemon.alive())


def test_why_it_does_not_start(daemon: MpsDaemon, control: Path) -> None:
    control.write_text("#!/bin/bash\necho 'no such device'; exit 1")
    with pytest.raises(DriverRefused, match="GPU 0: no such device"):
        daemon.start()


def test_a_machine_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no CUDA MPS" in mps.available()
    with pytest.raises(DriverRefused, match="no CUDA MPS"):
        MpsDaemon(tmp_path, "GPU-1", 0).start()


def test_what_clients_are_given(daemon: MpsDaemon) -> None:
    env = daemon.env(250, 4096, capped=True)
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == str(daemon.pipe)
    free = daemon.env(250, 0, capped=False)
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in free
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in free


def test_a_long_home_gets_a_short_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    first, again = MpsDaemon(deep, "GPU-1", 0), MpsDaemon(deep, "GPU-1", 0)
    assert len(os.fsencode(first.pipe)) < 80
    assert first.pipe == again.pipe
    assert MpsDaemon(deep, "GPU-1", 1).pipe != first.pipe
    first.pipe.mkdir()
    again.stop()
    assert not first.pipe.exists()


def test_one_that_does_not_return_is_given_up(
    daemon: MpsDaemon, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "_START_S", 0.2)
    control.write_text('#!/bin/bash\necho $$ > "$CUDA_MPS_PIPE_DIRECTORY/number"; sleep 600')
    with pytest.raises(
        DriverRefused, match=r"GPU 0: nvidia-cuda-mps-control does not return within 0.2"
    ):
        daemon.start()
    assert not Path(f"/proc/{(daemon.pipe / 'number').read_text().strip()}/cmdline").exists()


def test_one_that_dies_at_once(
    daemon: MpsDaemon, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "_START_S", 0.2)
    control.write_text("#!/bin/bash\necho 'cannot see a device'")
    with pytest.raises(DriverRefused, match="GPU 0: cannot see a device"):
        daemon.start()


def test_root_serves_all_accounts_where_the_program_can(daemon: MpsDaemon, control: Path) -> None:
    note = 'set -e\necho "$*" >> "$CUDA_MPS_PIPE_DIRECTORY/asked"\n'
    control.write_text(CONTROL.replace("set -e\n", note))
    daemon.start()
    assert (daemon.pipe / "asked").read_text() == ("-d -M\n" if os.geteuid() == 0 else "-d\n")


def test_a_program_without_that_is_started_plainly(daemon: MpsDaemon, control: Path) -> None:
    control.write_text(CONTROL.replace("set -e\n", 'set -e\n[ "$2" = "" ] || exit 1\n'))
    daemon.start()
    assert daemon.alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_process_of_somebody_else_is_no_daemon(daemon: MpsDaemon) -> None:
    name = ["/bin/nvidia-cuda-mps-control", "60"]
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe)}
    with subprocess.Popen(name, executable="/bin/sleep", env=env) as ours:  # noqa: S603 - our own
        try:
            until(daemon.alive)
        finally:
            ours.kill()
    with subprocess.Popen(  # noqa: S603 - our own
        name, executable="/bin/sleep", env=env, user=65534
    ) as theirs:
        try:
            command = Path(f"/proc/{theirs.pid}/cmdline")
            until(lambda: command.read_bytes().startswith(b"/bin/nvidia"))
            assert not daemon.alive()
            daemon.stop()
            assert theirs.poll() is None, "nor is it ended"
        finally:
            theirs.kill()


def test_a_link_is_not_taken_for_the_folder(daemon: MpsDaemon, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (elsewhere / "control").touch()
    daemon.pipe.parent.mkdir(parents=True, exist_ok=True)
    daemon.pipe.symlink_to(elsewhere)
    with pytest.raises(DriverRefused, match="belongs to somebody else"):
        daemon.start()
    assert elsewhere.stat().st_mode & 0o777 == 0o700
    assert (elsewhere / "control").exists()
