"""The podman of this machine, and images for it that no registry is asked for."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.images import PYTHON, busybox_root, debian_root

#: Older crun cannot work where both versions of cgroups are mounted: there one is hidden from it.
APART = ("unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh")
#: Runs a container without rights that this machine may not have to give.
RUN = (
    *(*APART, "podman", "run", "--rm", "--network=host", "--cgroups=disabled"),
    *("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"),
)


def podman(*words: str) -> str:
    """What podman answers."""
    done = subprocess.run(["podman", *words], check=True, capture_output=True, text=True)  # noqa: S603, S607
    return done.stdout


def busybox_image(name: str, folder: Path, commands: Sequence[str]) -> None:
    """Make an image of this machine's busybox, which is one static program."""
    _import(name, busybox_root(folder, commands))


def python_image(name: str, folder: Path) -> None:
    """Make an image of Debian's Python with pip."""
    _import(name, debian_root(folder, PYTHON))


def _import(name: str, root: Path) -> None:
    packed = root.with_suffix(".tar")
    with tarfile.open(packed, "w") as file:
        file.add(root, ".")
    podman("import", str(packed), name)
    packed.unlink()
