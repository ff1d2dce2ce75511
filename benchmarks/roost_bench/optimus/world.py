"""A world of parameter-server jobs: how fast they really are, and how they learn.

The physics is our own and simple. A step computes, then every worker sends its gradients to the
servers and fetches the parameters back, a p-th part to and from each of p servers. What stays on a
node passes through its memory, which costs little; what leaves it shares the node's network card
with the other jobs there that are on several nodes, in proportion to their tasks. A server applies
what comes to it, one worker's part after the other.

- *Synchronous*: all workers wait for the slowest, and for the busiest node. Sending begins before
  computing has ended, so the two overlap somewhat.
- *Asynchronous*: workers go round on their own and queue at the busiest node and at the servers.
  How long is worked out by mean value analysis of the closed queueing network (Reiser and
  Lavenberg, 1980). That older parameters teach less is left out.

None of this has the form of Optimus' speed models (``perf.servers``), which know nothing of nodes
and of neighbours: they are an approximation here, as they are in reality.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roost.core.allocation import WORKER, Allocation
from roost.core.events import Event, Measured, Progressed, Resized, Started
from roost.core.spec import JobId, NodeId
from roost.perf.servers import Mode
from roost.perf.speed import SpeedModel
from roost.sim.worlds.rates import TrueJob, TrueRun, World

#: How strongly sending overlaps with computing: 1 would be not at all.
_OVERLAP = 1.3
#: By how much the slowest of several workers lags behind, as a part of its computing.
_JITTER = 0.03
#: Seconds that one more connection costs in every step.
_CONNECTION_S = 0.002
#: Bytes per second that a server applies to its parameters.
_APPLY = 2.0e9
#: Bytes per second that pass between workers and servers of one node.
_MEMORY = 20.0e9
#: Jobs tell how they are doing at multiples of this.
_TICK_S = 60.0
#: How far a measured step time and a reported loss are off.
_TIME_NOISE = 0.02
_LOSS_NOISE = 0.015


class NodeShare(NamedTuple):
    """What a job has on one node, and the bytes per second it can send and receive there."""

    workers: int
    servers: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model as the hardware sees it: its size, its samples, and how it is trained.

    ``batch`` is the total batch of a synchronous job, and that of each worker of an asynchronous.
    """

    bytes: float
    sample_s: float
    fixed_s: float
    batch: int
    mode: Mode

    def local_batch(self, workers: int) -> int:
        """Samples that a worker takes in a step."""
        return self.batch if self.mode is Mode.ASYNC else max(1, round(self.batch / workers))

    def step_s(self, desks: Iterable[NodeShare]) -> float:
        """Seconds that a step takes there: of all workers, or, asynchronous, of each."""
        desks = list(desks)
        workers, servers = sum(d.workers for d in desks), sum(d.servers for d in desks)
        compute_s = self.fixed_s + self.sample_s * self.local_batch(workers)
        if self.mode is Mode.ASYNC:
            return self._cycle_s(desks, workers, servers, compute_s)
        compute_s *= 1 + _JITTER * math.sqrt(2 * math.log(workers))
        moving_s = 2 * self._busiest_s(desks, workers, servers)
        moving_s += self.bytes * workers / servers / _APPLY
        overlapped: float = (compute_s**_OVERLAP + moving_s**_OVERLAP) ** (1 / _OVERLAP)
        return overlapped + _CONNECTION_S * (workers + servers)

    def rate(self, desks: Iterable[NodeShare]) -> float:
        """Steps per second."""
        desks = list(desks)
        made = sum(d.workers for d in desks) if self.mode is Mode.ASYNC else 1
        return made / self.step_s(desks)

    def _busiest_s(self, desks: list[NodeShare], workers: int, servers: int) -> float:
        """How long the busiest node needs to pass on one exchange of all workers, one way."""
        found = 0.0
        for w, p, bandwidth in desks:
            stays = w * p / servers
            crosses = max(w - stays, workers * p / servers - stays)
            found = max(found, stays / _MEMORY, crosses / bandwidth)
        return self.bytes * found

    def _cycle_s(
        self, desks: list[NodeShare], workers: int, servers: int, compute_s: float
    ) -> float:
        """Mean value analysis: what one more worker finds is what those before it leave behind."""
        near = [d.servers / servers for d in desks]
        alone_s = max(
            2 * self.bytes * max((1 - part) / d.bandwidth, part / _MEMORY)
            for part, d in zip(near, desks, strict=True)
            if d.workers
        )
        card_s = 2 * self._busiest_s(desks, workers, servers) / workers
        apply_s = self.bytes / servers / _APPLY
        thinks_s = compute_s + alone_s + _CONNECTION_S * servers
        at_card = at_server = 0.0
        cycle_s = thinks_s + apply_s
        for count in range(1, workers + 1):
            waits_s, serves_s = card_s * at_card, apply_s * (1 + at_server)
            cycle_s = thinks_s + waits_s + serves_s
            rate = count / cycle_s
            at_card, at_server = rate * (card_s + waits_s), rate * serves_s
        return cycle_s


@dataclass(frozen=True, slots=True)
class TrueLoss:
    """The true course of a loss: 1/(a k + b) + c, plus a quick fall that the formula has not."""

    a: float
    b: float
    c: float
    quick: float = 0.0

    def loss(self, epochs: float) -> float:
        """The loss after so many epochs, free of noise."""
        return 1 / (self.a * epochs + self.b) + self.c + self.quick * math.exp(-epochs / 2)

    def converges_at(self, threshold: float = 0.05, window: int = 10, cap: int = 100) -> int:
        """The first epoch at which the loss fell by so little over the last ``window`` ones."""
        most = self.loss(0)
        for epoch in range(window, cap):
            if self.loss(epoch - window) - self.loss(epoch) <= threshold * most:
                return epoch
        return cap


@dataclass(frozen=True, slots=True)
class TrueTraining:
    """The truth about a job: what it trains, how its loss falls, and how its work is counted.

    ``steps`` are those of one epoch; ``unit`` is how many of them are one unit of the job's work.
    """

    network: TrainedModel
    course: TrueLoss
    steps: float
    unit: float = 1.0
    seed: int = 0


class ParameterServerWorld(World):
    """Jobs with parameter servers, on nodes with network cards that they share.

    They stand still for ``costs.restart_s`` whenever they start, and for ``costs.resize_s`` when
    they change: what they know is saved and brought back then.
    """

    def __init__(
        self,
        jobs: Mapping[JobId, TrueJob],
        speed: SpeedModel,
        *,
        truth: Mapping[JobId, TrueTraining],
        bandwidth: float,
    ) -> None:
        super().__init__(jobs, speed)
        self.truth = truth
        self.bandwidth = bandwidth
        #: Tasks of working jobs that are on several nodes, by node.
        self._crowd: dict[NodeId, dict[TrueRun, int]] = {}
        self._chances: dict[JobId, np.random.Generator] = {}

    # -- coming and going ----------------------------------------------------------------------

    def _started(self, run: TrueRun, now: float, *, restart: bool) -> Started:  # noqa: ARG002
        took_s = run.job.trace.spec.costs.restart_s
        return Started(now + took_s, run.id, took_s=took_s)

    def _resized(self, run: TrueRun, now: float) -> Resized:
        took_s = run.job.trace.spec.costs.resize_s
        return Resized(now + took_s, run.id, took_s=took_s, pause_s=took_s)

    def _start(self, run: TrueRun, event: Started | Resized, events: list[Event]) -> None:
        tasks = _tasks(run.allocation)
        if len(tasks) > 1:
            for node, count in tasks.items():
                self._crowd.setdefault(node, {})[run] = count
        super()._start(run, event, events)
        events.append(self._measured(run, event.time))

    def _halt(self, run: TrueRun, now: float) -> None:
        if run.working:
            for node in _tasks(run.allocation):
                self._crowd.get(node, {}).pop(run, None)
        super()._halt(run, now)

    # -- speed ---------------------------------------------------------------------------------

    def _rate(self, run: TrueRun) -> float:
        truth = self.truth[run.job.trace.id]
        return truth.network.rate(self._desks(run)) / truth.unit

    def _desks(self, run: TrueRun) -> list[NodeShare]:
        tasks = _tasks(run.allocation)
        workers: Counter[NodeId] = Counter()
        for part in run.allocation.parts:
            if part.role == WORKER:
                workers[part.node] += part.workers
        found = []
        for node, count in tasks.items():
            crowd = self._crowd.get(node, {})
            all_of_them = sum(crowd.values()) + (count if run not in crowd else 0)
            share = self.bandwidth * count / all_of_them
            found.append(NodeShare(workers[node], count - workers[node], share))
        return found

    def _meet(self, run: TrueRun, now: float) -> None:
        """Other runs that share a network card with a run that came or went change pace."""
        nodes = _tasks(run.allocation)
        if len(nodes) == 1:
            return
        others = {other: None for node in nodes for other in self._crowd.get(node, {})}
        for other in others:
            if other is run or not other.working:
                continue
            rate = self._rate(other)
            if rate != other.rate:
                self._advance(other, now)
                other.rate = rate
                self._expect(other, now)
                self.schedule(Progressed(now, other.id, other.done_s, rate))

    # -- learning ------------------------------------------------------------------------------

    def _expect(self, run: TrueRun, now: float) -> None:
        """Plan what happens next to a working run: its end, the end of an epoch, or a report."""
        truth, job = self.truth[run.job.trace.id], run.job
        epoch = truth.steps / truth.unit
        bound = (math.floor(run.done_s / epoch + _SLIP) + 1) * epoch
        ends_at = now + max(0.0, min(bound, job.goal_s) - run.done_s) / run.rate
        at = min(ends_at, _TICK_S * (math.floor(now / _TICK_S + _SLIP) + 1))
        run.version += 1
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, run, run.version))

    def _reach_goal(self, run: TrueRun, now: float, events: list[Event]) -> None:
        self._advance(run, now)
        if run.done_s >= run.job.goal_s * (1 - _SLIP):
            super()._reach_goal(run, now, events)
            return
        events.append(self._measured(run, now))
        self._expect(run, now)

    def _measured(self, run: TrueRun, now: float) -> Measured:
        """What a job tells of itself: how long steps take, and, after each epoch, its loss."""
        job = run.job
        truth, chance = self.truth[job.trace.id], self._chance(job)
        desks = self._desks(run)
        workers = run.allocation.workers
        epochs = run.done_s * truth.unit / truth.steps
        whole = round(epochs)
        ended = whole >= 1 and abs(epochs - whole) < _SLIP * max(1.0, epochs)
        loss = truth.course.loss(whole) * float(chance.lognormal(0, _LOSS_NOISE)) if ended else None
        if epochs < _SLIP:
            loss = truth.course.loss(0.0)
        return Measured(
            now,
            run.id,
            workers,
            truth.network.step_s(desks) * float(chance.lognormal(0, _TIME_NOISE)),
            nodes=len(desks),
            servers=sum(desk.servers for desk in desks),
            local_batch=truth.network.local_batch(workers),
            epochs=whole if ended else epochs,
            loss=loss,
        )

    def _chance(self, job: TrueJob) -> np.random.Generator:
        name = job.trace.id
        if name not in self._chances:
            seed = [self.truth[name].seed, job.index]
            self._chances[name] = np.random.Generator(np.random.PCG64(seed))
        return self._chances[name]


#: What rounding may leave of a difference.
_SLIP = 1e-9


def _tasks(allocation: Allocation) -> Counter[NodeId]:
    """Workers and servers on each node."""
    found: Counter[NodeId] = Counter()
    for part in allocation.parts:
        found[part.node] += part.workers
    return found
