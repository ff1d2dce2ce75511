"""Backups of a home: one file with everything that a server needs to go on elsewhere.

A backup can be made while the server runs. The database is copied by SQLite itself, as it was at
one moment. Files of jobs (secrets, functions, snapshots) are written before the database knows of
them, and removed after it has forgotten them. So they are taken before the database and once more
after it: whatever the copy of the database speaks of is among them.

The file is a tar with a manifest of checksums at its end. It holds secrets and the administrator's
token, and is for its owner alone. A home that was restored from it is a copy, and refuses to start
until it is told what it is (``identity``).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple
from uuid import uuid4

from roost import __version__
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.files import sync
from roost.server import identity

#: The format of backups.
FORMAT = 1
_MANIFEST, _HEAD = "manifest.json", "backup.json"
_DATABASE = "roost.db"
#: What says who serves just now, and what the engine makes anew.
_PASSING = ("server.json", "server.log", "engine.", "running", "roost.db", ".")
#: Where jobs save themselves and work: as large as it likes.
_LARGE = ("checkpoints", "work")
_CHUNK = 1 << 20
_MOST_MANIFEST = 256 << 20


class BackupSummary(NamedTuple):
    """What is in a backup."""

    files: int
    size_bytes: int
    database: bool
    version: str


def back_up(home: Path, target: Path, database: Path | None, *, checkpoints: bool) -> BackupSummary:
    """Write a backup of a home; raises Conflict if the file is there already.

    Without a ``database`` it has the files alone.
    """
    if target.exists():
        raise Conflict(f"{target} is there already: give another name, or remove it")
    if not (home / "home.json").exists():
        raise InvalidSpec(f"{home} is not the home of a server: it has no home.json")
    draft = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "wb") as out:
            found = _BackupWriter(home, out, checkpoints=checkpoints).write(database)
            out.flush()
            os.fsync(out.fileno())
        draft.rename(target)
        sync(target.absolute().parent)
    except OSError as error:
        raise InvalidSpec(f"cannot write {target}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink()
    return found


def check(file: Path) -> BackupSummary:
    """Read a whole backup and compare its checksums; raises InvalidSpec."""
    if not file.is_file():
        raise NotFound(f"no such file: {file}")
    sums: dict[str, str] = {}
    manifest = b""
    size = 0
    try:
        with tarfile.open(file, "r|*") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if member.name == _MANIFEST and content is not None:
                    manifest = content.read(_MOST_MANIFEST)
                    continue
                sums[member.name] = _sum(member, content)
                size += member.size
        told = json.loads(manifest) if manifest else None
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise InvalidSpec(f"{file} is not a whole backup: {error}") from None
    if not isinstance(told, dict):
        raise InvalidSpec(f"{file} is not a whole backup: it has no list of its content")
    if told.get("format", 0) > FORMAT:
        raise InvalidSpec(
            f"{file} was written by a newer Roost (format {told['format']}, version "
            f"{told.get('version')}; this one knows {FORMAT}): upgrade Roost"
        )
    listed = told.get("sums")
    if listed != sums:
        names = {*sums, *listed} if isinstance(listed, dict) else set(sums)
        odd = [name for name in sorted(names) if not listed or sums.get(name) != listed.get(name)]
        raise InvalidSpec(f"{file} is damaged: the checksum of {odd[0]!r} does not fit")
    return BackupSummary(len(sums), size, _DATABASE in sums, str(told.get("version", "")))


def restore(file: Path, home: Path) -> BackupSummary:
    """Make a home from a backup; all checksums are compared before anything is written."""
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise Conflict(f"{home} is there already, and not empty: restore to another folder")
    found = check(file)
    draft = home.with_name(f".{home.name}.{uuid4().hex}.restoring")
    try:
        draft.mkdir(mode=0o700, parents=True)
        with tarfile.open(file, "r|*") as tar:
            later = [member for member in tar if not _restored(tar, member, draft)]
        # Links last: nothing is written through one. Folders after what is in them: they may be
        # closed to writing.
        for member in reversed(later):
            _finished(member, draft / member.name)
        known = identity.read(draft)
        if known is not None:
            identity.misplace(draft, known)
        with suppress(FileNotFoundError):
            home.rmdir()  # it is empty
        draft.rename(home)
        sync(home.parent)
    except (OSError, tarfile.TarError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise InvalidSpec(f"cannot restore to {home}: {error}") from None
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return found


class _BackupWriter:
    """Puts files into a tar, each once and with its checksum."""

    def __init__(self, home: Path, out: IO[bytes], *, checkpoints: bool) -> None:
        self._home, self._checkpoints = home, checkpoints
        self._tar = tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._sums: dict[str, str] = {}
        self._size = 0

    def write(self, database: Path | None) -> BackupSummary:
        """Everything, in the order that makes it whole."""
        head = {"format": FORMAT, "version": __version__, "made_at": time.time()}
        self._text(_HEAD, json.dumps(head))
        for name in ("secrets", "payloads", "snapshots"):
            self._tree(name)
        if database is not None:
            self._database(database)
        self._tree("")
        summary = BackupSummary(len(self._sums), self._size, database is not None, __version__)
        manifest = {**head, "sums": dict(self._sums)}
        self._text(_MANIFEST, json.dumps(manifest))
        self._tar.close()
        return summary

    def _database(self, database: Path) -> None:
        from roost.store.sqlite import copy_database  # noqa: PLC0415 - only what is used

        # Beside the home, not in /tmp: it has the room, and is as private.
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=self._home) as folder:
            copied = Path(folder) / _DATABASE
            copy_database(database, copied)
            self._add(copied, _DATABASE)

    def _tree(self, top: str) -> None:
        for path in _files(self._home / top):
            name = path.relative_to(self._home).as_posix()
            if name not in self._sums and self._wanted(PurePosixPath(name)):
                self._add(path, name)

    def _wanted(self, name: PurePosixPath) -> bool:
        if any(name.parts[0].startswith(word) for word in _PASSING):
            return False
        if any(part.startswith((".draft-", ".gone-")) for part in name.parts):
            return False
        large = name.parts[0] == "runs" and any(part in _LARGE for part in name.parts[2:4])
        large = large or (name.parts[0] == "snapshots" and "files" in name.parts[3:4])
        return self._checkpoints or not large

    def _add(self, path: Path, name: str) -> None:
        with suppress(FileNotFoundError):  # it was removed meanwhile: nobody needs it
            info = self._tar.gettarinfo(path, name)
            if info.islnk():  # a second name of a file: its content once more
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
            if info.isreg():
                with path.open("rb") as file:
                    content = _SizedReader(file, info.size)
                    self._tar.addfile(info, content)
                    self._sums[name] = content.sum.hexdigest()
                self._size += info.size
            else:
                self._tar.addfile(info)
                self._sums[name] = _sum(info, None)

    def _text(self, name: str, text: str) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(text.encode()), 0o600, int(time.time())
        self._tar.addfile(info, io.BytesIO(text.encode()))
        if name != _MANIFEST:
            self._sums[name] = hashlib.sha256(text.encode()).hexdigest()
            self._size += info.size


class _SizedReader:
    """As many bytes as a file had when it was looked at: a log may grow, or be cut."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.sum = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """The next bytes; zeros for those that are gone."""
        wanted = self._left if size < 0 else min(size, self._left)
        found = self._file.read(wanted).ljust(wanted, b"\0")
        self._left -= wanted
        self.sum.update(found)
        return found


def _files(top: Path) -> Iterator[Path]:
    """Folders, plain files and links under a folder; links are not followed."""
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = Path(folder) / name
            with suppress(OSError):
                if path.is_symlink() or path.is_file() or path.is_dir():
                    yield path


def _sum(member: tarfile.TarInfo, content: IO[bytes] | None) -> str:
    found = hashlib.sha256()
    if content is None:
        found.update(f"{member.type!r} {member.linkname}".encode("utf-8", "surrogateescape"))
    else:
        while chunk := content.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _restored(tar: tarfile.TarFile, member: tarfile.TarInfo, home: Path) -> bool:
    """Put one file in its place; False: it is a folder or a link, to be finished later."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise InvalidSpec(f"the backup has a file outside of its home: {member.name!r}")
    if member.name in (_MANIFEST, _HEAD):
        return True
    path = home / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not member.isreg():
        if member.isdir():
            path.mkdir(mode=0o700, exist_ok=True)
        return False
    content = tar.extractfile(member)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "wb") as out:
        while content is not None and (chunk := content.read(_CHUNK)):
            out.write(chunk)
        os.fsync(file)
    _own(member, path)
    return True


def _finished(member: tarfile.TarInfo, path: Path) -> None:
    if member.issym():
        path.symlink_to(member.linkname)
    elif member.isdir():
        _own(member, path)


def _own(member: tarfile.TarInfo, path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
    path.chmod(member.mode & 0o777)
