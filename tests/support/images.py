"""File trees that images are made of, and images as files, where no registry answers."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

#: What the stand-in of a Python image is made of, beside what these depend on. Essential packages
#: are among nobody's dependencies.
PYTHON = ("python3-pip", "python3-venv", "python-is-python3", "dash", "coreutils", "libstdc++6")
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp")
_LATEST_S = 300


def busybox_root(folder: Path, commands: Sequence[str]) -> Path:
    """A tree of this machine's busybox, which is one static program."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox")
    root = _root(folder)
    shutil.copy(busybox, root / "bin/busybox")
    for command in commands:
        (root / "bin" / command).symlink_to("busybox")
    return root


def debian_root(folder: Path, packages: Sequence[str]) -> Path:
    """A tree of Debian's packages unpacked, of which no script ran."""
    root, fetched = _root(folder), folder / "packages"
    (fetched / "partial").mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed, so everything that is needed is fetched
    places = (f"Dir::State::status={folder}/status", f"Dir::Cache::archives={fetched}")
    options = [word for place in (*places, "Debug::NoLocking=1") for word in ("-o", place)]
    fetch = ("apt-get", *options, "install", "--download-only", "--yes", "--no-install-recommends")
    _run(*fetch, *packages)
    for package in fetched.glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), str(root))
    return root


def write_image(name: str, root: Path, path: Path) -> Path:
    """Write a tree as an image of one layer that sleeps, in the format of ``docker save``."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as file:
        file.add(root, ".")
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "Cmd": ["/bin/sleep", "2147483647"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as file:
        file.add(layer, "layer.tar")
        for member, content_of in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(content_of).encode()
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    layer.unlink()
    return path


def _root(folder: Path) -> Path:
    root = folder / "root"
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    return root


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=_LATEST_S)  # noqa: S603
