"""The file that tells workers which of them train together.

``members.json`` lies in the job's own folder and is replaced as a whole. Its ``version`` grows with
every change of members; ``save`` and ``offload`` ask for something at the next step. The answers
come by the pipe of the job's reports; ``roost.elastic.members`` says what is believed of them.
"""

from __future__ import annotations

import os
from _socket import AF_INET, SOCK_STREAM, socket

from roost.engines.local.shim.stdlib_subset import dumps, ignoring

_HOST = "127.0.0.1"
_DRAFT, _NAME = ".members.json", "members.json"
_SPACE = 4096

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class MembersFile:
    """Makes versions known by ``members.json``; ``folder`` is the run's, ``io`` the job's own."""

    def __init__(self, folder: int, io: int) -> None:
        self._folder, self._io = folder, io

    def can_meet(self, ids: Sequence[str]) -> bool:  # noqa: ARG002 - on one machine they always can
        """Whether it is known where these would meet."""
        return True

    def address(self, ids: Sequence[str], current: str) -> str:  # noqa: ARG002 - all of them are here
        """A port that is free now: members of an older version may still listen at the last one."""
        return f"{_HOST}:{_free_port()}"

    def publish(self, view: dict[str, Any]) -> None:
        """Replace the file; raises OSError."""
        # Made where the job cannot reach it, and then moved: it may have put anything there.
        text = dumps(view).encode()
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
