"""The files of one run: its working folder, its checkpoints and its logs.

Paths begin with the name of one of the three. Logs are the server's own; the others are the job's,
and are looked at with the rights of the account that it runs under (``file_reader``).
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.engines import FileQuery
from roost.engines.local import file_reader
from roost.engines.local.accounts import Account
from roost.engines.local.run_folders import OutputFile
from roost.engines.local.shim import process_tree
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable, unknown

#: Errors that mean that there is nothing of that name, for anybody that is not the server.
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO}
)
_NOT_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ETIMEDOUT})
_LONGEST, _LONGEST_PART = 4096, 255
#: How long a look with the rights of an account may take, and how often it is watched.
_PATIENCE_S, _LOOK_S = 20.0, 0.2


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Where the files of a run are: the absolute folder for each name.

    ``account`` is the one that the job runs under, if it is not the server's.
    """

    folders: Mapping[str, Path]
    account: Account | None
    python: str

    @property
    def places(self) -> dict[str, str]:
        """The absolute folder for each name."""
        return {name: str(path) for name, path in self.folders.items()}

    def page(self, query: FileQuery) -> list[dict[str, Any]]:
        """Entries at a path and, if it is wished, below; raises NotFound."""
        name, inner = self._split(query.path)
        behind = query.after[len(name) + 1 :] if query.after.startswith(f"{name}/") else ""
        asked = {"path": inner, "after": behind, "most": query.most, "deep": query.deep}
        with _told(query.path):
            found = self._entries(name, asked)
        return [{**one, "path": f"{name}/{one['path']}"} for one in found]

    def open(self, path: str) -> OutputFile:
        """A plain file, open for reading; raises NotFound."""
        name, inner = self._split(path)
        if not inner:
            raise InvalidSpec(f"{path} is a folder; its files are fetched one by one")
        with _told(path):
            if self._apart(name) is not None:
                return OutputFile(self._opened_apart(name, inner))
            with _root(self.folders[name]) as root:
                return OutputFile(file_reader.open_file(root, inner))

    def _split(self, path: str) -> tuple[str, str]:
        name, _, inner = path.partition("/")
        parts = inner.split("/") if inner else []
        if len(path.encode(errors="replace")) > _LONGEST or any(
            part in ("", ".", "..") or "\0" in part or len(part.encode()) > _LONGEST_PART
            for part in parts
        ):
            raise InvalidSpec(f"{path[:80]!r} is no path within a folder of the job")
        if name not in self.folders:
            raise unknown("folder", name[:80], self.folders)
        return name, inner

    def _apart(self, name: str) -> Account | None:
        return None if name == "logs" else self.account

    def _entries(self, name: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        if (account := self._apart(name)) is not None:
            told = self._look({**asked, "root": str(self.folders[name])}, account)
            found: list[dict[str, Any]] = told["entries"]
            return found
        with _root(self.folders[name]) as root:
            return file_reader.entries(
                root, asked["path"], asked["after"], asked["most"], deep=asked["deep"]
            )

    def _opened_apart(self, name: str, path: str) -> int:
        ours, theirs = socket.socketpair()
        account = self._apart(name)
        assert account is not None  # noqa: S101 - as the caller saw
        with ours, theirs:
            order = {"root": str(self.folders[name]), "path": path, "socket": theirs.fileno()}
            self._look(order, account, theirs.fileno())
            theirs.close()
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            if not fds:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return fds[0]

    def _look(self, order: dict[str, Any], account: Account, *fds: int) -> dict[str, Any]:
        """What a process with the rights of an account says; raises OSError."""
        child = subprocess.Popen(  # noqa: S603 - our own
            [self.python, "-I", "-S", file_reader.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=fds,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        )
        with child:
            text = _heard(child, json.dumps({**order, "account": account._asdict()}).encode())
        told: dict[str, Any] = {}
        with suppress(ValueError):
            told = json.loads(text)
        code = int(told.get("errno", errno.EIO))
        if code:
            raise OSError(code, os.strerror(code))
        return told


def _heard(child: subprocess.Popen[bytes], order: bytes) -> bytes:
    """What the process says; the account that it has may stop it, and then it is killed."""
    end = time.monotonic() + _PATIENCE_S
    given: bytes | None = order
    while True:
        try:
            return child.communicate(given, _LOOK_S)[0]
        except subprocess.TimeoutExpired:
            given = None  # Popen remembers what is left to send
        except BrokenPipeError:
            return b""
        process = process_tree.look(child.pid)
        if time.monotonic() > end or (process is not None and process.state in "Tt"):
            child.kill()  # the next communicate() reaps it


@contextmanager
def _root(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT:
            raise NotFound(f"the job has no file or folder {path[:200]!r}") from None
        if error.errno in _NOT_NOW:
            raise Retryable(f"{path[:200]} cannot be read now: {error.strerror}", 1.0) from None
        raise Conflict(f"{path[:200]} cannot be read: {error.strerror}") from None
