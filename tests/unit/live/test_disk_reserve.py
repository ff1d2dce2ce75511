"""Room that a home keeps aside: given up at a start on a full disk, set aside again later."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from roost.live.disk_reserve import SIZE, DiskReserve


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What is free on the disk, beside what files here take."""
    found = SimpleNamespace(free=100 * SIZE)

    def allocate(file: int, offset: int, size: int) -> None:
        if size > found.free:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.truncate(file, offset + size)

    def state(_path: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=found.free, f_frsize=1)

    monkeypatch.setattr("os.posix_fallocate", allocate)
    monkeypatch.setattr("os.statvfs", state)
    return found


def test_room_is_set_aside_once(tmp_path: Path, disk: SimpleNamespace) -> None:
    del disk
    for _ in range(2):
        reserve = DiskReserve(tmp_path)
        reserve.open()
        assert reserve.why == ""
        assert reserve.file.stat().st_size == SIZE
        assert reserve.file.stat().st_mode & 0o777 == 0o600


def test_it_is_given_up_on_a_full_disk_and_set_aside_again(
    tmp_path: Path, disk: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.live.disk_reserve._AGAIN_S", 0.001)
    DiskReserve(tmp_path).open()
    disk.free = 100
    reserve = DiskReserve(tmp_path)
    reserve.open()
    assert not reserve.file.exists()
    assert reserve.why == f"the disk of {tmp_path} is full (0 MiB are free); make room on it"

    async def keep(free: int) -> None:
        disk.free = free
        keeping = asyncio.create_task(reserve.keep())
        for _ in range(50):
            await asyncio.sleep(0.001)
        keeping.cancel()

    asyncio.run(keep(SIZE + 1))
    assert reserve.why != "", "not before there is ample room"
    assert not reserve.file.exists()
    asyncio.run(keep(2 * SIZE))
    assert reserve.why == ""
    assert reserve.file.stat().st_size == SIZE


def test_without_a_reserve_a_full_disk_is_noticed_too(
    tmp_path: Path, disk: SimpleNamespace
) -> None:
    disk.free = 100
    reserve = DiskReserve(tmp_path)
    reserve.open()
    assert "is full" in reserve.why


def test_a_disk_that_refuses_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_given: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("os.posix_fallocate", refuses)
    reserve = DiskReserve(tmp_path)
    reserve.open()
    assert reserve.why == ""
    assert not reserve.file.exists()
