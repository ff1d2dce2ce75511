"""Fills the working folder of a new run with a folder that was sent: entirely, or not at all.

A draft beside it is filled and takes its place in one step. The contents are copied (shared where
the file system can do that), never linked: a job may write to its own files at any time, and every
attempt begins with the same ones.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from roost.api.manifests import FolderManifest, decode_manifest
from roost.engines import SentFolder
from roost.engines.local import folder_copy
from roost.engines.local.run_folders import RunFolder
from roost.engines.local.snapshots import CopyContext
from roost.errors import InvalidSpec, Retryable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_AGAIN_S = 60.0


def fill(sent: SentFolder, folder: RunFolder, by: CopyContext) -> None:
    """Put the files of a folder that was sent into the working folder of a run, if it is empty.

    Raises InvalidSpec if they are gone, Retryable where there is no space for them.
    """
    place = folder.path / "work"
    if any(place.iterdir()):
        return  # by a server that was killed afterwards
    for old in folder.path.glob(".fill-*"):
        shutil.rmtree(old, ignore_errors=True)
    draft = folder.path / f".fill-{uuid4().hex}"
    try:
        manifest = decode_manifest(sent.manifest.read_bytes())
        draft.mkdir(0o700)
        _Filling(sent.blobs, by).fill(manifest, draft)
        draft.rename(place)
    except OSError as error:
        if error.errno in _FULL:
            why = f"the folder that was sent does not fit: {error.strerror}"
            raise Retryable(why, after=_AGAIN_S) from None
        why = f"the folder that was sent cannot be put in place: {error.strerror}"
        raise InvalidSpec(f"{why}: submit it again") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _Filling:
    """One folder that is being filled; what is made belongs to the account of the job."""

    def __init__(self, blobs: Path, by: CopyContext) -> None:
        self._blobs, self._by = blobs, by
        self._owner = (by.account.uid, by.account.gid) if by.account else None

    def fill(self, manifest: FolderManifest, draft: Path) -> None:
        with _opened(os.open(draft, _FOLDER)) as top:
            for path in manifest.folders:
                with self._entered(top, path):
                    pass
            for path, file in manifest.files.items():
                mode = 0o755 if file.executable else 0o644
                above, _, name = path.rpartition("/")
                blob = self._blobs / file.sha256[:2] / file.sha256
                with self._entered(top, above) as folder, _opened(os.open(blob, _READ)) as old:
                    self._copied(old, folder, name, mode)
            # Last: no file is written through one.
            for path, target in manifest.links.items():
                above, _, name = path.rpartition("/")
                with self._entered(top, above) as folder:
                    os.symlink(target, name, dir_fd=folder)
                    if self._owner:
                        os.chown(name, *self._owner, dir_fd=folder, follow_symlinks=False)
            self._give(top)

    def _copied(self, old: int, folder: int, name: str, mode: int) -> None:
        if self._by.closing.is_set():
            raise Retryable("the server stops", after=1.0)
        with _opened(os.open(name, _NEW, mode, dir_fd=folder)) as new:
            os.fchmod(new, mode)
            folder_copy.copy_content(old, new)
            self._give(new)

    @contextmanager
    def _entered(self, top: int, path: str) -> Iterator[int]:
        """A folder below, made if need be."""
        fd = os.dup(top)
        try:
            for name in filter(None, path.split("/")):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=fd)
                inner = os.open(name, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
                self._give(fd)
            yield fd
        finally:
            os.close(fd)

    def _give(self, fd: int) -> None:
        if self._owner:
            os.fchown(fd, *self._owner)


@contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
