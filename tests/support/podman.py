"""The podman of this machine, and images for it that no registry is asked for."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

#: Older crun cannot work where both versions of cgroups are mounted: there one is hidden from it.
APART = ("unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh")
#: Runs a container without rights that this machine may not have to give.
RUN = (
    *(*APART, "podman", "run", "--rm", "--network=host", "--cgroups=disabled"),
    *("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"),
)
#: What the stand-in of a Python image is made of, beside what these depend on. Essential packages
#: are among nobody's dependencies.
_PACKAGES = ("python3-pip", "python3-venv", "python-is-python3", "dash", "coreutils", "libstdc++6")
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp")
_LATEST_S = 300


def podman(*words: str) -> str:
    """What podman answers."""
    done = subprocess.run(["podman", *words], check=True, capture_output=True, text=True)  # noqa: S603, S607
    return done.stdout


def busybox_image(name: str, folder: Path, commands: Sequence[str]) -> None:
    """Make an image of this machine's busybox, which is one static program."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox")
    root = _root(folder)
    shutil.copy(busybox, root / "bin/busybox")
    for command in commands:
        (root / "bin" / command).symlink_to("busybox")
    _import(name, root)


def python_image(name: str, folder: Path) -> None:
    """Make an image of Debian's Python with pip: of packages unpacked, of which no script ran."""
    root, packages = _root(folder), folder / "packages"
    (packages / "partial").mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed, so everything that is needed is fetched
    places = (f"Dir::State::status={folder}/status", f"Dir::Cache::archives={packages}")
    options = [word for place in (*places, "Debug::NoLocking=1") for word in ("-o", place)]
    fetch = ("apt-get", *options, "install", "--download-only", "--yes", "--no-install-recommends")
    _run(*fetch, *_PACKAGES)
    for package in packages.glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), str(root))
    _import(name, root)


def _root(folder: Path) -> Path:
    root = folder / "root"
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    return root


def _import(name: str, root: Path) -> None:
    packed = root.with_suffix(".tar")
    with tarfile.open(packed, "w") as file:
        file.add(root, ".")
    podman("import", str(packed), name)
    packed.unlink()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=_LATEST_S)  # noqa: S603
