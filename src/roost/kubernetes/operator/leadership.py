"""One leadership: from the moment this process holds the lease until it holds it no longer.

    1. fold everything there is into a new core
    2. fold what changed, some workloads at a time; let the core decide once for all of them
    3. let sources write down what was decided, and workloads make it real
    4. go to 2

Folding is the ``Reconciler``'s. Requests are made in tasks of the ``Writer``, beside the loop, and
end with the leadership. The loop never waits for them; other tasks run between two batches.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence

from roost.core import Action, Core, Event, Placer, Policy, Woke
from roost.errors import Fatal
from roost.jobs.health import DecisionCounts
from roost.jobs.history import touched
from roost.kubernetes.client.api import Api, Object
from roost.kubernetes.client.kinds import ResourceKind
from roost.kubernetes.filters.turns import FilterFactory
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.reconciler import Objects, Reconciler
from roost.kubernetes.operator.scope import NamespaceScope
from roost.kubernetes.operator.workload import DecisionBatch, SourceFactory, WorkloadSource
from roost.kubernetes.operator.writer import Writer

_log = logging.getLogger(__name__)

#: The most workloads that are folded before the core decides and other tasks may run.
_BATCH = 256
#: How often nodes that are not ready are checked, in seconds.
_LOOK_S = 1.0


class Leadership:
    """Folds, decides and makes real, while this process leads."""

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
        filters: Sequence[FilterFactory] = (),
        scope: NamespaceScope | None = None,
    ) -> None:
        self.counts = DecisionCounts()
        self.writer = Writer(api, binder, identity, self._break)
        #: The first error after which the loop must not go on.
        self._broken: BaseException | None = None
        self.reconciler = Reconciler(
            policy, placer, objects, clock, sources, lost_s, self.writer, filters, scope
        )

    @property
    def core(self) -> Core:
        """The core, to read."""
        return self.reconciler.core

    @property
    def settled(self) -> bool:
        """Whether everything was folded once."""
        return self.reconciler.settled

    def observe(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object came, changed or is gone."""
        self.reconciler.observe(kind, old, new)

    async def run(self) -> None:
        """Lead until cancelled; raises Deposed, or Fatal where a promise of Roost is broken."""
        folded = self.reconciler
        try:
            folded.begin()
            while not folded.settled:
                folded.settle(_BATCH)
                await asyncio.sleep(0)
            self.writer.spawn(self.writer.events.run(), "writing Events")
            self.writer.spawn(self._look(), "looking at nodes")
            self._decide([Woke(folded.now())])
            while True:
                await self._until_something()
                self._step()
                await asyncio.sleep(0)
        finally:
            await self.writer.close()

    def _break(self, error: BaseException) -> None:
        self._broken = self._broken or error
        self.reconciler.wake.set()

    async def _until_something(self) -> None:
        """Wait for news, or for the moment that the core or a workload asked for."""
        folded, wake = self.reconciler, self.reconciler.wake
        if not folded.open and not wake.is_set():
            at = min(self.core.wake_at, math.inf if folded.due_at is None else folded.due_at)
            left = None if math.isinf(at) else max(0.0, at - folded.now())
            try:
                async with asyncio.timeout(left):
                    await wake.wait()
            except TimeoutError:
                pass
        # Cleared before anything is folded: news that comes during the step wakes the loop again.
        wake.clear()
        if self._broken is not None:
            raise self._broken

    def _step(self) -> None:
        events = self.reconciler.settle(_BATCH)
        now = self.reconciler.now()
        if self.core.wake_at <= now:
            woke = Woke(now)
            self.core.fold(woke)
            events.append(woke)
        if events:
            self._decide(events)

    def _decide(self, events: list[Event]) -> None:
        """Let the core decide on what was folded, and make it real."""
        began = time.perf_counter()
        withdrawn = dict.fromkeys(self.core.withdrawn)
        actions = self.core.handle()
        self.counts.decided(time.perf_counter() - began)
        jobs = withdrawn | touched(self.core, events, actions)
        batch = DecisionBatch(self.core.now, events, self.core.decisions, actions, jobs)
        for source in self.reconciler.sources:
            self._record(source, batch)
        for action in actions:
            self._perform(action)

    @staticmethod
    def _record(source: WorkloadSource, batch: DecisionBatch) -> None:
        try:
            source.after_decision(batch)
        except Fatal:
            raise
        except Exception:  # noqa: BLE001 - what is not written down is done all the same
            _log.exception("what was decided is not written down")

    def _perform(self, action: Action) -> None:
        workload = self.reconciler.workloads.get(action.run.job)
        if workload is None:
            _log.error("%s is of no workload", action)
            return
        try:
            workload.perform(action)
        except Fatal:
            raise
        except Exception:  # noqa: BLE001 - the others go on
            _log.exception("%s was not carried out", action)
            self.reconciler.requeue_at(action.run.job, self.reconciler.now() + 1.0)

    async def _look(self) -> None:
        """Check nodes by time: no object changes when a node stays not ready for too long."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.reconciler.nodes.look(self.reconciler.now())
            if self.reconciler.nodes.dirty:
                self.reconciler.wake.set()
