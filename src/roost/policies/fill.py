"""Filling the cluster in an order: what every queue-ordering policy shares.

``fill`` starts waiting jobs in the order of a key, as many as fit. Given an ``Order`` with a
``running`` key, a job that does not fit may take the place of runs that the same order puts behind
it. The brake on preemption is here, not in the policies: a run is left alone until it has run for
its minimum time, and victims are only taken when they really make room.

Cost: a decision looks at the head of each line of equal shapes. A shape refused once is not tried
again until something was given back, and a search for victims looks only at nodes that changed
since it last failed.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from roost.core.decisions import Place
from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job, Run
from roost.core.waiting import Key, KeyOf, Line

#: How many victims are tried, one after the other, where a gang's needs are not simply nodes.
_PATIENCE = 64
#: Among how many nodes that could be cleared the best is chosen.
_CHOICE = 64


class Order(Protocol):
    """Who goes first: keys of waiting jobs and of runs, comparable with each other.

    ``waiting`` must not change while a job waits. ``running`` may fall as time passes (a run that
    is nearer to its end deserves its place more); where it rises, the policy wakes itself and calls
    ``Ledger.touch`` on the run's nodes or ``Plan.reconsider``.
    """

    def waiting(self, job: Job) -> Key:
        """The key of a waiting job; smaller goes first."""

    def running(self, run: Run, now: float) -> Key:
        """The key of a run; larger than a waiting job's key means it gives way."""


def fill(plan: Plan, key: KeyOf, order: Order | None = None, min_run_s: float = 0.0) -> None:
    """Start waiting jobs by ``key``; with an ``order``, also in place of runs behind them."""
    releases = plan.ledger.releases
    heap = [
        (line.entries[0][:2], line)
        for line in plan.lines(key)
        if line.refused_at != releases or order is not None
    ]
    if len(heap) > 1:
        heap.sort(key=_first)
    while heap:
        line = heap[0][1]
        job = line.head
        refused = line.refused_at == plan.ledger.releases
        if (not refused and plan.place(job)) or (
            order is not None and _displace(plan, line, order, min_run_s)
        ):
            if line.entries:
                heapq.heapreplace(heap, (line.entries[0][:2], line))
            else:
                heapq.heappop(heap)
        else:
            plan.hold(line)
            heapq.heappop(heap)


def _first(item: tuple[tuple[Key, int], Line]) -> tuple[Key, int]:
    return item[0]


@dataclass(slots=True)
class _Blocked:
    """Nodes that might be cleared for a line, as of ``stamp``.

    ``key`` is the largest that a head has had since: what was out of reach for it is so for larger
    ones. It errs on the side of hope: keys of runs only fall, so what was out of reach stays so
    until the node changes, and what is in reach is checked before use. ``hopeful`` maps such nodes
    to the workers each would hold, ``workers`` is their sum. Nodes from ``cursor`` on have not been
    looked at yet. ``until`` is when a run that is still protected may be disturbed; ``starting``
    says that one could be, once it is up.
    """

    key: Key
    stamp: int
    cursor: int = 0
    hopeful: dict[Node, int] = field(default_factory=dict)
    workers: int = 0
    until: float = math.inf
    starting: bool = False

    def note(self, node: Node, workers: int) -> None:
        """A node might hold so many workers; 0: it is out of reach."""
        self.workers += workers - self.hopeful.pop(node, 0)
        if workers:
            self.hopeful[node] = workers


@dataclass(slots=True)
class _Rivals:
    """Keys of the runs on a node and the milli-GPUs each holds there, largest key first."""

    order: Order
    entries: list[tuple[Key, int]]


@dataclass(slots=True)
class _Search:
    """A search for room for the head of a line, where room is a matter of free GPUs per node.

    Runs must stand behind ``key`` to be evicted. ``gpus`` is what the gang needs on one node; None:
    it is larger than that and goes on nodes that are wholly free.
    """

    plan: Plan
    line: Line
    order: Order
    min_run_s: float
    key: Key
    gpus: int | None

    def wanted(self, node: Node) -> tuple[int, int]:
        """GPUs that must be free on a node to be of use, and the workers that it then holds."""
        if self.gpus is not None:
            return self.gpus, self.line.shape.workers
        return node.spec.gpus, node.spec.gpus // self.line.shape.resources.gpus

    def make_room(self) -> bool:
        """Evict runs behind the head so that it fits, and place it; or change nothing."""
        blocked = self._recall()
        while self._look_further(blocked):
            if self._clear(blocked):
                return True
        self.plan.wake(blocked.until)
        return False

    def _recall(self) -> _Blocked:
        """What is known about making room here, brought up to date."""
        line, ledger, blocked = self.line, self.plan.ledger, self.line.blocked
        if (
            isinstance(blocked, _Blocked)
            and not self.key < blocked.key  # type: ignore[operator]
            and self.plan.now < blocked.until
        ):
            changed = ledger.changed_since(blocked.stamp)
            if changed is not None:
                blocked.key = self.key
                for node in dict.fromkeys(changed):
                    if node.index < blocked.cursor:
                        self._examine(node, blocked)
                blocked.stamp = ledger.stamp
                if blocked.starting:
                    self.plan.await_starts()
                return blocked
        blocked = line.blocked = _Blocked(self.key, ledger.stamp)
        return blocked

    def _look_further(self, blocked: _Blocked) -> bool:
        """Look at more nodes until there is a choice; False when they cannot be enough."""
        every, workers = self.plan.ledger.order, self.line.shape.workers
        while (
            len(blocked.hopeful) < _CHOICE or blocked.workers < workers
        ) and blocked.cursor < len(every):
            self._examine(every[blocked.cursor], blocked)
            blocked.cursor += 1
        return blocked.workers >= workers

    def _examine(self, node: Node, blocked: _Blocked) -> None:
        """Note whether enough could be free on a node without the runs behind the head."""
        kinds, key = self.line.shape.resources.kinds, self.key
        gpus, workers = self.wanted(node)
        missing = (gpus - node.shown) * WHOLE
        if missing > 0:
            for rival, held in _rivals(node, self.order, self.plan.now):
                if rival <= key:  # type: ignore[operator]
                    break
                missing -= held
                if missing <= 0:
                    break
        if missing <= 0 and node.up and (not kinds or node.spec.kind in kinds):
            blocked.note(node, workers)
        elif node in blocked.hopeful:
            blocked.note(node, 0)

    def _clear(self, blocked: _Blocked) -> bool:
        """Evict the least deserving runs on the nodes that need the fewest evictions.

        Nodes where hope was in vain are struck off.
        """
        plan, left = self.plan, self.line.shape.workers
        looked_at = list(islice(blocked.hopeful, max(_CHOICE, left)))
        ranked = sorted(map(self._rank, looked_at))
        mark = plan.mark()
        while ranked and left > 0:
            node = ranked.pop()[-1]
            node.memo = None  # what was seen last may be long ago
            rank = self._rank(node)
            if ranked and rank < ranked[-1]:
                insort(ranked, rank)
            elif self._clear_node(node, blocked):
                left -= self.wanted(node)[1]
        if left <= 0:
            if plan.place(self.line.head):
                return True
            for node in looked_at:  # room, but not of the right sort
                blocked.note(node, 0)
        plan.undo(mark)
        return False

    def _rank(self, node: Node) -> tuple[int, list[tuple[Key, int]], int, Node]:
        """Nodes that need the fewest evictions last, then those with the least deserving run."""
        rivals = _rivals(node, self.order, self.plan.now)[:1]
        return node.shown - self.wanted(node)[0], rivals, -node.index, node

    def _clear_node(self, node: Node, blocked: _Blocked) -> bool:
        plan = self.plan
        gpus, _ = self.wanted(node)
        here = plan.mark()
        rivals = [run for run in node.runs if gives_way(run, self.key, self.order, plan)]
        for run in _last_first(rivals, self.order, plan.now, self.min_run_s):
            if node.shown >= gpus:
                break
            plan.evict(run, f"makes room for {self.line.head.id}")
        if node.shown >= gpus:
            return True
        plan.undo(here)
        blocked.note(node, 0)
        blocked.starting = blocked.starting or plan.awaits_starts
        for run in rivals:
            free_at = _protected_until(run, self.min_run_s)
            if plan.now < free_at < blocked.until:
                blocked.until = free_at
        return False


def _displace(plan: Plan, line: Line, order: Order, min_run_s: float) -> bool:
    """Evict runs behind the line's head so that it fits, and place it; or change nothing."""
    job = line.head
    if line.queue is not None and plan.over_limit(job, line.gpu_milli):
        return False
    key = line.entries[0][0]
    top = _ceiling(plan, order)
    if top is None or not top > key:  # type: ignore[operator]
        return False
    shape, need = line.shape, line.shape.resources
    simple = (
        need.gpus
        and need.share_milli == WHOLE
        and not (need.cpu_milli or need.memory_mib or shape.roles or shape.within)
        and plan.consolidates
    )
    if simple:
        gpus = need.gpus * shape.workers if plan.ledger.could(need, shape.workers) else None
        return _Search(plan, line, order, min_run_s, key, gpus).make_room()
    rivals = [run for run in plan.running if gives_way(run, key, order, plan)]
    free = [run for run in rivals if may_disturb(plan, run, min_run_s)]
    return displace(plan, job, _last_first(free, order, plan.now, min_run_s))


def displace(plan: Plan, job: Job, victims: Iterable[Run]) -> bool:
    """Evict victims in turn until the job fits; those who need not have gone are spared."""
    mark = plan.mark()
    evicted: list[Run] = []
    for run in islice(victims, _PATIENCE):
        if plan.evict(run, f"makes room for {job.id}"):
            evicted.append(run)
            if plan.ledger.free_milli >= job.gpu_milli and plan.place(job):
                return _spare(plan, job, mark, evicted)
    plan.undo(mark)
    return False


def _spare(plan: Plan, job: Job, mark: int, evicted: Iterable[Run]) -> bool:
    """Go back, and evict only those on the nodes that the job was given."""
    placed = plan.decisions[-1]
    assert isinstance(placed, Place)  # noqa: S101 - narrows the type
    nodes = set(placed.allocation.nodes)
    plan.undo(mark)
    for run in evicted:
        if not nodes.isdisjoint(run.allocation.nodes):
            plan.evict(run, f"makes room for {job.id}")
    plan.place_at(job, placed.allocation)
    return True


def gives_way(run: Run, key: Key, order: Order, plan: Plan) -> bool:
    """Whether a run stands behind a key; one that is still starting will be looked at later."""
    if not run.job.spec.preemptible or run.stopping is not None or run.parked:
        return False
    if not order.running(run, plan.now) > key:  # type: ignore[operator]
        return False
    if not run.settled:
        plan.await_starts()
    return run.settled


def may_disturb(plan: Plan, run: Run, min_run_s: float) -> bool:
    """Whether a run has had its minimum time; if not, the policy is woken when it has."""
    if not run.settled:
        if run.stopping is None and not run.parked:
            plan.await_starts()
        return False
    free_at = _protected_until(run, min_run_s)
    if free_at > plan.now:
        plan.wake(free_at)
        return False
    return True


@dataclass(slots=True)
class _Ceiling:
    """The largest key of any run, as of ``stamp``; runs may have fallen below it since."""

    order: Order
    top: Key | None = None
    stamp: int = -1
    fresh_until: int = -1

    def refresh(self, plan: Plan) -> Key | None:
        """Bring it up to date; now and then from scratch."""
        ledger = plan.ledger
        if self.stamp == ledger.stamp:
            return self.top
        changed = ledger.changed_since(self.stamp) if ledger.stamp < self.fresh_until else None
        if changed is None:
            changed, self.top = ledger.order, None
            self.fresh_until = ledger.stamp + 16 * len(ledger.order)
        for node in changed:
            entries = _rivals(node, self.order, plan.now)
            if entries and (self.top is None or entries[0][0] > self.top):  # type: ignore[operator]
                self.top = entries[0][0]
        self.stamp = ledger.stamp
        return self.top


def _ceiling(plan: Plan, order: Order) -> Key | None:
    """No run has a larger key: who stands behind this finds nobody to displace."""
    ceiling = plan.memo.get("ceiling")
    if not isinstance(ceiling, _Ceiling) or ceiling.order is not order:
        ceiling = plan.memo["ceiling"] = _Ceiling(order)
    return ceiling.refresh(plan)


def _rivals(node: Node, order: Order, now: float) -> list[tuple[Key, int]]:
    """What runs on a node could give up, as of the node's last change."""
    memo = node.memo
    if isinstance(memo, _Rivals) and memo.order is order:
        return memo.entries
    entries = [
        (order.running(run, now), held)
        for run, held in node.runs.items()
        if run.stopping is None and run.job.spec.preemptible
    ]
    if len(entries) > 1:
        entries.sort(reverse=True)
    node.memo = _Rivals(order, entries)
    return entries


def _last_first(runs: Iterable[Run], order: Order, now: float, min_run_s: float) -> list[Run]:
    """Runs that may be disturbed, least deserving first."""
    free = [run for run in runs if _protected_until(run, min_run_s) <= now]
    return sorted(free, key=lambda run: (order.running(run, now), run.job.seq), reverse=True)


def _protected_until(run: Run, min_run_s: float) -> float:
    """Until when a run is left alone."""
    if run.started_at is None:
        return math.inf
    return run.started_at + max(min_run_s, run.job.spec.min_run_s)
