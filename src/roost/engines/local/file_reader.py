"""Lists and opens files that are not to be trusted: ``python -I -S file_reader.py``, order given.

A job puts what it likes into its folders: links that lead out, pipes, files that change while they
are looked at. Each part of a path is opened relative to the folder above it, no link is followed,
and only plain files are handed out. What belongs to another account is looked at by a process with
the rights of that account (``main``), which passes open files back: so a job cannot have the server
read for it what it may not read itself. Standard library alone.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEP = 64
#: Entries of one folder; more are not sorted for anybody.
_MANY = 200_000


def entries(root: int, path: str, after: str, most: int, *, deep: bool) -> list[dict[str, Any]]:
    """What is at ``path`` below an open folder, in order, from behind ``after``.

    ``deep``: with what is in folders below. A file is an entry by itself. What is neither
    file, folder nor link is left out, and so are names that are no UTF-8. Raises OSError.
    """
    parts = tuple(path.split("/")) if path else ()
    found: list[dict[str, Any]] = []
    try:
        with _entered(root, parts) as folder:
            behind = tuple(after.split("/")) if after else ()
            for entry in _walk(folder, parts, behind, deep=deep):
                found.append(entry)
                if len(found) >= most:
                    break
    except NotADirectoryError:
        with _entered(root, parts[:-1]) as folder:
            own = _entry(parts[-1], folder, parts)
            if own is None or own["kind"] == "folder":
                raise
            return [own]
    return found


def open_file(root: int, path: str) -> int:
    """A plain file below an open folder, open for reading; raises OSError."""
    *above, name = path.split("/")
    with _entered(root, tuple(above)) as folder:
        fd = os.open(name, _FILE, dir_fd=folder)  # returns at once, even if it is a pipe
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no plain file")


def version(status: os.stat_result) -> str:
    """What tells one content of a file from another, as far as the file system knows."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


@contextmanager
def _entered(root: int, parts: tuple[str, ...]) -> Iterator[int]:
    fd = os.dup(root)
    try:
        for name in parts:
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _walk(
    folder: int, above: tuple[str, ...], behind: tuple[str, ...], *, deep: bool
) -> Iterator[dict[str, Any]]:
    """Entries in the order of their parts, a folder before what is in it."""
    if len(above) > _DEEP:
        return
    for name in _names(folder):
        parts = (*above, name)
        inside = behind[: len(parts)] == parts
        if parts <= behind and not inside:
            continue
        # Gone meanwhile, or closed to this account: the others are of interest still.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            entry = _entry(name, folder, parts)
            if entry is None:
                continue
            if not inside:
                yield entry
            if deep and entry["kind"] == "folder":
                with _entered(folder, (name,)) as inner:
                    yield from _walk(inner, parts, behind, deep=True)


def _names(folder: int) -> list[str]:
    found = []
    with os.scandir(folder) as scanned:
        for one in scanned:
            with suppress(UnicodeEncodeError):
                one.name.encode()
                found.append(one.name)
            if len(found) > _MANY:
                raise OSError(errno.EFBIG, f"a folder has more than {_MANY} entries")
    return sorted(found)


def _entry(name: str, folder: int, parts: tuple[str, ...]) -> dict[str, Any] | None:
    status = os.lstat(name, dir_fd=folder)
    target = ""
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(status.st_mode):
        kind, target = "link", os.readlink(name, dir_fd=folder).encode(errors="replace").decode()
    else:
        return None
    return {
        "path": "/".join(parts),
        "kind": kind,
        "size_bytes": status.st_size if kind == "file" else 0,
        "modified_at": status.st_mtime,
        "executable": kind == "file" and bool(status.st_mode & 0o100),
        "target": target,
        "version": version(status) if kind == "file" else "",
    }


def _become(account: dict[str, Any]) -> None:
    os.setgroups(account["groups"])
    os.setgid(account["gid"])
    os.setuid(account["uid"])


def main() -> None:
    """Carry out one order with the rights of an account: entries as JSON, or an open file."""
    order = json.load(sys.stdin)
    told: dict[str, Any] = {"errno": 0, "entries": []}
    try:
        _become(order["account"])
        root = os.open(order["root"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if "socket" in order:
            with socket.socket(fileno=order["socket"]) as way:
                socket.send_fds(way, [b"."], [open_file(root, order["path"])])
        else:
            asked = (order["path"], order["after"], order["most"])
            told["entries"] = entries(root, *asked, deep=order["deep"])
    except OSError as error:
        told["errno"] = error.errno or errno.EIO
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
