"""The file that workers look at to see who trains together.

``members.json`` lies in the job's own folder and is replaced as a whole. Its ``version`` grows with
every change of members; ``save`` and ``offload`` ask for something at the next step. The answers
come by the pipe of the job's reports; what is believed of them is in ``roll``.
"""

from __future__ import annotations

import os
from _socket import AF_INET, SOCK_STREAM, socket

from roost.elastic.members import MemberList
from roost.engines.local.shim.stdlib_subset import dumps, ignoring

_HOST = "127.0.0.1"
_DRAFT, _NAME = ".members.json", "members.json"
_SPACE = 4096


class MembersFile(MemberList):
    """The members of one generation, and the file that tells them."""

    def __init__(self, ids: list[str], address: str, folder: int, io: int) -> None:
        super().__init__(ids, address)
        self._folder, self._io = folder, io

    def _place(self, ids: list[str]) -> str:  # noqa: ARG002 - all of them are on this machine
        return f"{_HOST}:{_free_port()}"

    def _publish(self, version: int, address: str, ids: list[str], lost: list[str]) -> None:
        # Made where the job cannot reach it, and then moved: it may have put anything there.
        text = dumps(self._body(version, address, ids, lost)).encode()
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
