"""The members of a running job, which Roost may change while it runs.

Roost writes a small file, named by ROOST_MEMBERS, and replaces it when workers are added, leave or
are lost. ``Members.look`` is cheap enough to be called at every step. Whatever the file holds, it
never raises: what cannot be understood is not news. Outside of Roost there is no such file, and the
members are those of RANK and WORLD_SIZE, for ever. The standard library is all it needs.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

from roost.train.lines import tell

__all__ = ["Left", "Members", "Misuse", "View", "tell"]

_LARGEST = 1 << 20
_MOST = 4096
_LONGEST_NAME = 64
_HIGHEST = 1 << 53
_PORTS = 1 << 16
_POLL_S = 0.002

#: What tells one content of the file from another: time, inode, size.
_Mark = tuple[int, int, int]


class Left(SystemExit):
    """This worker is no longer wanted and leaves in peace; the others go on without it."""

    def __init__(self) -> None:
        super().__init__(0)


class Misuse(RuntimeError):
    """The script uses the library wrongly; the message says what to do."""


class View(NamedTuple):
    """The members as they are wanted now."""

    version: int
    #: Where the first of them listens for the meeting of this version.
    address: tuple[str, int]
    #: In the order of their ranks.
    members: tuple[str, ...]
    #: Those that died, in place of being asked to leave.
    lost: frozenset[str] = frozenset()
    #: Grows when a checkpoint is asked for.
    save: int = 0
    #: Odd while the memory of the GPU shall be given up.
    offload: int = 0

    def rank(self, member: str) -> int | None:
        """The place of a member; None if it is not one."""
        return self.members.index(member) if member in self.members else None

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.members)


class Members:
    """What Roost says about the members, and which version of it this process trains with."""

    def __init__(self, path: str | None, me: str, start: View) -> None:
        self.me = me
        self._path = path
        self._view = start
        self._guessed = True
        self._mark: _Mark | None = None
        self._lock = threading.Lock()
        #: The version that this process trains with; ``settle`` moves it.
        self.version = self.look().version

    @classmethod
    def here(cls) -> Members:
        """The members of this process, from its environment."""
        size = max(1, number_of("WORLD_SIZE", 1))
        rank = number_of("RANK", 0)
        host = os.environ.get("MASTER_ADDR") or "127.0.0.1"
        address = (host, number_of("MASTER_PORT", 29500))
        names = tuple(str(number) for number in range(size))
        path = os.environ.get("ROOST_MEMBERS") or None
        me = os.environ.get("ROOST_MEMBER") if path else None
        return cls(path, me or str(rank), View(1, address, names))

    @property
    def changeable(self) -> bool:
        """Whether the members may change: true in Roost alone."""
        return self._path is not None

    def look(self) -> View:
        """The newest view; the file is read only if it changed."""
        if self._path is None:
            return self._view
        try:
            seen = os.stat(self._path)  # noqa: PTH116 - a Path costs three times as much
        except (OSError, ValueError):
            return self._view
        mark = (seen.st_mtime_ns, seen.st_ino, seen.st_size)
        if mark != self._mark:
            with self._lock:
                self._take(self._path, mark)
        return self._view

    def settle(self, view: View) -> None:
        """From now on this process trains as ``view`` says; ``train.rank()`` follows."""
        self.version = view.version
        rank = view.rank(self.me)
        CurrentRank.now = None if rank is None else (rank, view.size)

    def wait_beyond(
        self, version: int, patience_s: float, stopping: Callable[[], bool] = lambda: False
    ) -> View | None:
        """The first view after ``version``; None when patience ends or the process shall stop.

        Patience is counted in pauses: being frozen meanwhile uses none of it.
        """
        left = round(patience_s / _POLL_S)
        while (view := self.look()).version <= version:
            if left <= 0 or stopping():
                return None
            time.sleep(_POLL_S)
            left -= 1
        return view

    def _take(self, path: str, mark: _Mark) -> None:
        view = _read(path)
        if view is not None and (self._guessed or view.version > self._view.version):
            self._view, self._guessed = view, False
        elif view is not None and view.version == self._view.version:
            # The members and the address are settled for a version; wishes may come at any time.
            self._view = self._view._replace(
                save=max(self._view.save, view.save),
                offload=max(self._view.offload, view.offload),
                lost=self._view.lost | view.lost,
            )
        self._mark = mark


class CurrentRank:
    """Where this process stands, once it trains with others that may change."""

    now: ClassVar[tuple[int, int] | None] = None


def _read(path: str) -> View | None:
    with suppress(Exception):
        return _understood(json.loads(_content(path)))
    return None


def _content(path: str) -> bytes:
    # Anything might lie there: a pipe must not make us wait, nor a huge file fill the memory.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("not a file")
        return os.read(file, _LARGEST)
    finally:
        os.close(file)


def _understood(said: Any) -> View | None:
    members = said["members"]
    fine = (
        isinstance(members, list)
        and 0 < len(members) <= _MOST
        and len(set(members)) == len(members)
        and all(isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME for name in members)
    )
    version = _count(said["version"])
    if not fine or version < 1:
        return None
    host, _, port = said["address"].rpartition(":")
    if not host or not 0 < int(port) < _PORTS:
        return None
    return View(
        version,
        (host.strip("[]"), int(port)),
        tuple(members),
        frozenset(name for name in said.get("lost", ()) if isinstance(name, str)),
        _count(said.get("save", 0)),
        _count(said.get("offload", 0)),
    )


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _HIGHEST:
        raise ValueError("not a number of something")
    return value


def number_of(name: str, otherwise: int) -> int:
    """A number from the environment; ``otherwise`` where there is none."""
    try:
        return int(os.environ.get(name, otherwise))
    except ValueError:
        return otherwise
