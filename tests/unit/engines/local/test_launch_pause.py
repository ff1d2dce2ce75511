"""Launches are held while the machine is in trouble, and let go when it is not."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from roost.engines.local import launch_pause
from roost.engines.local.launch_pause import LaunchPause, is_full, words
from roost.engines.local.run_folders import RunFolders
from roost.errors import Retryable


def failing(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Machine:
    """A machine that is in trouble for so many probes."""

    def __init__(self, *troubles: OSError) -> None:
        self.troubles = list(troubles)
        self.sizes: list[int] = []
        self.told: list[str] = []
        self.heard: list[bool] = []
        self.pause = LaunchPause(self._probe, self._tell)

    async def _probe(self, size: int) -> None:
        self.sizes.append(size)
        if self.troubles:
            raise self.troubles.pop(0)

    def _tell(self, trouble: OSError | None) -> None:
        self.told.append("" if trouble is None else str(trouble.strerror))

    async def holds(self, orders: int) -> None:
        done = asyncio.Event()
        for size in range(orders):
            self.pause.hold(self.heard.append, size)
        self.pause.hold(lambda _: done.set())
        await asyncio.wait_for(done.wait(), 60)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_pause, "_PROBE_S", 0.0)


def test_all_that_is_held_goes_on_after_one_trouble() -> None:
    machine = Machine(failing(errno.ENOSPC), failing(errno.ENOSPC), failing(errno.EMFILE))
    asyncio.run(machine.holds(3))
    assert machine.heard == [True] * 3
    assert machine.told == ["No space left on device", "Too many open files", ""]
    assert machine.sizes == [2] * 4  # the largest that is held, one probe at a time
    assert machine.pause.trouble is None


def test_trouble_of_one_run_alone_is_no_trouble_of_the_machine() -> None:
    machine = Machine()
    asyncio.run(machine.holds(1))
    assert (machine.heard, machine.told) == ([False], [])


def test_a_pause_ends_with_its_engine() -> None:
    async def story() -> None:
        machine = Machine(*[failing(errno.EIO)] * 1000)
        machine.pause.hold(machine.heard.append)
        await asyncio.sleep(0)  # the first probe fails
        await machine.pause.close()
        assert machine.heard == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("trouble", "full", "says"),
    [
        (failing(errno.ENOSPC), True, "the server's disk is full; it starts by itself when"),
        (failing(errno.EDQUOT), True, "quota of its disk is used up"),
        (failing(errno.ENOMEM), False, "out of memory"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), False, "denied: /x; it starts"),
        (Retryable("no room for the copy", after=1.0), False, "no room for the copy; it starts"),
    ],
)
def test_users_read_what_is_the_matter(
    trouble: OSError | Retryable,
    full: bool,  # noqa: FBT001
    says: str,
) -> None:
    assert says in words(trouble)
    assert is_full(trouble) is full


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    runs = RunFolders(tmp_path)
    try:
        launch_pause.probe(runs, "/usr/bin/env", 1 << 16)
    except OSError as error:
        assert "ended with" in str(error)  # noqa: PT017 - env is no Python
    try:
        assert not list((tmp_path / "runs").iterdir())
        assert not list((tmp_path / "running").iterdir())
        (tmp_path / "running").rmdir()
        with pytest.raises(FileNotFoundError):
            launch_pause.probe(runs, "/bin/true", 1 << 16)
        assert not list((tmp_path / "runs").iterdir())
        (tmp_path / "running").mkdir()
        launch_pause.probe(runs, "/bin/true", 1 << 16)
    finally:
        runs.close()
