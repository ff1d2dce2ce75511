"""A real server around a cluster of machines that report and do nothing, in a process of its own.

``python -m roost_bench.portal.world HOME NODES FINISHED`` fills a store with jobs that are over,
lets a job run on every machine, and serves. Some jobs report how they train every second. What it
prints is a line of JSON: its address and an administrator's token.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roost.api.jobs import JobView, StateName, WorkersView
from roost.api.schema import encode
from roost.core import NodeId, NodeJoined, NodeSpec, RunId
from roost.core.actions import Launch
from roost.engines import Assigned, ProgressReport, Report, RunOrder
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.live.cluster import Cluster
from roost.live.recovery import FORMAT
from roost.server.app import create_app
from roost.server.http import listen, serve
from roost.store import JobRow, JournalEntry, User, open_store
from roost_bench.checkout import need_test_support

need_test_support()
from tests.unit.server.worlds import ME, Puppets  # noqa: E402 - of the checkout

GPUS = 8
#: Jobs that report in a second.
REPORTS = 60
_BATCH = 1000


class ReportingMachines(Puppets):
    """Machines on which whatever is launched runs, and tells now and then how it does."""

    def __init__(self, nodes: int) -> None:
        super().__init__(GPUS)
        self._nodes = nodes
        self._runs: list[RunId] = []
        self._chance = random.Random(5)  # noqa: S311 - the same every time

    async def start(
        self, report: Callable[[Report], None], alive: Mapping[RunId, Assigned]
    ) -> None:
        """All machines are there."""
        del alive
        self._report = report
        for number in range(self._nodes):
            spec = NodeSpec(NodeId(f"node-{number:04}"), gpus=GPUS, kind="A100")
            report(NodeJoined(0.0, spec))

    async def perform(self, order: RunOrder) -> None:
        """Do it at once."""
        await super().perform(order)
        if isinstance(order.action, Launch):
            self._runs.append(order.action.run)

    async def keep_reporting(self) -> None:
        """Every second some of the jobs say how they train."""
        step = 0
        while True:
            await asyncio.sleep(1.0)
            step += 1
            for run in self._chance.sample(self._runs, min(REPORTS, len(self._runs))):
                busy, loss = self._chance.random(), 2.0 / step
                self._report(ProgressReport(0.0, run, step=step, loss=loss, step_s=0.5, busy=busy))


def fill(store_url: str, jobs: int) -> None:
    """Put jobs that are over into a store."""
    chance = random.Random(1)  # noqa: S311 - the same every time
    body: dict[str, Any] = {"v": FORMAT, "actor": "roost", "events": [], "decisions": []}
    with open_store(store_url) as store:
        store.journal.serve()
        for seq in range(-(-jobs // _BATCH)):
            rows = [_over(chance, seq * _BATCH + number) for number in range(_BATCH)][:jobs]
            entry = JournalEntry(seq + 1, f"{seq:032x}", 1e9, {**body, "notes": {}})
            store.journal.append([entry], rows)


def _over(chance: random.Random, number: int) -> JobRow:
    at = 1e9 + 10.0 * number
    name = f"train-{chance.randrange(500)}"
    states: tuple[StateName, ...] = ("succeeded", "failed", "cancelled")
    (state,) = chance.choices(states, (8, 1, 1))
    labels = {"team": chance.choice("abcdef"), "run": str(number)}
    user, queue = f"user-{chance.randrange(50)}", "default"
    gpus = chance.choice([1.0, 2.0, 8.0])
    name_id = f"{name}-{number:06}"
    view = JobView(
        name_id,
        name,
        user,
        queue=queue,
        state=state,
        labels=labels,
        workers=WorkersView(1, 1),
        gpus=gpus,
        submitted_at=at,
        started_at=at + 5,
        finished_at=at + 500,
        ran_s=495.0,
    )
    return JobRow(
        name_id,
        name,
        user,
        queue,
        state,
        gpus=gpus,
        submitted_at=at,
        started_at=at + 5,
        finished_at=at + 500,
        labels=labels,
        view=encode(view),
        document={"name": name, "command": ["true"], "labels": labels},
    )


async def run(home: Path, nodes: int, finished: int) -> None:
    """Serve until a signal comes."""
    url = f"sqlite://{home / 'roost.db'}"
    if finished:
        await asyncio.to_thread(fill, url, finished)
    machines = ReportingMachines(nodes)
    cluster = Cluster(open_store(url), machines, home, policy="fifo")
    await cluster.start()
    accounts = cluster.store.accounts
    accounts.add_user(User("root", "admin", unix=ME))
    _, token = accounts.add_token("root", "bench")
    for number in range(nodes):
        job = {"name": f"live-{number:04}", "command": ["true"], "gpus": GPUS}
        await cluster.submit(JobSubmission(JobFile.from_document(job), "root", ""))
    sock = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    reporting = asyncio.create_task(machines.keep_reporting())

    def ready() -> None:
        sys.stdout.write(json.dumps({"url": address, "token": token}) + "\n")
        sys.stdout.flush()

    try:
        await serve(create_app(cluster), sock, ready=ready)
    finally:
        reporting.cancel()
        await cluster.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
