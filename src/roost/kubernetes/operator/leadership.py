"""One term of office: from the moment this process leads until it does no longer.

    1. fold everything there is into a new core
    2. fold what changes, some workloads at a time; let the core decide once for all of them
    3. let sources write down what was decided, and workloads make it real
    4. again

Requests are made in tasks beside the loop, through the binder, and end with the term. Nothing waits
for them here, and the loop lets others run between two batches.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from roost.core import Action, Event, JobId, Placer, Policy, Woke
from roost.errors import Fatal, Retryable
from roost.jobs.history import touched
from roost.kubernetes.client.api import Api, Object
from roost.kubernetes.client.kinds import ResourceKind
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.events import EventWriter
from roost.kubernetes.operator.reconciler import Objects, Reconciler
from roost.kubernetes.operator.workload import DecisionBatch, SourceFactory, WorkloadSource
from roost.live.batches import DecisionCounts

_log = logging.getLogger(__name__)

#: The most workloads that are looked at before the core decides and others may run.
_BATCH = 256
#: How often nodes are looked at that are not ready.
_LOOK_S = 1.0


class Leadership(Reconciler):
    """Leads: folds, decides, and makes real."""

    def __init__(  # noqa: PLR0913 - it joins all parts
        self,
        policy: Policy,
        placer: Placer,
        objects: Objects,
        clock: Callable[[], float],
        sources: Sequence[SourceFactory],
        *,
        api: Api,
        binder: Binder,
        identity: str = "",
        lost_s: float,
    ) -> None:
        self.api, self.binder = api, binder
        self.events = EventWriter(api, binder, identity)
        self.counts = DecisionCounts()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._broken: BaseException | None = None
        super().__init__(policy, placer, objects, clock, sources, lost_s)

    # -- what sources and workloads ask for ------------------------------------------------------

    def touch(self, job: JobId) -> None:
        """Let a workload be reconciled in the next batch."""
        super().touch(job)
        self._wake.set()

    def later(self, job: JobId, at: float) -> None:
        """The same at that time."""
        super().later(job, at)
        self._wake.set()

    def report(self, event: Event) -> None:
        """Let the core handle an event that is of no workload."""
        super().report(event)
        self._wake.set()

    def observe(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object came, changed or is gone."""
        super().observe(kind, old, new)
        self._wake.set()

    def tell(self, about: Object, reason: str, text: str, *, warning: bool = False) -> None:
        """Write an Event about an object, soon."""
        self.events.put(about, reason, text, warning=warning)

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Let something go on beside the loop."""
        task = asyncio.create_task(self._watched(work, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # if it ends before it has begun
        return task

    async def _watched(self, work: Coroutine[Any, Any, None], what: str) -> None:
        try:
            await work
        except Deposed as error:  # the loop must not go on believing that it was done
            self._break(error)
        except Retryable as error:
            _log.warning("%s: %s", what, error)
        except Fatal as error:
            self._break(error)
        except Exception:  # noqa: BLE001 - the loop goes on, whatever it is
            _log.exception("%s went wrong", what)

    def _break(self, error: BaseException) -> None:
        self._broken = self._broken or error
        self._wake.set()

    # -- the loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Lead until cancelled; raises Deposed, or Fatal where a promise of Roost is broken."""
        try:
            self.begin()
            while not self.settled:
                self.settle(_BATCH)
                await asyncio.sleep(0)
            self.spawn(self.events.run(), "writing Events")
            self.spawn(self._look(), "looking at nodes")
            self._decide([Woke(self.now())])
            while True:
                await self._until_something()
                self._step()
                await asyncio.sleep(0)
        finally:
            await self._end()

    async def _until_something(self) -> None:
        if not self.open and not self._wake.is_set():
            at = min(self.core.wake_at, math.inf if self.due_at is None else self.due_at)
            left = None if math.isinf(at) else max(0.0, at - self.now())
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()
        if self._broken is not None:
            raise self._broken

    def _step(self) -> None:
        events = self.settle(_BATCH)
        now = self.now()
        if self.core.wake_at <= now:
            woke = Woke(now)
            self.core.fold(woke)
            events.append(woke)
        if events:
            self._decide(events)

    def _decide(self, events: list[Event]) -> None:
        """Let the core decide on what was folded, and let it be made real."""
        began = time.perf_counter()
        withdrawn = dict.fromkeys(self.core.withdrawn)
        actions = self.core.handle()
        self.counts.decided(time.perf_counter() - began)
        jobs = withdrawn | touched(self.core, events, actions)
        batch = DecisionBatch(self.core.now, events, self.core.decisions, actions, jobs)
        for source in self.sources:
            self._tell(source, batch)
        for action in actions:
            self._perform(action)

    @staticmethod
    def _tell(source: WorkloadSource, batch: DecisionBatch) -> None:
        try:
            source.decided(batch)
        except Fatal:
            raise
        except Exception:  # noqa: BLE001 - what is not written down is done all the same
            _log.exception("what was decided is not told")

    def _perform(self, action: Action) -> None:
        workload = self.workloads.get(action.run.job)
        if workload is None:
            _log.error("%s is of nobody", action)
            return
        try:
            workload.perform(action)
        except Fatal:
            raise
        except Exception:  # noqa: BLE001 - the others go on
            _log.exception("%s was not carried out", action)
            self.later(action.run.job, self.now() + 1.0)

    async def _look(self) -> None:
        """Nodes that are not ready tell nobody how long that lasts."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.fleet.look(self.now())
            if self.fleet.dirty:
                self._wake.set()

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
