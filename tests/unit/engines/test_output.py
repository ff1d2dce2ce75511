"""What the shim keeps of a job's output and words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.engines.local.shim.output import TAIL, Log, Progress


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path, folder: int) -> None:
    log = Log("log", folder, 10)
    log.write(b"0123456789ab")
    log.write(b"c" * (TAIL - 3) + b"end")
    log.close()

    text = (tmp_path / "log").read_text()

    head, _, tail = text.partition("[roost: 2 bytes are left out here]\n")
    assert head == "0123456789\n[roost: the limit of 10 bytes is reached]\n"
    assert tail == "c" * (TAIL - 3) + "end"


def test_a_second_generation_has_the_room_that_is_left(tmp_path: Path, folder: int) -> None:
    for text in (b"first ", b"second"):
        log = Log("log", folder, 12)
        log.write(text)
        log.close()

    assert (tmp_path / "log").read_text() == "first second"


def test_a_log_follows_no_link(tmp_path: Path, folder: int) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"):
        Log("log", folder, 10)


def test_progress_is_read_from_whole_lines(tmp_path: Path, folder: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    progress = Progress("pipe", folder)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)

    os.write(writer, b'{"done": 0.5, "step": 7, "other": 1}\n{"loss": NaN, "do')
    assert progress.read()
    assert progress.told == {"done": 0.5, "step": 7}
    os.write(writer, b'ne": 0.75}\n[1]\n"x"\n{"done": -1, "saved": 2, "step": 1.5, "loss": true}\n')
    assert progress.read()
    assert progress.told["done"] == 0.75
    assert str(progress.told["loss"]) == "nan"
    os.write(writer, b"nothing\n")
    assert not progress.read()
    os.close(writer)
    os.close(progress.fd)


def test_something_else_in_its_place_is_no_pipe(tmp_path: Path, folder: int) -> None:
    (tmp_path / "pipe").write_text('{"done": 1}\n')
    progress = Progress("pipe", folder)

    assert progress.fd == -1
    assert not progress.read()
    assert Progress("missing", folder).fd == -1
