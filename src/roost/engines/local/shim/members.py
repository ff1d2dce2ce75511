"""Who trains together: the file that workers look at, and what they say about it.

``members.json`` lies in the job's own folder and is replaced as a whole. Its ``version`` grows with
every change of members; ``save`` and ``offload`` ask for something at the next step. The answers
come by the pipe of the job's reports. Any process of the job may write there, so only what fits is
believed, and nothing that is kept can grow: ids are those that were given out here.
"""

from __future__ import annotations

import os
from _socket import AF_INET, SOCK_STREAM, socket

from .light import dumps, ignoring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HOST = "127.0.0.1"
_DRAFT, _NAME = ".members.json", "members.json"
_LONG_S = 1e9  # no pause is longer
_DIGITS = 9
_SPACE = 4096


class Members:
    """The members of one generation, in the order of their ranks."""

    def __init__(self, ids: list[str], address: str, folder: int, io: int) -> None:
        self._folder, self._io = folder, io
        self._given = len(ids)
        self.ids, self.address, self.version = ids, address, 1
        #: Those that died since the members last trained together.
        self.lost: list[str] = []
        self.save = self.offload = 0
        #: What was said: who waits to join, what was trained with and after how long a pause.
        self.ready: set[str] = set()
        self.joined, self.pause_s = 0, 0.0
        self.saved = 0
        #: Whether they said that the training is over, and have not begun another.
        self.over = False
        self._elastic: set[str] = set()
        self._offloaded: dict[str, int] = {}

    @property
    def elastic(self) -> bool:
        """Whether every member said that it can change its members."""
        return bool(self.ids) and self._elastic.issuperset(self.ids)

    @property
    def together(self) -> bool:
        """Whether the members of this version train."""
        return self.joined == self.version

    @property
    def offloaded(self) -> bool:
        """Whether every member did what ``offload`` last asked for."""
        return all(self._offloaded.get(one) == self.offload for one in self.ids)

    def new(self) -> str:
        """An id that was never given out."""
        self._given += 1
        return str(self._given - 1)

    def change(self, ids: list[str], lost: list[str]) -> None:
        """Let these be the members from now on; raises OSError, and then nothing has changed."""
        address = f"{_HOST}:{_free_port()}"
        self._publish(self.version + 1, address, ids, lost)
        self.version, self.address, self.ids, self.lost = self.version + 1, address, ids, lost

    def publish(self) -> None:
        """Write down how it is; raises OSError."""
        self._publish(self.version, self.address, self.ids, self.lost)

    def forget(self, member: str) -> None:
        """A member is gone for good."""
        self._elastic.discard(member)
        self.ready.discard(member)
        self._offloaded.pop(member, None)

    def hear(self, said: dict[str, Any]) -> None:
        """Take in what a worker says, as far as it makes sense."""
        member = said.get("member")
        known = isinstance(member, str) and self._is_known(member)
        if known and said.get("elastic") is True:
            self._elastic.add(str(member))
        if known and said.get("over") is True:
            self.over = True
        ready = said.get("ready")
        if isinstance(ready, str) and self._is_known(ready):
            self.ready.add(ready)
        if self.ids and member == self.ids[0] and _number(said.get("joined")) == self.version:
            self.joined, self.pause_s = self.version, _seconds(said.get("pause_s"))
            self._elastic.update(self.ids)
            self.lost, self.over = [], False
        saved = _number(said.get("saved_for"))
        if self.saved < saved <= self.save:
            self.saved = saved
        if known and self.offload and _number(said.get("offloaded")) == self.offload:
            self._offloaded[str(member)] = self.offload

    def _is_known(self, member: str) -> bool:
        """Whether an id was given out; as text, so that there is one way to write each."""
        if len(member) > _DIGITS or not member.isdecimal():
            return False
        return str(int(member)) == member and int(member) < self._given

    def _publish(self, version: int, address: str, ids: list[str], lost: list[str]) -> None:
        body = {
            "version": version,
            "address": address,
            "members": ids,
            "lost": lost,
            "save": self.save,
            "offload": self.offload,
        }
        # Made where the job cannot reach it, and then moved: it may have put anything there.
        text = dumps(body).encode()
        fd = self._draft(len(text))
        try:
            os.ftruncate(fd, len(text))
            while text:
                text = text[os.write(fd, text) :]
            os.fchmod(fd, 0o644)
        finally:
            os.close(fd)
        os.replace(_DRAFT, _NAME, src_dir_fd=self._folder, dst_dir_fd=self._io)
        # The next one has its space from now on: a full disk must not keep a job from going on.
        with ignoring(OSError):
            os.close(self._draft(_SPACE))

    def _draft(self, size: int) -> int:
        """The file to write the next version to, with space for it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(_DRAFT, flags, 0o600, dir_fd=self._folder)
        except OSError:
            os.unlink(_DRAFT, dir_fd=self._folder)  # something else was put there
            fd = os.open(_DRAFT, flags, 0o600, dir_fd=self._folder)
        try:
            os.posix_fallocate(fd, 0, size)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _free_port() -> int:
    probe = socket(AF_INET, SOCK_STREAM)
    try:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
    finally:
        probe.close()


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if 0 <= value < _LONG_S else 0.0
