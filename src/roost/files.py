"""Reads and writes whole files: plain or gzipped text, and writes that happen entirely or not.

Every failure is a RoostError of one line that names the file. What the text says is for others.
"""

from __future__ import annotations

import gzip
import os
import stat
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from roost.errors import InvalidSpec, NotFound

_GZIP = b"\x1f\x8b"
_BLOCK = 512  # bytes that st_blocks counts in
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Files that a walk looks at before it rests, and the longest rest, in seconds.
_AT_ONCE, _REST_S = 500, 0.05
#: The most that a file counts for being a file, in bytes.
_MOST_SHARE = 64 << 10


class TextFile(NamedTuple):
    """A file that was read: the name errors give it, and what it says."""

    file: str
    text: str

    @property
    def name(self) -> str:
        """The file's name without folder and extensions."""
        name = Path(self.file).name
        return name.removesuffix(".gz").rpartition(".")[0] or name


#: Where a trace comes from: a path, or a text that is already here.
Source = str | os.PathLike[str] | TextFile


def load(source: Source, most: int | None = None) -> TextFile:
    """Read a text file, gzipped or not; raises NotFound or InvalidSpec.

    A file of more than ``most`` bytes is refused without reading all of it.
    """
    if isinstance(source, TextFile):
        return source
    file = os.fspath(source)
    content = _unzipped(file, _content(file, most))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{file} is not a text file: byte {error.start} is not UTF-8"
        raise InvalidSpec(msg) from None
    if "\0" in text:
        msg = f"{file} is not a text file: it contains zero bytes"
        raise InvalidSpec(msg)
    return TextFile(file, text)


def save(path: str | os.PathLike[str], text: str, mode: int | None = None) -> None:
    """Write a text file, gzipped if it is named so; on failure the old file stays as it was.

    It gets ``mode``, whatever the umask; None: as the umask has it.
    """
    content = text.encode()
    if os.fspath(path).endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    save_bytes(path, content, mode)


def load_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file as it is; raises NotFound or InvalidSpec."""
    return _content(os.fspath(path))


def save_bytes(path: str | os.PathLike[str], content: bytes, mode: int | None = None) -> None:
    """Write a file; on failure the old one stays as it was."""
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            msg = f"cannot write {path}: it is not a regular file"
            raise InvalidSpec(msg)
        _replace(target, content, mode)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        msg = f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
        raise InvalidSpec(msg) from error


def create(path: Path, content: bytes) -> None:
    """Make a file that is for its owner alone and survives a crash; raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        # Content first, then its name in the folder: a name without content would be believed.
        file.flush()
        os.fsync(descriptor)
    sync(path.parent)


def save_private(path: Path, text: str) -> None:
    """Write a line for its owner alone, for good; a crash leaves the old file or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        create(draft, f"{text}\n".encode())
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise InvalidSpec(msg) from None


def sync(folder: Path) -> None:
    """Have the names in a folder survive a crash; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tree_bytes(path: Path, least: int = 0) -> int:
    """The space on the disk that a folder takes, with all that is in it; no link is followed.

    A file with several names counts once, and every file and folder counts ``least`` bytes at
    least. However deep the folder is, and whatever is moved in it meanwhile, one folder is open at
    a time. After some files it rests as long as it worked: others get their turn.
    """
    walk = _TreeWalk(least)
    with suppress(OSError):
        walk.through(path)
    return walk.total


class _Step(NamedTuple):
    name: str
    inode: tuple[int, int]
    #: The folders in it that were not looked at yet.
    names: list[str]


class _TreeWalk:
    """Adds up what is in a folder; it goes back up by ``..``, so that no path gets too long."""

    def __init__(self, least: int) -> None:
        self.total = 0
        self._least, self._seen = least, set[tuple[int, int]]()
        self._count, self._since = 0, time.monotonic()

    def through(self, path: Path) -> None:
        """Add a folder with all that is in it; raises OSError where it cannot be opened."""
        self._add(path.lstat())
        here = os.open(path, _FOLDER)
        try:
            # The folders from the top down to the one that is open.
            trail = [_Step("", _inode(here), self._look(here))]
            while trail:
                names = trail[-1].names
                if names:
                    here = self._enter(here, names.pop(), trail)
                    continue
                trail.pop()
                if trail:
                    above = self._above(here, path, trail)
                    os.close(here)
                    here = above
        finally:
            os.close(here)

    def _enter(self, here: int, name: str, trail: list[_Step]) -> int:
        """Look at a folder; the one that is open then: a folder without others is left again."""
        try:
            below = os.open(name, _FOLDER, dir_fd=here)
        except OSError:
            return here
        found = self._look(below)
        if not found:
            os.close(below)
            return here
        trail.append(_Step(name, _inode(below), found))
        os.close(here)
        return below

    def _above(self, here: int, top: Path, trail: list[_Step]) -> int:
        """Open the last folder of a trail, which is above; where it was moved, by its names."""
        above = os.open("..", _FOLDER, dir_fd=here)
        if _inode(above) == trail[-1].inode:
            return above
        os.close(above)
        above = os.open(top, _FOLDER)
        for depth, step in enumerate(trail[1:], 1):
            try:
                below = os.open(step.name, _FOLDER, dir_fd=above)
            except OSError:
                del trail[depth:]  # it has gone
                break
            os.close(above)
            above = below
        return above

    def _look(self, folder: int) -> list[str]:
        """Add what is in an open folder; the names of the folders in it."""
        names = []
        with suppress(OSError), os.scandir(folder) as found:
            for one in found:
                with suppress(OSError):
                    self._add(one.stat(follow_symlinks=False))
                    if one.is_dir(follow_symlinks=False):
                        names.append(one.name)
                self._rest()
        return names

    def _add(self, status: os.stat_result) -> None:
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in self._seen:
                return
            self._seen.add((status.st_dev, status.st_ino))
        self.total += max(status.st_blocks * _BLOCK, self._least)

    def _rest(self) -> None:
        self._count += 1
        if self._count % _AT_ONCE == 0:
            time.sleep(min(time.monotonic() - self._since, _REST_S))
            self._since = time.monotonic()


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def file_share(path: Path) -> int:
    """The part of a disk that goes with one file, in bytes: it may run out of files first."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return (
        min(found.f_blocks * found.f_frsize // found.f_files, _MOST_SHARE) if found.f_files else 0
    )


def _replace(target: Path, content: bytes, mode: int | None) -> None:
    # In the same folder, so that the last step is a rename.
    draft = target.with_name(f".{uuid4().hex}.tmp")
    try:
        if mode is not None:
            # Before the content is there, so that it is never readable for others.
            draft.touch(0o600)
            draft.chmod(mode)
        draft.write_bytes(content)
        draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink()


def _content(file: str, most: int | None = None) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read() if most is None else opened.read(most + 1)
    except FileNotFoundError:
        msg = f"no such file: {file}"
        raise NotFound(msg) from None
    except IsADirectoryError:
        msg = f"{file} is a folder, not a file"
        raise InvalidSpec(msg) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        msg = f"cannot read {file!r}: {getattr(error, 'strerror', None) or error}"
        raise InvalidSpec(msg) from None
    if most is not None and len(content) > most:
        msg = f"{file} is longer than {most} bytes"
        raise InvalidSpec(msg)
    return content


def _unzipped(file: str, content: bytes) -> bytes:
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{file} is a damaged gzip file: {error}"
        raise InvalidSpec(msg) from None
