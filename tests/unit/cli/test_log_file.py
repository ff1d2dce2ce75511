"""The server's log on a disk without room: one warning, no traceback, and the server goes on."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from pathlib import Path

import pytest

from roost.cli.server_log import ServerLogFile, server_log


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A log that cannot be written to."""
    (tmp_path / "server.log").symlink_to("/dev/full")
    return tmp_path / "server.log"


class Full(io.StringIO):
    """A stream on a disk without room."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []

    def write(self, text: str) -> int:
        self.refused.append(text)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_once(full: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with server_log(full.parent, "info", also_here=True):
        for number in range(3):
            logging.getLogger("roost.test").warning("word %s", number)
    said = capfd.readouterr().err
    assert said.count("No space left on device") == 1
    assert said.count("cannot write") == 1
    assert "Traceback" not in said
    assert "Logging error" not in said
    for number in range(3):
        assert f"word {number}" in said


def test_nowhere_to_complain_is_no_error_either(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Full()
    monkeypatch.setattr(sys, "stderr", stderr)
    with server_log(full.parent, "info", also_here=True):
        logging.getLogger("roost.test").warning("word")
    assert any("word" in text for text in stderr.refused)
    assert any("cannot write" in text for text in stderr.refused)
    assert not any("Traceback" in text for text in stderr.refused)


def test_only_the_owner_reads_the_log(tmp_path: Path) -> None:
    log = ServerLogFile(tmp_path / "server.log", encoding="utf-8")
    log.close()
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600
