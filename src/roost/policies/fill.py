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
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from roost.core.decisions import Place
from roost.core.ledger import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.state import Job, Run
from roost.core.waiting import Key, KeyOf, Line

#: How many victims are tried, one after the other, where a gang's needs are not simply nodes.
_PATIENCE = 64


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
    """Nodes that might be cleared for a line whose head had ``key``, as of ``stamp``.

    It errs on the side of hope: keys of runs only fall, so what was out of reach stays so until the
    node changes, and what is in reach is checked before use. ``until`` is when a run that is still
    protected may be disturbed.
    """

    key: Key
    stamp: int = 0
    hopeful: dict[Node, None] = field(default_factory=dict)
    until: float = math.inf


@dataclass(slots=True)
class _Rivals:
    """Keys of the runs on a node and the milli-GPUs each holds there, largest key first."""

    order: Order
    entries: list[tuple[Key, int]]


def _displace(plan: Plan, line: Line, order: Order, min_run_s: float) -> bool:
    """Evict runs behind the line's head so that it fits, and place it; or change nothing."""
    job = line.head
    if line.queue is not None and plan.over_limit(job, line.gpu_milli):
        return False
    footprint = _footprint(plan, line)
    if footprint is None:
        rivals = [run for run in plan.running if _gives_way(run, line, order, plan.now)]
        return displace(plan, job, _last_first(rivals, order, plan.now, min_run_s))
    nodes, each = footprint
    blocked = _refresh(plan, line, order, each)
    if len(blocked.hopeful) >= nodes and _clear(plan, line, blocked, order, min_run_s, each, nodes):
        return True
    plan.wake(blocked.until)
    return False


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


def _footprint(plan: Plan, line: Line) -> tuple[int, int] | None:
    """How many nodes must have how many idle GPUs for the gang; None: it is not so simple."""
    shape, need = line.shape, line.shape.resources
    simple = need.gpus and need.share_milli == WHOLE and not shape.roles and shape.within is None
    if not simple or not getattr(plan.placer, "consolidates", False):
        return None
    largest = len(plan.ledger.at_least) - 1
    total = need.gpus * shape.workers
    return (1, total) if total <= largest else (-(-total // largest), largest)


def _refresh(plan: Plan, line: Line, order: Order, each: int) -> _Blocked:
    """Bring up to date which nodes might be cleared for the head of a line."""
    ledger, now = plan.ledger, plan.now
    key, kinds = line.entries[0][0], line.shape.resources.kinds
    blocked = line.blocked
    changed: Iterable[Node] | None = None
    if isinstance(blocked, _Blocked) and not key < blocked.key and now < blocked.until:  # type: ignore[operator]
        changed = ledger.changed_since(blocked.stamp)
    if changed is None or not isinstance(blocked, _Blocked):
        blocked = line.blocked = _Blocked(key)
        changed = ledger.select(ledger.up)
    wanted = each * WHOLE
    for node in changed:
        if (not kinds or node.spec.kind in kinds) and _hope(node, key, order, now) >= wanted:
            blocked.hopeful[node] = None
        else:
            blocked.hopeful.pop(node, None)
    blocked.stamp = ledger.stamp
    return blocked


def _hope(node: Node, key: Key, order: Order, now: float) -> int:
    """At most so many milli-GPUs could be idle on a node without the runs behind ``key``."""
    if not node.up:
        return 0
    milli = node.shown * WHOLE
    for rival, held in _rivals(node, order, now):
        if rival <= key:  # type: ignore[operator]
            break
        milli += held
    return milli


def _rivals(node: Node, order: Order, now: float) -> list[tuple[Key, int]]:
    memo = node.memo
    if isinstance(memo, _Rivals) and memo.order is order:
        return memo.entries
    entries = [
        (order.running(run, now), held)
        for run, held in node.runs.items()
        if run.settled and run.job.spec.preemptible
    ]
    entries.sort(reverse=True)
    node.memo = _Rivals(order, entries)
    return entries


def _clear(  # noqa: PLR0913, PLR0917 - one step of _displace
    plan: Plan, line: Line, blocked: _Blocked, order: Order, min_run_s: float, each: int, nodes: int
) -> bool:
    """Evict the least deserving runs on the nodes that need the fewest evictions."""
    now, job = plan.now, line.head
    ranked = [
        (node.shown - each, _rivals(node, order, now)[:1], -node.index, node)
        for node in blocked.hopeful
    ]
    ranked.sort(reverse=True)
    mark = plan.mark()
    for _, _, _, node in ranked:
        here = plan.mark()
        rivals = [run for run in node.runs if _gives_way(run, line, order, now)]
        for run in _last_first(rivals, order, now, min_run_s):
            if node.shown >= each:
                break
            plan.evict(run, f"makes room for {job.id}")
        if node.shown >= each:
            nodes -= 1
            if not nodes:
                break
        else:
            plan.undo(here)
            del blocked.hopeful[node]
            waits = [_protected_until(run, min_run_s) for run in rivals]
            blocked.until = min(blocked.until, *(at for at in waits if at > now), math.inf)
    if not nodes and plan.place(job):
        return True
    plan.undo(mark)
    return False


def _gives_way(run: Run, line: Line, order: Order, now: float) -> bool:
    """Whether a run stands behind the head of a line."""
    return (
        run.settled and run.job.spec.preemptible and order.running(run, now) > line.entries[0][0]  # type: ignore[operator]
    )


def _last_first(runs: Iterable[Run], order: Order, now: float, min_run_s: float) -> list[Run]:
    """Runs that may be disturbed, least deserving first."""
    free = [run for run in runs if _protected_until(run, min_run_s) <= now]
    return sorted(free, key=lambda run: (order.running(run, now), run.job.seq), reverse=True)


def _protected_until(run: Run, min_run_s: float) -> float:
    """Until when a run is left alone."""
    if run.started_at is None:
        return math.inf
    return run.started_at + max(min_run_s, run.job.spec.min_run_s)
