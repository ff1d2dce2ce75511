"""Looks through a folder that is to be sent: what goes, what stays, and whether it is too much."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from roost.api.manifests import (
    SERVER_BOUND,
    FolderBound,
    FolderManifest,
    ManifestFile,
    manifest_id,
    stays_inside,
)
from roost.client.ignore_rules import IgnoreRules
from roost.errors import InvalidSpec

_BLOCK = 1 << 20
#: So many times the bound is still counted, to tell what is largest.
_COUNTED = 20
_NAMED = 3


class FolderScan(NamedTuple):
    """A folder as it was found: its manifest, and where the content of each file is."""

    folder: Path
    manifest: FolderManifest
    text: bytes

    @property
    def id(self) -> str:
        """What the folder is called on the server: another one for other files."""
        return manifest_id(self.text)

    @property
    def sources(self) -> dict[str, Path]:
        """A file for each content."""
        files = self.manifest.files.items()
        return {file.sha256: self.folder / path for path, file in files}


def scan(folder: Path, bound: FolderBound = SERVER_BOUND) -> FolderScan:
    """Look through a folder; raises InvalidSpec for what cannot be sent, or is too much."""
    found = _FoundFiles(folder, bound)
    try:
        found.look("", IgnoreRules.above(folder.absolute()).with_files(folder))
    except OSError as error:
        where = error.filename or folder
        raise InvalidSpec(f"cannot send {where}: {error.strerror}; {_HOW}") from None
    found.check()
    manifest = FolderManifest(dict(found.hashed()), found.links, tuple(found.empty))
    return FolderScan(folder, manifest, manifest.encode())


_HOW = "a line in .roostignore leaves something out, --no-send everything"


class _FoundFiles:
    """What is in a folder, before anything is read."""

    def __init__(self, folder: Path, bound: FolderBound) -> None:
        self._folder, self._bound = folder, bound
        self._real = os.path.realpath(folder)
        self.sizes: dict[str, os.stat_result] = {}
        self.links: dict[str, str] = {}
        self.empty: list[str] = []

    def look(self, inside: str, rules: IgnoreRules) -> None:
        """Note what is in a folder and below."""
        here = self._folder / inside
        some = False
        with os.scandir(here) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
        for entry in names:
            path = f"{inside}/{entry.name}" if inside else entry.name
            status = entry.stat(follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            if is_folder and entry.name == ".git":
                continue
            made = is_folder and os.path.lexists(f"{entry.path}/pyvenv.cfg")
            if rules.leaves_out(entry.name, folder=is_folder, usually=made):
                continue
            some = True
            _check_name(path)
            if is_folder:
                inner = rules.entered(entry.name).with_files(Path(entry.path))
                self.look(path, inner)
            elif stat.S_ISLNK(status.st_mode):
                self.links[path] = self._target(path)
            elif stat.S_ISREG(status.st_mode):
                self.sizes[path] = status
            if len(self.sizes) > _COUNTED * self._bound.files:
                self.check()
        if not some and inside:
            self.empty.append(inside)

    def check(self) -> None:
        """Raise InvalidSpec if it is too much, with what is most of it."""
        bound, size = self._bound, sum(status.st_size for status in self.sizes.values())
        count = len(self.sizes) + len(self.links) + len(self.empty)
        if count <= bound.files and size <= bound.size_bytes:
            return
        if count > bound.files:
            most = f"{count:,} files, and at most {bound.files:,} are sent"
            largest = self._largest(lambda _: 1)
            named = ", ".join(f"{name} has {number:,}" for name, number in largest)
        else:
            most = f"{size / _BLOCK:,.0f} MiB, and at most {bound.size_bytes // _BLOCK:,} are sent"
            largest = self._largest(lambda status: status.st_size)
            named = ", ".join(f"{name} has {number / _BLOCK:,.0f} MiB" for name, number in largest)
        first, more = largest[0][0], f"; {bound.elsewhere}" if bound.elsewhere else ""
        raise InvalidSpec(
            f"{self._folder} has {most}: {named}. Leave out what the job does not need: "
            f"echo '/{first}' >> .roostignore; or send nothing with --no-send{more}"
        )

    def _largest(self, weight: Callable[[os.stat_result], int]) -> list[tuple[str, int]]:
        found: Counter[str] = Counter()
        for path, status in self.sizes.items():
            top, slash, _ = path.partition("/")
            found[top + slash] += weight(status)
        return found.most_common(_NAMED)

    def hashed(self) -> Iterator[tuple[str, ManifestFile]]:
        """Each file by its content."""
        for path in self.sizes:
            place = self._folder / path
            try:
                with place.open("rb") as file:
                    mode = os.fstat(file.fileno()).st_mode
                    digest, size = hashlib.sha256(), 0
                    while block := file.read(_BLOCK):
                        digest.update(block)
                        size += len(block)
            except OSError as error:
                raise InvalidSpec(f"cannot read {place}: {error.strerror}; {_HOW}") from None
            yield path, ManifestFile(digest.hexdigest(), size, bool(mode & 0o100))

    def _target(self, path: str) -> str:
        """Where a link leads, as the job will find it; raises InvalidSpec if that is elsewhere."""
        place = str(self._folder / path)
        target = os.readlink(place)  # noqa: PTH115 - as it is written
        if stays_inside(path, target):
            return target
        real = os.path.realpath(place)
        if real == self._real or real.startswith(f"{self._real}/"):
            other = os.path.relpath(real, os.path.realpath(Path(place).parent))
            if stays_inside(path, other):
                return other
        raise InvalidSpec(
            f"{path} is a link to {target}, out of the folder that is sent: leave it out "
            f"(echo '/{path}' >> .roostignore) and let the job use a path of the server's machine"
        )


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode(errors="backslashreplace").decode()
        raise InvalidSpec(f"the name of {shown} is no UTF-8; {_HOW}") from None
