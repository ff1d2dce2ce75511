"""A folder on its way: which files it has, by what is in them.

    {"version": 1, "files": {"train.py": ["<sha256>", 812, 0]}, "links": {}, "folders": ["out"]}

A file is its content, its size and whether it can be executed. A manifest is named by the SHA-256
of its own text, which is the same for the same folder: files in order, no spaces. Whoever reads one
checks it: no path leaves the folder, and nothing is in the place of something else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from roost.errors import InvalidSpec


class FolderBound(NamedTuple):
    """How much a folder may have, and where else that can be which has more."""

    files: int
    size_bytes: int
    elsewhere: str = ""


#: A folder is code, not data.
SERVER_BOUND = FolderBound(20_000, 1 << 30)
#: What a cluster of Kubernetes takes: its API server keeps it, beside all that it lives by.
CLUSTER_BOUND = FolderBound(
    4_000,
    16 << 20,
    "data belongs into a volume (pod.volumes), larger code into workdir: {git: ...} or an image",
)

_VERSION = 1
_SHA = re.compile("[0-9a-f]{64}")
_LONGEST_PATH, _LONGEST_PART, _DEEPEST = 2048, 255, 60


class ManifestFile(NamedTuple):
    """The content of a file by its SHA-256, its size, and whether it can be executed."""

    sha256: str
    size_bytes: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class FolderManifest:
    """All that is in a folder; ``folders`` are those that are empty, ``links`` stay inside."""

    files: Mapping[str, ManifestFile] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many files, links and empty folders there are."""
        return len(self.files) + len(self.links) + len(self.folders)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files.values())

    @property
    def blobs(self) -> dict[str, int]:
        """Each content once, with its size."""
        return {file.sha256: file.size_bytes for file in self.files.values()}

    def encode(self) -> bytes:
        """The text of the manifest."""
        files = {
            path: [f.sha256, f.size_bytes, int(f.executable)] for path, f in self.files.items()
        }
        told = {"files": files, "folders": sorted(self.folders), "links": dict(self.links)}
        return json.dumps(
            {**told, "version": _VERSION}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()


def manifest_id(text: bytes) -> str:
    """What a manifest is called."""
    return hashlib.sha256(text).hexdigest()


def decode_manifest(text: bytes) -> FolderManifest:
    """The manifest in a text; raises InvalidSpec for one that is not sound."""
    try:
        told = json.loads(text.decode("utf-8"))
        if not isinstance(told, dict) or told.get("version") != _VERSION:
            raise InvalidSpec("the list of files is none, or of another version of Roost")
        found = FolderManifest(
            {path: _file(*entry) for path, entry in told["files"].items()},
            dict(told["links"]),
            tuple(told["folders"]),
        )
        _check(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidSpec("the list of files cannot be read") from None
    return found


def check_bound(manifest: FolderManifest, bound: FolderBound) -> None:
    """Raise InvalidSpec where a folder has more than it may."""
    if manifest.count > bound.files or manifest.size_bytes > bound.size_bytes:
        raise InvalidSpec(
            f"a folder has at most {bound.files:,} files and {bound.size_bytes >> 20} MiB: this "
            f"one has {manifest.count:,} and {manifest.size_bytes >> 20}"
        )


def stays_inside(path: str, target: str) -> bool:
    """Whether a link leads to something in the same folder: up first, and then only down.

    Up after down could pass another link, and come out elsewhere.
    """
    steps = target.split("/")
    ups = next((at for at, step in enumerate(steps) if step != ".."), len(steps))
    inside = bool(target) and not target.startswith("/") and ups <= path.count("/")
    return inside and ".." not in steps[ups:] and "\0" not in target


def _file(sha256: Any, size: Any, executable: Any) -> ManifestFile:
    if not (isinstance(sha256, str) and _SHA.fullmatch(sha256)):
        raise InvalidSpec("a file is named by something that is no SHA-256")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidSpec("a file has no size")
    return ManifestFile(sha256, size, executable == 1)


def _check(manifest: FolderManifest) -> None:
    paths = [*manifest.files, *manifest.links, *manifest.folders]
    check_bound(manifest, SERVER_BOUND)
    seen: set[str] = set()
    above: set[str] = set()
    for path in paths:
        _check_path(path)
        if path in seen:
            raise InvalidSpec(f"{path!r} is there twice")
        seen.add(path)
        above.update(_parents(path))
    if both := sorted(seen & above):
        raise InvalidSpec(f"{both[0]!r} is a folder and something else")
    sizes: dict[str, int] = {}
    for file in manifest.files.values():
        if sizes.setdefault(file.sha256, file.size_bytes) != file.size_bytes:
            raise InvalidSpec("one content has two sizes")
    for path, target in manifest.links.items():
        if len(target.encode()) > _LONGEST_PATH or not stays_inside(path, target):
            raise InvalidSpec(f"{path!r} is a link that leads out of the folder")


def _check_path(path: Any) -> None:
    if not isinstance(path, str) or len(path.encode()) > _LONGEST_PATH or "\0" in path:
        raise InvalidSpec(f"{str(path)[:80]!r} is no path")
    parts = path.split("/")
    if len(parts) > _DEEPEST or any(
        part in ("", ".", "..") or len(part.encode()) > _LONGEST_PART for part in parts
    ):
        raise InvalidSpec(f"{path[:80]!r} is no path within a folder")


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
