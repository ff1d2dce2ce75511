"""What a shim tells the server comes in order, however slow the server reads."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.engines.local.shim import slot_file
from roost.engines.local.shim.status import ShimRecords

ORDER = {"boot": "b", "token": "t", "generation": 1, "run": ["job", 1]}


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as made:
        made.bind(f"{tmp_path}/engine.sock")
        yield made


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[ShimRecords]:
    folder = os.open(tmp_path, os.O_RDONLY)
    made = ShimRecords(ORDER, folder, folder)
    yield made
    made._socket.close()
    for fd in (made._start, made._exit, made._said, folder):
        os.close(fd)


def heard(ear: socket.socket) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    while True:
        try:
            hint = json.loads(ear.recv(1 << 16))
        except BlockingIOError:
            return found
        assert hint.pop("run") == ["job", 1]
        found.append({name: hint[name] for name in hint if name not in {"token", "generation"}})


def fill(shim: ShimRecords) -> int:
    """Say something until the server has too much to read; how much it has."""
    count = 0
    while shim.due == float("inf"):
        shim.stuck([count])
        count += 1
    return count - 1


def test_nothing_overtakes_what_has_to_wait(
    ear: socket.socket, shim: ShimRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim.phase("preparing")
    count = fill(shim)
    shim.phase("running")
    ear.recv(1 << 16)  # there is room for one more
    shim.phase("frozen")
    shim.tell({"done": 0.5})
    later = time.monotonic() + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    shim.flush()
    before = heard(ear)
    assert before == [{"stuck": [number]} for number in range(count + 1)]

    later += 1
    shim.flush()

    assert heard(ear) == [{"phase": "frozen"}, {"told": {"done": 0.5}}]
    assert shim.due == float("inf")


def test_what_waits_does_not_grow(ear: socket.socket, shim: ShimRecords) -> None:
    fill(shim)
    for number in range(1000):
        shim.phase(f"p{number}")
        shim.stuck([number])
    assert shim._waiting == [{"phase": "p999"}, {"stuck": [999]}]
    heard(ear)


def test_what_is_new_is_written_down_before_it_is_told(
    ear: socket.socket, shim: ShimRecords, tmp_path: Path
) -> None:
    shim.phase("running")
    shim.facts["members"] = ["0", "2"]
    shim.announce({"change": {"number": 1}})
    with (tmp_path / "start.json").open("rb") as file:
        body = slot_file.read(file.fileno())

    assert body is not None
    assert (body["phase"], body["members"]) == ("running", ["0", "2"])
    assert heard(ear) == [{"phase": "running"}, {"change": {"number": 1}}]


def test_without_a_server_nothing_waits(shim: ShimRecords) -> None:
    shim.phase("running")
    assert shim.due == float("inf")
