"""An engine on strings: it notes what it is told, and reports what a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from roost.core import Action, JobId, JobSpec, NodeJoined, NodeSpec, RunId, Started
from roost.engines import (
    Assigned,
    Ended,
    Ending,
    JobFiles,
    LogFile,
    Report,
    RunOrder,
    SnapshotInfo,
    Usage,
    WorkerExit,
)
from roost.errors import Conflict, NotFound
from roost.jobfile.program import Program

A = TypeVar("A", bound=Action)


class RecordingEngine:
    """Performs nothing. ``orders`` is what it was told; ``report`` passes a report on."""

    def __init__(self, *nodes: NodeSpec) -> None:
        self.nodes = nodes
        self.orders: list[RunOrder] = []
        #: What it reports when it starts.
        self.first: list[Report] = []
        self.alive: Mapping[RunId, Assigned] = {}
        self.forgotten: list[JobId] = []
        self.report: Callable[[Report], None] = lambda _: None
        #: What jobs have saved, by the names of files; and what it waits for before it copies.
        self.saved: dict[JobId, dict[str, bytes]] = {}
        self.copying = asyncio.Event()
        self.copying.set()
        #: Whether jobs save themselves for a snapshot.
        self.fresh = True
        #: Why a spec is refused; empty: it is not.
        self.refusal = ""
        #: How large jobs are, and what was told of runs whose users are beyond a bound.
        self.sizes: dict[JobId, int] = {}
        self.restraints: list[tuple[RunId, str, bool]] = []
        self._news = asyncio.Event()

    async def start(
        self, report: Callable[[Report], None], alive: Mapping[RunId, Assigned]
    ) -> None:
        """Take note of what is said to be alive; orders that are open count as given."""
        self.report, self.alive = report, alive
        for node in self.nodes:
            report(NodeJoined(0.0, node))
        for one in self.first:
            report(one)
        self.orders += [assigned.order for assigned in alive.values() if assigned.order]

    async def perform(self, order: RunOrder) -> None:
        """Take note of an order."""
        self.orders.append(order)
        self._news.set()

    async def told(self, kind: type[A], timeout_s: float = 60.0) -> A:
        """The next order of that kind, which is then done with."""
        async with asyncio.timeout(timeout_s):
            while True:
                for order in self.orders:
                    if isinstance(order.action, kind):
                        self.orders.remove(order)
                        return order.action
                self._news.clear()
                await self._news.wait()

    def up(self, run: RunId) -> None:
        """Report that a run is up."""
        self.report(Started(0.0, run))

    def ended(self, run: RunId, code: int = 0, cause: Ending = "exit") -> None:
        """Report that a run is over."""
        self.report(Ended(0.0, run, (WorkerExit("worker", 0, code, None),), cause))

    async def restrain(self, run: RunId, why: str, *, ends: bool = False) -> None:
        """Take note."""
        self.restraints.append((run, why, ends))

    def refuses(self, spec: JobSpec, program: Program) -> str:
        """Say what the test wants it to."""
        del spec, program
        return self.refusal

    async def snapshot(self, run: RunId, into: Path, timeout_s: float) -> SnapshotInfo:
        """Write what the job has saved."""
        del timeout_s
        await self.copying.wait()
        files = self.saved.get(run.job)
        if not files:
            raise Conflict(f"job {run.job} has no checkpoint yet")
        into.mkdir()  # noqa: ASYNC240 - a test's own small folder
        for name, content in files.items():
            (into / name).write_bytes(content)
        return SnapshotInfo(len(files), sum(map(len, files.values())), fresh=self.fresh)

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """There are none."""
        raise NotFound(f"no log {worker} of {run}")

    def workers(self, run: RunId) -> tuple[str, ...]:
        """There are none."""
        del run
        return ()

    def result(self, run: RunId) -> LogFile | None:
        """There is none."""
        del run
        return None

    def files(self, run: RunId, own: Mapping[str, str]) -> JobFiles:
        """There are none."""
        del own
        raise NotFound(f"nothing is kept of run {run}")

    def usage(self) -> Mapping[RunId, Usage]:
        """Nothing is used."""
        return {}

    def compact(self, job: JobId) -> None:
        """There is nothing to be made small."""

    def size_bytes(self, job: JobId, least: int = 0) -> int:
        """What the test says, or as many MiB as the name of the job has letters."""
        del least
        return self.sizes.get(job, len(job) << 20)

    def forget(self, job: JobId) -> None:
        """Take note."""
        self.forgotten.append(job)

    def sweep(self, known: Callable[[JobId], bool]) -> None:
        """Nothing was left behind."""
        del known

    async def close(self) -> None:
        """Nothing to let go of."""
