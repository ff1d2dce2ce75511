"""Folders that users sent: each content once for each user, named by its SHA-256.

    <home>/sent/<user>/manifests/<sha256>   which files a folder has (roost.api.manifests)
    <home>/sent/<user>/blobs/<ab>/<sha256>  what is in them
    <home>/sent/<user>/parts/<sha256>       what has come of one so far
    <home>/sent/<user>/refs/<job>           the manifest that a job needs

Nothing is shared between users: none can find out, or use, what another one has. A manifest is kept
as long as a job refers to it, and for a day after it was offered: so nothing is removed under a
submission, however long it takes. What no manifest that is kept names is garbage. A ref is written
before its job is accepted and removed after it is deleted; one without a job is left by a server
that was killed, and swept when the next starts.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from roost import files
from roost.api.blob_parts import BlobPart, blob_parts
from roost.api.manifests import FolderManifest, decode_manifest, manifest_id
from roost.core import JobId
from roost.engines import SentFolder
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.store import StoreFull

#: What the folders of one user may hold in all.
MOST_BYTES, MOST_BLOBS = 20 << 30, 400_000
#: How long a folder that no job refers to is kept.
KEPT_S = 86_400.0

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 1 << 20


class SentFolders:
    """The folders of all users under one home; its calls block, and may come from any thread."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = home / "sent"
        self._clock = clock
        # One for each user: what is offered, held and removed must not pass each other.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._used: dict[str, tuple[int, int]] = {}
        #: Refuses a user so many bytes in all, if those are too many.
        self.check_room: Callable[[str, int], None] = lambda _user, _size: None

    def offer(self, user: str, text: bytes, *, keep: bool) -> dict[str, Any]:
        """What is lacking of a folder; ``keep`` it, so that it can be sent. Raises Conflict."""
        manifest = decode_manifest(text)
        name = manifest_id(text)
        with self._locks[user], _told("the folder cannot be kept"):
            sizes = manifest.blobs
            lacking = sorted(blob for blob in sizes if not self._blob(user, blob).exists())
            missing = [
                {"sha256": one, "size_bytes": sizes[one], "have_bytes": self._have(user, one)}
                for one in lacking
            ]
            if keep:
                size = sum(sizes[one] - self._have(user, one) for one in lacking)
                self._check_room(user, size + len(text), len(lacking) + 1)
                if not (place := self._folder(user, "manifests") / name).exists():
                    self._grow(user, len(text), 1)
                self._write(place, text)
        return {
            "id": name,
            "files": len(manifest.files),
            "size_bytes": manifest.size_bytes,
            "missing": missing,
        }

    def add(self, user: str, body: bytes) -> dict[str, int]:
        """Take parts of contents; raises StoreFull, Conflict or InvalidSpec."""
        whole = parts = 0
        # Whoever sends the same at the same time waits: two must not write to one part.
        with self._locks[user], _told("the files cannot be kept"):
            for part in blob_parts(body):
                if self._blob(user, part.sha256).exists():
                    whole += 1
                    continue
                self._check_room(user, len(part.body), 1)
                done = self._add(user, part)
                whole, parts = whole + done, parts + (not done)
        return {"whole": whole, "parts": parts}

    def hold(self, user: str, name: str, job: JobId) -> None:
        """Let a job refer to a folder, which must be there whole; raises Conflict or NotFound."""
        with self._locks[user], _told("the folder cannot be kept"):
            manifest = self._manifest(user, name)
            lacking = sum(not self._blob(user, blob).exists() for blob in manifest.blobs)
            if lacking:
                raise Conflict(f"{lacking} files of the folder have not been sent: submit again")
            self._write(self._folder(user, "refs") / job, name.encode())

    def release(self, user: str, job: JobId) -> None:
        """A job that is no more, or was not accepted, needs its folder no longer."""
        with self._locks[user], suppress(OSError):
            (self._path / user / "refs" / job).unlink()  # most users have sent nothing

    def place(self, user: str, name: str) -> SentFolder:
        """Where the files of a folder are, for an engine."""
        return SentFolder(self._folder(user, "manifests") / name, self._folder(user, "blobs"))

    def sweep(self, known: Callable[[JobId], bool]) -> None:
        """Remove refs of jobs that are not known, and what nothing refers to; once, at the start.

        Called before requests are served: no ref here belongs to a submission under way.
        """
        for user in _names(self._path):
            refs = self._folder(user, "refs")
            for job in _names(refs):
                if not known(JobId(job)):
                    with suppress(OSError):
                        (refs / job).unlink()
        self.collect()

    def collect(self) -> int:
        """Remove what nothing refers to any more; how many contents that were."""
        return sum(self._collect(user) for user in _names(self._path))

    def _collect(self, user: str) -> int:
        removed = 0
        with self._locks[user], suppress(OSError):
            kept = self._kept(user)
            if kept is None:
                return 0  # something cannot be read: nothing is known to be garbage
            for folder in (*self._folder(user, "blobs").glob("??"), self._folder(user, "parts")):
                for name in _names(folder):
                    if name not in kept:
                        (folder / name).unlink()
                        removed += 1
            self._used.pop(user, None)
        return removed

    def _kept(self, user: str) -> set[str] | None:
        """The contents that are needed, once manifests that are not have gone."""
        refs, manifests = self._folder(user, "refs"), self._folder(user, "manifests")
        held = {(refs / job).read_text() for job in _names(refs)}
        kept: set[str] = set()
        for name in _names(manifests):
            file = manifests / name
            if name not in held and self._clock() - file.stat().st_mtime > KEPT_S:
                file.unlink()
                continue
            try:
                kept.update(decode_manifest(file.read_bytes()).blobs)
            except InvalidSpec:
                if name in held:
                    return None
        return kept

    def _add(self, user: str, part: BlobPart) -> bool:
        """Write a part; whether the content is whole with it."""
        place = self._folder(user, "parts") / part.sha256
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            have = os.fstat(descriptor).st_size
            if part.offset > have:
                raise Conflict(f"{have} bytes have come, and not {part.offset}: submit again")
            file.seek(part.offset)
            file.write(part.body)
            file.truncate()
            self._grow(user, part.offset + len(part.body) - have, 0 if have else 1)
            if part.offset + len(part.body) < part.size_bytes:
                return False
            file.flush()
            file.seek(0)
            digest = hashlib.sha256()
            while block := file.read(_BLOCK):
                digest.update(block)
            if digest.hexdigest() != part.sha256:
                place.unlink()
                self._grow(user, -part.size_bytes, -1)
                raise InvalidSpec("a file is not what its name says: submit again")
            # On disk before it has its name: a job may be accepted that needs it.
            os.fsync(descriptor)
        blob = self._blob(user, part.sha256)
        blob.parent.mkdir(mode=0o700, exist_ok=True)
        place.rename(blob)
        return True

    def sizes(self) -> dict[str, int]:
        """The bytes of all folders of each user."""
        found = {}
        for user in _names(self._path):
            with self._locks[user], suppress(OSError, InvalidSpec):
                found[user] = self._usage(user)[0]
        return found

    def _grow(self, user: str, size: int, count: int) -> None:
        used, files_there = self._usage(user)
        self._used[user] = used + size, files_there + count

    def _check_room(self, user: str, size: int, count: int) -> None:
        used, blobs = self._usage(user)
        self.check_room(user, used + size)
        if used + size > MOST_BYTES or blobs + count > MOST_BLOBS:
            raise Conflict(
                f"the folders that you sent have {used >> 20:,} MiB in {blobs:,} files, and at "
                f"most {MOST_BYTES >> 20:,} MiB are kept: delete jobs that are over"
            )

    def _usage(self, user: str) -> tuple[int, int]:
        if user not in self._used:
            places = [self._folder(user, kind) for kind in ("manifests", "parts")]
            sizes = [
                entry.stat().st_size
                for folder in (*places, *self._folder(user, "blobs").glob("??"))
                for entry in os.scandir(folder)
            ]
            self._used[user] = sum(sizes), len(sizes)
        return self._used[user]

    def _manifest(self, user: str, name: str) -> FolderManifest:
        try:
            return decode_manifest((self._folder(user, "manifests") / name).read_bytes())
        except FileNotFoundError:
            raise NotFound(f"you have sent no folder {name[:12]}: submit it again") from None

    def _write(self, place: Path, content: bytes) -> None:
        # Beside it, then a rename: whoever reads it finds all of it or nothing.
        draft = place.with_name(f".{place.name}")
        with suppress(FileNotFoundError):
            draft.unlink()
        files.create(draft, content)
        draft.replace(place)
        files.sync(place.parent)

    def _have(self, user: str, blob: str) -> int:
        try:
            return (self._folder(user, "parts") / blob).stat().st_size
        except FileNotFoundError:
            return 0

    def _blob(self, user: str, blob: str) -> Path:
        return self._folder(user, "blobs") / blob[:2] / blob

    def _folder(self, user: str, kind: str) -> Path:
        if not _USER.fullmatch(user):
            raise InvalidSpec(f"{user[:80]!r} cannot send folders: it cannot be the name of one")
        found = self._path / user / kind
        if not found.exists():
            for folder in (self._path, found.parent, found):
                folder.mkdir(mode=0o700, exist_ok=True)
        return found


def _names(folder: Path) -> list[str]:
    try:
        return sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
    except FileNotFoundError:
        return []


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Trouble of the disk as an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"{what}: {error.strerror}; delete some jobs, or make room") from None
        raise Conflict(f"{what}: {error.strerror or error}") from None
