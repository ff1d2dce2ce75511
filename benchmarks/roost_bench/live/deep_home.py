"""A home with a deep queue: a real driver and a store go through all submissions, one entry each.

Only processes are left out: the server that is started on the home launches those that run.
"""

from __future__ import annotations

import asyncio
import getpass
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from roost_bench.checkout import need_test_support

#: Jobs that are handed in at a time: a batch of the driver.
_AT_ONCE = 256
_USERS = 20
_KEEPS_ON = {"command": ["sleep", "86400"], "checkpoint": {"grace": 1}}


def fill(home: Path, running: int, queued: int) -> None:
    """Submit so many jobs that run, and behind them so many that wait."""
    asyncio.run(_fill(home, running, queued))


def documents(running: int, queued: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The jobs, each with its user: those that run first, on a slot each."""
    chance = random.Random(7)  # noqa: S311 - the same jobs every time
    for _ in range(running):
        yield getpass.getuser(), {**_KEEPS_ON, "name": "runs", "run_time": "1d"}
    for number in range(queued):
        minutes = round(chance.lognormvariate(4, 1.5)) + 1
        size = chance.choice((1, 1, 1, 1, 2, 2, 4, 8))
        job = {"name": "waits", "workers": min(size, max(running, 1)), "run_time": f"{minutes}m"}
        yield f"user-{number % _USERS}", {**_KEEPS_ON, **job}


async def _fill(home: Path, running: int, queued: int) -> None:
    need_test_support()
    from tests.support.recording_engine import RecordingEngine

    from roost import placement, policies
    from roost.core import QueueChanged, QueueId, QueueSpec
    from roost.engines.local import devices
    from roost.jobs.clock import WallClock
    from roost.live.driver import Driver
    from roost.live.private_files import PrivateFiles
    from roost.store import open_store

    machine = await devices.find(sys.executable, max(running, 1))
    with open_store(f"sqlite://{home / 'roost.db'}") as store:
        store.journal.claim()
        driver = Driver(
            store,
            RecordingEngine(machine.node),
            policies.policy("fifo"),
            placement.placer("consolidate"),
            PrivateFiles(home),
            WallClock(),
        )
        await driver.start()
        await driver.ask(_command(lambda now: QueueChanged(now, QueueSpec(QueueId("default")))))
        jobs = enumerate(documents(running, queued))
        while batch := list(islice(jobs, _AT_ONCE)):
            asked = (_submission(number, *told) for number, told in batch)
            await asyncio.gather(*(driver.ask(command) for command in asked))
        await driver.close()


def _submission(number: int, user: str, document: dict[str, Any]) -> Any:
    from roost.core import JobId, Submitted
    from roost.jobfile import JobFile
    from roost.jobs.record import JobRecord

    file = JobFile.from_document(document)
    name = JobId(f"{file.name}-{number:06}")
    spec, told = file.spec(user), file.document()
    unix = user if user == getpass.getuser() else ""
    return _command(
        lambda now: Submitted(now, name, spec),
        record=JobRecord(name, file, user, unix, "", told),
        notes={"document": told, "request": "", "unix": unix},
    )


def _command(event: Any, **more: Any) -> Any:
    from roost.live.intake import Command

    return Command(event, "bench", asyncio.get_running_loop().create_future(), **more)
