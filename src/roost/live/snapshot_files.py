"""The files of snapshots: a folder for each, in place as a whole or not at all.

    <home>/snapshots/<job>/<name>/files/     what the job had saved
    <home>/snapshots/<job>/<name>/payload    the pickled function of a job that has one

A folder is made under another name and renamed when all is in it. The store's row comes after that;
folders without one are leftovers of a server that was killed, and are swept when the next starts.
"""

from __future__ import annotations

import errno
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from roost import files
from roost.api.snapshots import NAME
from roost.errors import Conflict, InvalidSpec
from roost.store import StoreFull

_log = logging.getLogger(__name__)

_DRAFT = ".draft-"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_name(name: str) -> str:
    """The name of a snapshot, if it can be one; raises InvalidSpec."""
    if not re.fullmatch(NAME, name):
        raise InvalidSpec(
            f"{name[:80]!r} cannot be the name of a snapshot: up to 63 of a-z, 0-9 and -, such as "
            "before-decay"
        )
    return name


class SnapshotFiles:
    """The folder of all snapshots."""

    def __init__(self, home: Path) -> None:
        self._path = home / "snapshots"

    def draft(self, job: str) -> Path:
        """A folder to make a snapshot in."""
        folder = self._path / job
        with _told("a folder cannot be made"):
            for each in (self._path, folder, draft := folder / f"{_DRAFT}{uuid4().hex}"):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
        return draft

    def keep(self, draft: Path, name: str, payload: bytes | None) -> None:
        """Put what was made in its place, for good."""
        with _told("its files cannot be kept"):
            if payload is not None:
                files.create(draft / "payload", payload)
            place = draft.with_name(name)
            if place.exists():  # without a row: a server was killed in between
                self._remove(place)
            draft.rename(place)
            # On disk before the store's row is written: a row without files could not be restored.
            files.sync(place.parent)

    def files(self, ref: str) -> Path:
        """Where the files of a snapshot are."""
        job, _, name = ref.partition("@")
        return self._path / job / name / "files"

    def has(self, ref: str) -> bool:
        """Whether its files are there."""
        return self.files(ref).is_dir()

    def payload(self, ref: str) -> bytes | None:
        """The pickled function that is kept with a snapshot."""
        try:
            return (self.files(ref).parent / "payload").read_bytes()
        except FileNotFoundError:
            return None

    def drop(self, ref: str) -> None:
        """Remove the files of a snapshot that has no row any more."""
        self._remove(self.files(ref).parent)

    def discard(self, draft: Path) -> None:
        """Remove what did not become a snapshot."""
        self._remove(draft)

    def sweep(self, known: Callable[[str, str], bool]) -> None:
        """Remove what is no snapshot: drafts, and folders without a row."""
        for job in _folders(self._path):
            for folder in _folders(job):
                if folder.name.startswith(_DRAFT) or not known(job.name, folder.name):
                    self._remove(folder)
            with suppress(OSError):
                job.rmdir()  # unless there is something in it

    def _remove(self, folder: Path) -> None:
        if folder.is_symlink() or not folder.exists():
            return
        # Out of the way first: half of a snapshot must not look like one.
        gone = folder.with_name(f"{_DRAFT}{uuid4().hex}")
        with suppress(OSError):
            folder.rename(gone)
            folder = gone
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            _log.warning("cannot remove all of %s; the next start tries again", folder)
        with suppress(OSError):
            # The job's folder goes with the last snapshot in it; it is not empty otherwise.
            folder.parent.rmdir()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Trouble of the disk as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise trouble(what, error) from None


def trouble(what: str, error: OSError) -> Exception:
    """The error for a snapshot that the disk did not take."""
    if error.errno in _FULL:
        return StoreFull(f"no snapshot was taken: {error.strerror}; delete some, or make room")
    return Conflict(f"no snapshot was taken: {what}: {error.strerror or error}")


def _folders(path: Path) -> list[Path]:
    try:
        return [one for one in sorted(path.iterdir()) if one.is_dir() and not one.is_symlink()]
    except FileNotFoundError:
        return []
