"""Checkpoints written beside the training."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from roost.train.saver import Saver


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.delenv("ROOST_MTBF_S", raising=False)
    return tmp_path


class Clock:
    """Time that goes by when somebody writes."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Held:
    """A writer that waits to be let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, file: BinaryIO) -> None:
        self.begun.set()
        assert self.go.wait(20)
        file.write(b"held")


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.go.set()


def test_a_checkpoint_is_written_by_somebody_else(folder: Path, held: Held) -> None:
    saver, after = Saver("m"), []
    assert saver.submit(7, held, lambda: after.append((folder / "m").read_bytes()))
    assert held.begun.wait(20)
    assert saver.busy
    assert not saver.submit(8, lambda file: file.write(b"no"))
    assert not saver.due(1e12)
    assert not saver.wait(0.01)
    held.go.set()
    assert saver.wait(20)
    assert (saver.saved, saver.trouble, after) == (7, "", [b"held"])
    assert saver.due(1e12)


def test_what_goes_wrong_leaves_the_last_good_one(folder: Path) -> None:
    saver = Saver("m")

    def fails(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError("disk full")

    saver.submit(1, lambda file: file.write(b"good"))
    assert saver.wait(20)
    saver.submit(2, fails)
    assert not saver.wait(20)
    assert (saver.saved, saver.trouble) == (1, "OSError: disk full")
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("m", b"good")]
    saver.submit(3, lambda file: file.write(b"better"), lambda: 1 / 0)
    assert saver.wait(20)
    assert saver.saved == 3


def test_an_abandoned_one_does_not_replace_that_of_a_successor(folder: Path, held: Held) -> None:
    saver = Saver("m")
    saver.submit(1, held)
    assert held.begun.wait(20)
    saver.abandon()
    (folder / "m").write_bytes(b"of the successor")
    held.go.set()
    assert not saver.wait(20)
    assert saver.saved is None
    assert [path.read_bytes() for path in folder.iterdir()] == [b"of the successor"]
    saver.submit(2, lambda file: file.write(b"again"))
    assert saver.wait(20)


@pytest.mark.parametrize(
    ("cost_s", "mtbf_s", "period_s"),
    [(0.001, 3600.0, 5.0), (2.0, 3600.0, 120.0), (50.0, 40_000.0, 1800.0), (0.0, 1.0, 5.0)],
)
def test_the_period_follows_from_cost_and_failures(
    cost_s: float, mtbf_s: float, period_s: float
) -> None:
    clock = Clock()
    saver = Saver("m", mtbf_s=mtbf_s, clock=clock)

    def writes(_: BinaryIO) -> None:
        clock.now += cost_s

    saver.submit(1, writes)
    assert saver.wait(20)
    assert saver.cost_s == pytest.approx(cost_s)
    assert saver.period_s == pytest.approx(period_s)
    assert not saver.due(1000.0 + period_s - 0.1)
    assert saver.due(1000.0 + period_s + 0.1)


@pytest.mark.parametrize(("said", "hours"), [("3600", 1), ("x", 6), ("nan", 6), ("-1", 6)])
def test_the_time_between_failures_can_be_set(
    said: str, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_MTBF_S", said)
    saver = Saver("m")
    saver.cost_s = 2.0
    assert saver.period_s == pytest.approx((2 * 2.0 * hours * 3600) ** 0.5)


def test_what_killed_workers_left_behind_is_removed(folder: Path) -> None:
    old, young = folder / ".m.1.tmp", folder / ".m.2.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    saver = Saver("m")
    saver.submit(1, lambda file: file.write(b"x"))
    assert saver.wait(20)
    assert sorted(path.name for path in folder.iterdir()) == [".m.2.tmp", "m"]
