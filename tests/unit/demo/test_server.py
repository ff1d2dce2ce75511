"""A thrown-away server finds what belongs to it, ends that, and nothing else."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.demo.server import ScratchServer, _later, _sweep, scratch_server
from roost.errors import Fatal


@contextmanager
def sleeper(**environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}) as process:  # noqa: S607
        try:
            # A process that has just begun shows an empty environment for a moment.
            while not Path(f"/proc/{process.pid}/environ").read_bytes():
                assert process.poll() is None
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_processes_of_jobs_end_with_it_and_others_do_not(tmp_path: Path) -> None:
    with scratch_server("test", 2) as server:
        inside = str(server.home / "runs" / "a" / "1" / "io" / "progress")
        with sleeper(ROOST_PROGRESS=inside) as own, sleeper(NOTE=inside) as other:
            assert server.processes() == [own.pid]
            with scratch_server("test", 2) as second:
                assert second.processes() == []
            _sweep(server)
            assert own.wait(60) == -signal.SIGKILL
            assert other.poll() is None
    assert list(tmp_path.iterdir()) == []


def test_its_warden_ends_with_it() -> None:
    program = "import time; print(1, flush=True); time.sleep(60)"
    with scratch_server("test", 1) as server:
        command = [sys.executable, "-c", program, "/x/engines/local/gpu/__main__.py", "warden"]
        with subprocess.Popen(  # noqa: S603 - our own
            [*command, str(server.home / "gpu")], stdout=subprocess.PIPE
        ) as warden:
            assert warden.stdout is not None
            warden.stdout.readline()
            assert server.processes() == [warden.pid]
            _sweep(server)
            assert warden.wait(60) == -signal.SIGKILL


def test_an_error_inside_leaves_no_folder(tmp_path: Path) -> None:
    def interrupted() -> None:
        with scratch_server("test", 2):
            assert list(tmp_path.iterdir()) != []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_says_why() -> None:
    with (
        scratch_server("test", 2, policy="nonsense") as server,
        pytest.raises(Fatal, match="unknown policy 'nonsense'"),
    ):
        server.start()


def test_a_server_ends_with_whoever_wanted_it(tmp_path: Path) -> None:
    program = (
        "import time\nfrom roost.demo.server import scratch_server\n"
        "with scratch_server('test', 2) as server:\n"
        "    server.start()\n    print(server.pid, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        handle = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    ended, _, _ = select.select([handle], [], [], 20.0)
    os.close(handle)
    assert ended


def test_signals_wait_until_the_work_is_done() -> None:
    done = []

    def interrupted() -> None:
        with _later():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("it")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_process_uses_is_read_from_the_kernel(tmp_path: Path) -> None:
    server = ScratchServer(tmp_path, 2)
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        server._process = process
        used = server.load()
        process.kill()
    assert 0.15 < used.cpu_s < 5
    assert 3 < used.rss_mb < 200
