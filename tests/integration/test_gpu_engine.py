"""Shares through the whole engine, on CPU slots: turns, suspend and resume, a stop, a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.local_world import World, assigned, python

from roost.core.actions import Resume, Suspend
from roost.core.allocation import Allocation, Part
from roost.core.events import Started, Suspended
from roost.core.spec import JobSpec, Resources, RunId
from roost.engines.local.gpu.signals import cpu_s, family
from roost.engines.local.gpu.state_files import StateFiles

BUSY = "print('up', flush=True)\nwhile True: pass"
#: Its work is done by a process that left its tree and its session, while the worker sleeps.
AWAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("up", os.getpid(), flush=True)
        while True: pass
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    files = StateFiles(tmp_path / "gpu")
    with suppress(ProcessLookupError, KeyError):
        os.kill(files.status()["pid"], signal.SIGTERM)
    deadline = time.monotonic() + 60
    while files.has_daemon():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def launch(world: World, job: str, share_milli: int, source: str = BUSY) -> RunId:
    spec = JobSpec(resources=Resources(share_milli=share_milli))
    where = Allocation((Part(world.node, (0,), share_milli),))
    run = world.launch(job, python(source), where, spec)
    world.until(Started, run)
    world.follow(run, "up")
    return run


def worker(home: Path, run: RunId) -> int:
    """The number of a run's worker, as the sharing daemon was told."""
    table = json.loads((home / "gpu" / "tenants.json").read_text())["tenants"]
    return next(int(row["pid"]) for row in table if row["key"] == f"{run}/worker-0")


def stopped(pid: int) -> bool:
    return all(one.state == "T" for one in family(pid))


def parts(world: World, *pids: int, total_s: float = 2.0) -> list[float]:
    """How processes divide so much CPU time."""
    before = [cpu_s([pid]) for pid in pids]
    used = [0.0]
    deadline = time.monotonic() + 60
    while sum(used) < total_s:
        assert time.monotonic() < deadline
        world.loop.run_until_complete(asyncio.sleep(0.02))
        used = [cpu_s([pid]) - was for pid, was in zip(pids, before, strict=True)]
    return [one / sum(used) for one in used]


def test_two_jobs_share_a_slot_and_one_is_suspended(home: Path) -> None:
    world = World(home)
    world.start()
    try:
        large, small = launch(world, "large", 750), launch(world, "small", 250)
        pids = [worker(home, run) for run in (large, small)]
        parts(world, *pids, total_s=0.5)
        assert parts(world, *pids)[0] == pytest.approx(0.75, abs=0.1)

        world.order(Suspend(large, "test"), python(BUSY))
        world.until(Suspended, large)
        before = cpu_s(pids[:1])
        assert parts(world, *pids, total_s=0.3)[0] == 0.0
        assert stopped(pids[0])

        where = Allocation((Part(world.node, (0,), 750),))
        world.order(Resume(large, where), python(BUSY))
        world.until(Started, large)
        assert parts(world, *pids)[0] > 0.5
        assert cpu_s(pids[:1]) > before
        for run in (large, small):
            assert world.end(run).cause == "stopped"
    finally:
        world.close()


def test_work_that_left_the_tree_of_its_worker_is_held_to_its_share(home: Path) -> None:
    world = World(home)
    world.start()
    try:
        runs = [launch(world, "away", 250, AWAY), launch(world, "stays", 750)]
        away = int(world.follow(runs[0], "up ").split()[1])
        pids = [away, worker(home, runs[1])]
        parts(world, *pids, total_s=0.5)
        assert parts(world, *pids)[0] == pytest.approx(0.25, abs=0.12)
        for run in runs:
            world.end(run)
    finally:
        world.close()


def test_turns_go_on_without_a_server_and_with_the_next(home: Path) -> None:
    world = World(home)
    world.start()
    one, other = launch(world, "one", 500), launch(world, "other", 500)
    pids = [worker(home, run) for run in (one, other)]
    deadline = time.monotonic() + 60
    while (guard := StateFiles(home / "gpu").status().get("pid")) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    world.close()
    world = World(home)
    world.start({one: assigned(), other: assigned()})
    try:
        assert min(parts(world, *pids)) > 0.35
        assert StateFiles(home / "gpu").status()["pid"] == guard
        for run in (one, other):
            world.end(run)
    finally:
        world.close()
