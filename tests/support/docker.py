"""A Docker of a test's own: a daemon in a folder, of which nothing is left, and images for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.images import busybox_root

_READY_S, _END_S, _POLL_S = 60.0, 30.0, 0.1


@dataclass(frozen=True, slots=True)
class Docker:
    """How to speak to a daemon."""

    env: Mapping[str, str]

    def __call__(self, *words: str) -> str:
        """What docker answers."""
        done = subprocess.run(  # noqa: S603
            ["docker", *words],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, **self.env},
        )
        return done.stdout

    def busybox_image(self, name: str, folder: Path, commands: Sequence[str]) -> None:
        """Make an image of this machine's busybox, which is one static program."""
        root = busybox_root(folder, commands)
        packed = root.with_suffix(".tar")
        with tarfile.open(packed, "w") as file:
            file.add(root, ".")
        self("import", str(packed), name)
        packed.unlink()


@contextmanager
def docker(folder: Path) -> Iterator[Docker]:
    """A daemon with its data in a folder; raises OSError where none can be."""
    address = f"unix://{folder}/docker.sock"
    # What it mounts is gone with it.
    command = ["unshare", "--mount", "dockerd", "--data-root", str(folder / "data")]
    command += ["--exec-root", str(folder / "exec")]
    command += ["--host", address, "--pidfile", str(folder / "pid"), "--storage-driver=vfs"]
    command += ["--iptables=false", "--bridge=none"]
    found = Docker({"DOCKER_HOST": address})
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        try:
            _wait(found, daemon, folder / "log")
            yield found
        finally:
            daemon.terminate()
            daemon.wait(_END_S)
            shutil.rmtree(folder / "data", ignore_errors=True)


def _wait(found: Docker, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while daemon.poll() is None and time.monotonic() < deadline:
        try:
            found("version")
        except subprocess.SubprocessError:
            time.sleep(_POLL_S)
        else:
            return
    raise OSError(f"dockerd does not work here: {log.read_text(errors='replace')[-500:]}")
