"""Copies a folder that is not to be trusted: ``python -I -S folder_copy.py``, order as input.

It is a program of its own, of the standard library alone, because a job's files are read with the
rights of the job's account and no others: the account is changed to before anything is opened. It
follows no link, and keeps plain files, folders and links that stay inside; the rest is refused.
Contents are shared with the original where the file system can do that, but never files: a job may
write to its own at any time. Holes stay holes. All is on disk when it ends.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x40049409
_PIECE = 1 << 24
_NOTE = ".roost-restored"
_DEEP, _MANY = 64, 200_000
#: What another way of copying may still be able to do.
_OTHER_WAY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY})

#: What comes of taking a link for a file or a folder, or the other way round.
_OTHER_KIND = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EINVAL})


class CopyRefused(Exception):
    """Something in the folder cannot be kept; says what."""


class FolderCopy:
    """One copy; ``owner`` gets what is made, if it is given; ``over``: it is not needed now."""

    def __init__(
        self, owner: tuple[int, int] | None = None, over: Callable[[], bool] = lambda: False
    ) -> None:
        self._owner, self._over = owner, over
        self._met = self.files = self.size = 0

    def folder(self, source: int, target: int, where: str = "", depth: int = 0) -> None:
        """Copy what is in one open folder into another."""
        if depth > _DEEP:
            raise CopyRefused(f"{where} is deeper than {_DEEP} folders")
        for name in sorted(os.listdir(source)):
            # Gone meanwhile: it was not meant to stay.
            with suppress(FileNotFoundError):
                try:
                    self._entry(name, source, target, f"{where}{name}", depth)
                except OSError as error:
                    if error.errno not in _OTHER_KIND:
                        raise
                    raise CopyRefused(f"{where}{name} is not what it was: try again") from None
        os.fsync(target)

    def _entry(self, name: str, source: int, target: int, path: str, depth: int) -> None:
        if name == _NOTE or (name.startswith(".") and name.endswith(".tmp")):
            return  # ours, or a checkpoint that is being written
        self._go_on()
        mode = os.lstat(name, dir_fd=source).st_mode
        self.files += not stat.S_ISDIR(mode)
        self._met += 1
        if self._met > _MANY:
            raise CopyRefused(f"there are more than {_MANY} files and folders")
        if stat.S_ISDIR(mode):
            with _opened(name, source) as inner:
                os.mkdir(name, 0o700, dir_fd=target)
                with _opened(name, target) as copy:
                    self.folder(inner, copy, f"{path}/", depth + 1)
                    self._give(copy)
        elif stat.S_ISREG(mode):
            try:
                self._file(name, source, target, path)
            except FileNotFoundError:
                self.files -= 1
                raise
        elif stat.S_ISLNK(mode):
            self._link(name, source, target, path)
        else:
            raise CopyRefused(f"{path} is neither a file nor a folder")

    def _file(self, name: str, source: int, target: int, path: str) -> None:
        with _closing(os.open(name, _READ, dir_fd=source)) as old:
            status = os.fstat(old)
            if not stat.S_ISREG(status.st_mode):
                raise CopyRefused(f"{path} is not the file that it was")
            mode = 0o700 if status.st_mode & 0o100 else 0o600
            with _closing(os.open(name, _WRITE, mode, dir_fd=target)) as new:
                # What is added meanwhile is not part of it: a copy must have an end.
                self._contents(old, new, status.st_size)
                os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
                self._give(new)
                os.fsync(new)

    def _contents(self, old: int, new: int, size: int) -> None:
        shared = _share(old, new)
        if not shared:
            os.ftruncate(new, size)
        for start, end in _filled(old, size):
            self.size += end - start
            if not shared:
                self._part(old, new, start, end)
        if not shared and (now := os.fstat(old).st_size) < size:
            os.ftruncate(new, now)

    def _part(self, old: int, new: int, start: int, end: int) -> None:
        while start < end:
            self._go_on()
            done = _move(old, new, start, min(end - start, _PIECE))
            if not done:
                return  # it has become shorter
            start += done

    def _go_on(self) -> None:
        if self._over():
            raise CopyRefused("it was given up")

    def _link(self, name: str, source: int, target: int, path: str) -> None:
        to = os.readlink(name, dir_fd=source)
        place = os.path.normpath(os.path.join(os.path.dirname(path), to))  # noqa: PTH118, PTH120
        if os.path.isabs(to) or place.split("/")[0] == "..":  # noqa: PTH117
            raise CopyRefused(f"{path} is a link that leads out of the folder")
        os.symlink(to, name, dir_fd=target)
        if self._owner:
            os.chown(name, *self._owner, dir_fd=target, follow_symlinks=False)

    def _give(self, fd: int) -> None:
        if self._owner:
            os.fchown(fd, *self._owner)


def copy_content(old: int, new: int) -> None:
    """Let an empty file have all that is in another one."""
    size = os.fstat(old).st_size
    if _share(old, new):
        return
    start = 0
    while start < size and (done := _move(old, new, start, min(size - start, _PIECE))):
        start += done


def _share(old: int, new: int) -> bool:
    """Have both files share their contents; False if the file system cannot do that."""
    try:
        fcntl.ioctl(new, _FICLONE, old)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise
        return False
    return True


def _filled(file: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that are no holes: from where to where."""
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = min(os.lseek(file, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno != errno.ENXIO:  # it cannot tell: no hole then
                yield end, size
            return
        if start < end:
            yield start, end


def _move(old: int, new: int, start: int, count: int) -> int:
    """Copy some bytes from one file to the same place in another; how many it were."""
    try:
        return os.copy_file_range(old, new, count, start, start)
    except OSError as error:
        if error.errno not in _OTHER_WAY:
            raise
    return os.pwrite(new, os.pread(old, count, start), start)


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    with _closing(os.open(name, _FOLDER, dir_fd=parent)) as fd:
        yield fd


def _become(account: dict[str, Any] | None) -> None:
    if account:
        os.setgroups(account["groups"])
        os.setgid(account["gid"])
        os.setuid(account["uid"])


def _into(path: str, source: int, copy: FolderCopy, job: str) -> None:
    """Copy into a folder of the account's own, which must be empty, missing or filled for this job.

    A note in it says for which job it was filled: a server that was killed may ask once more.
    """
    os.makedirs(path, exist_ok=True)  # noqa: PTH103 - as light as it can be
    place = os.path.realpath(path)
    if os.listdir(place):  # noqa: PTH208
        with suppress(OSError), open(f"{place}/{_NOTE}", encoding="utf-8") as note:  # noqa: PTH123
            if note.read(len(job) + 1) == job:
                return
        raise CopyRefused(f"{path} is not empty: give the new job a checkpoint folder of its own")
    draft = f"{place}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        os.mkdir(draft, 0o700)  # noqa: PTH102
        with _closing(os.open(draft, _FOLDER)) as target:
            with open(f"{draft}/{_NOTE}", "w", encoding="utf-8") as note:  # noqa: PTH123
                note.write(job)
            copy.folder(source, target)
        os.rename(draft, place)  # noqa: PTH104
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def main() -> None:
    """Carry out one order; what became of it, as JSON."""
    order = json.load(sys.stdin)
    copy = FolderCopy(over=lambda: os.getppid() != order["above"])
    told = {"refused": "", "errno": 0, "file": ""}
    try:
        _become(order["account"])
        if "source" in order:  # a path, or what is open already
            source = os.open(order["source"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            source = order["source_fd"]
        if "target_fd" in order:
            copy.folder(source, order["target_fd"])
        else:
            _into(order["target"], source, copy, order["job"])
    except CopyRefused as refused:
        told["refused"] = str(refused)
    except OSError as error:
        told |= {"errno": error.errno or errno.EIO, "file": str(error.filename or "")}
    json.dump({**told, "files": copy.files, "size": copy.size}, sys.stdout)


if __name__ == "__main__":
    main()
