"""What the shim keeps of a job's output and words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.elastic.protocol import checked, take
from roost.engines.local.shim.output import TAIL, ProgressPipe, WorkerLog


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path, folder: int) -> None:
    log = WorkerLog("log", folder, 10)
    log.write(b"0123456789ab")
    log.write(b"c" * (TAIL - 3) + b"end")
    log.close()

    text = (tmp_path / "log").read_text()

    head, _, tail = text.partition("[roost: 2 bytes are left out here]\n")
    assert head == "0123456789\n[roost: the limit of 10 bytes is reached]\n"
    assert tail == "c" * (TAIL - 3) + "end"


def test_a_second_generation_has_the_room_that_is_left(tmp_path: Path, folder: int) -> None:
    for text in (b"first ", b"second"):
        log = WorkerLog("log", folder, 12)
        log.write(text)
        log.close()

    assert (tmp_path / "log").read_text() == "first second"


def test_a_log_follows_no_link_and_what_cannot_be_made_drops_all(
    tmp_path: Path, folder: int
) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")

    for name in ("log", "no/such/folder"):
        log = WorkerLog(name, folder, 10)
        log.write(b"more than there is room for")
        log.close()

    assert not (tmp_path / "elsewhere").exists()


def test_progress_is_read_from_whole_lines(tmp_path: Path, folder: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    progress = ProgressPipe("pipe", folder)
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


def test_words_about_members_are_not_pushed_out(tmp_path: Path, folder: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    progress = ProgressPipe("pipe", folder)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, b'{"ready": "3"}\n[1, "ready"]\n' + b'{"step": 1}\n' * 500)

    assert progress.read()
    assert progress.words == [{"ready": "3"}]
    os.write(writer, b'{"elastic": true, "member": "0", "world": 2}\n' * 500)
    assert progress.read()
    assert len(progress.words) == 100
    assert progress.told == {"step": 1, "world": 2}  # one of them does not speak for all
    assert not progress.read()
    assert progress.words == []
    os.close(writer)
    os.close(progress.fd)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"step_s": 0.25, "batch": 64, "memory_mib": 10, "predicted_mib": 0}, True),
        ({"noise": 1e5, "world": 3, "elastic": True}, True),
        ({"sync_s": 0.125, "local_batch": 8, "epochs": 2.5}, True),
        ({"sync_s": -0.1, "local_batch": 1 << 41, "epochs": float("nan")}, False),
        ({"sync_s": "1", "local_batch": 2.5, "epochs": 1e300}, False),
        ({"step_s": -1, "batch": 1.5, "memory_mib": -1, "predicted_mib": 1 << 41}, False),
        ({"step_s": float("inf"), "noise": float("nan"), "world": True, "elastic": 1}, False),
        ({"step_s": 10**400, "noise": -0.1, "world": 1 << 21, "batch": "8"}, False),
    ],
)
def test_numbers_are_within_reason(said: dict[str, object], *, kept: bool) -> None:
    assert checked(said) == (said if kept else {})


def test_what_was_timed_with_others_is_not_said_of_these() -> None:
    told: dict[str, object] = {}
    take(told, {"step": 1, "step_s": 0.5, "sync_s": 0.1, "local_batch": 8, "epochs": 1.0})
    take(told, {"world": 2})
    assert told == {"step": 1, "epochs": 1.0, "world": 2}
    take(told, {"step_s": 0.25, "sync_s": 0.1, "world": 2})
    take(told, {"step": 2, "world": 2})
    assert told == {"step": 2, "epochs": 1.0, "world": 2, "step_s": 0.25, "sync_s": 0.1}


def test_something_else_in_its_place_is_no_pipe(tmp_path: Path, folder: int) -> None:
    (tmp_path / "pipe").write_text('{"done": 1}\n')
    progress = ProgressPipe("pipe", folder)

    assert progress.fd == -1
    assert not progress.read()
    assert ProgressPipe("missing", folder).fd == -1


def test_a_log_that_is_restrained_says_why_and_goes_on_later(folder: int, tmp_path: Path) -> None:
    log = WorkerLog("log", folder, 1 << 20)
    log.write(b"one\n")
    log.restrain("ada has too much")
    log.restrain("ada has too much, still")
    log.write(b"two\n")
    log.write(b"x" * (2 * TAIL))
    log.restrain("")
    log.write(b"\nthree\n")
    log.restrain("ada has too much again")
    log.write(b"four\n")
    log.close()
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"one\n\n[roost: ada has too much]\n")
    assert b"still" not in text
    assert f"[roost: {TAIL + 4} bytes are left out here]\n".encode() in text
    tail = b"\n[roost: ada has too much again]\n[roost: 0 bytes are left out here]\nfour\n"
    assert text.endswith(b"x\nthree\n" + tail)
