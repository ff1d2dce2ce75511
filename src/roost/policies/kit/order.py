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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from roost.core.decisions import Place
from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE, NodeId
from roost.core.state import Job, Run
from roost.core.transitions import LEAVING, UNBOOKED, RunPhase
from roost.core.waiting import Key, KeyOf, Line
from roost.policies.kit.promises import in_the_way
from roost.policies.kit.victims import Clear, clear_nodes, in_vain, worth_a_look

#: How many victims are tried, one after the other, where a gang's needs are not simply nodes.
_PATIENCE = 64
#: Among how many nodes that could be cleared the best is chosen.
_CHOICE = 64


class Order(Protocol):
    """An order: keys of waiting jobs and of runs, comparable with each other.

    ``waiting`` must not change while a job waits. ``running`` may fall as time passes (a run that
    is nearer to its end deserves its place more); where it rises, the policy wakes itself and calls
    ``Ledger.touch`` on the run's nodes or ``Plan.reconsider``.
    """

    def waiting(self, job: Job) -> Key:
        """The key of a waiting job; smaller goes first."""

    def running(self, run: Run, now: float) -> Key:
        """The key of a run; larger than a waiting job's key means it gives way."""


class Brake(NamedTuple):
    """How room is made: by which order, for whom not, and how thoroughly it is looked for.

    Runs are left alone for ``min_run_s``. ``thorough``: nodes are searched one by one for gangs
    that need more of them than GPUs. ``clear`` is how a run makes room; on the ``spared`` nodes
    none does.
    """

    order: Order
    min_run_s: float = 0.0
    thorough: bool = False
    clear: Clear = Plan.evict
    spared: Collection[NodeId] = ()


def fill(
    plan: Plan,
    key: KeyOf,
    order: Order | None = None,
    min_run_s: float = 0.0,
    *,
    thorough: bool = False,
) -> None:
    """Start waiting jobs by ``key``; with an ``order``, also in place of runs behind them.

    ``thorough``: nodes are searched one by one for gangs that need more of them than GPUs.
    """
    releases = plan.ledger.releases
    brake = None if order is None else Brake(order, min_run_s, thorough)
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
            brake is not None and make_room(plan, line, line.entries[0][0], brake)
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
class _Rivals:
    """Runs on a node, as of its last change: keys and milli-GPUs of those that may be disturbed.

    Largest key first. ``until`` is when one that is still protected may be disturbed too;
    ``starting`` are those that may be once they are up. ``top`` is the largest key of them all.
    """

    order: Order
    entries: list[tuple[Key, int]]
    until: float = math.inf
    starting: list[tuple[Key, int]] = field(default_factory=list)
    top: Key | None = None


@dataclass(slots=True)
class _Ceiling:
    """The largest key of any run, as of ``stamp``; runs may have fallen below it since.

    A job behind it finds no run to displace, and need not look at any node.
    """

    order: Order
    top: Key | None = None
    stamp: int = -1
    fresh_until: int = -1

    def refresh(self, plan: Plan, min_run_s: float) -> Key | None:
        """Bring it up to date; now and then from scratch."""
        ledger = plan.ledger
        if self.stamp == ledger.stamp:
            return self.top
        changed = ledger.changed_since(self.stamp) if ledger.stamp < self.fresh_until else None
        if changed is None:
            changed, self.top = ledger.order, None
            self.fresh_until = ledger.stamp + 16 * len(ledger.order)
        for node in changed:
            top = _rivals(node, self.order, plan.now, min_run_s).top
            if _above(top, self.top):
                self.top = top
        self.stamp = ledger.stamp
        return self.top


_Rank: TypeAlias = tuple[int, list[tuple[Key, int]], int, Node]


@dataclass(slots=True)
class _Reach:
    """How far a line's shape can reach: which nodes could be cleared for a head with which key.

    ``keys`` maps a node to the key below which a head can have it: the key of the last run that
    would have to go. ``free`` are nodes where none has to. As keys of runs only fall, a stored
    key may be too large, never too small: it is checked before use. ``top`` is at least the largest
    of them. ``starting`` is the same for nodes that can be had once a run there is up. ``ranks``
    tells which node to take: last the one that needs the fewest evictions, then the one with the
    least deserving run. Nodes from ``cursor`` on have not been looked at yet.
    """

    stamp: int
    cursor: int = 0
    keys: dict[Node, Key] = field(default_factory=dict)
    free: dict[Node, None] = field(default_factory=dict)
    ranks: dict[Node, _Rank] = field(default_factory=dict)
    top: Key | None = None
    starting: dict[Node, Key] = field(default_factory=dict)
    until: float = math.inf


@dataclass(slots=True)
class _Search:
    """A search for room for the head of a line, where room is a matter of free GPUs per node.

    Runs must stand behind ``key`` to be evicted. ``gpus`` is what the gang needs on one node; None:
    it is larger than that and goes on nodes that are wholly free.
    """

    plan: Plan
    line: Line
    brake: Brake
    key: Key
    gpus: int | None

    def wanted(self, node: Node) -> tuple[int, int]:
        """GPUs that must be free on a node to be of use, and the workers that it then holds."""
        if self.gpus is not None:
            return self.gpus, self.line.shape.workers
        return node.spec.gpus, node.spec.gpus // self.line.shape.resources.gpus

    def make_room(self) -> bool:
        """Evict runs behind the head so that it fits, and place it; or change nothing."""
        reach = self._recall()
        while self._enough(candidates := self._candidates(reach)):
            if self._clear(candidates, reach):
                return True
        if any(key > self.key for key in reach.starting.values()):  # type: ignore[operator]
            self.plan.await_starts()
        self.plan.wake(reach.until)
        return False

    def _enough(self, candidates: list[Node]) -> bool:
        """Whether these nodes, cleared, would hold the gang."""
        if self.gpus is not None:
            return bool(candidates)
        return sum(self.wanted(node)[1] for node in candidates) >= self.line.shape.workers

    def _recall(self) -> _Reach:
        """What is known of the line's reach, brought up to date."""
        line, ledger, reach = self.line, self.plan.ledger, self.line.blocked
        if isinstance(reach, _Reach) and self.plan.now < reach.until:
            changed = ledger.changed_since(reach.stamp)
            if changed is not None:
                for node in dict.fromkeys(changed):
                    if node.index < reach.cursor:
                        self._examine(node, reach)
                reach.stamp = ledger.stamp
                return reach
        reach = line.blocked = _Reach(ledger.stamp)
        return reach

    def _candidates(self, reach: _Reach) -> list[Node]:
        """Nodes that the head might have; looks at more of them until there is a choice."""
        every, key = self.plan.ledger.order, self.key
        if reach.cursor == len(every) and not reach.free and not _above(reach.top, key):
            return []
        found = [*reach.free, *(node for node, most in reach.keys.items() if most > key)]  # type: ignore[operator]
        while reach.cursor < len(every) and len(found) < max(_CHOICE, self.line.shape.workers):
            node = every[reach.cursor]
            reach.cursor += 1
            self._examine(node, reach)
            if node in reach.free or _above(reach.keys.get(node), key):
                found.append(node)
        if not found:
            reach.top = max(reach.keys.values(), default=None)
        return found

    def _examine(self, node: Node, reach: _Reach) -> None:
        """Note which heads could have a node."""
        reach.keys.pop(node, None)
        reach.free.pop(node, None)
        reach.starting.pop(node, None)
        if not node.up or not self.plan.ledger.suits(node, self.line.shape.resources):
            return
        if node.id in self.brake.spared:
            return
        gpus, workers = self.wanted(node)
        missing = (gpus - node.shown) * WHOLE
        if missing <= 0:
            if workers:
                reach.free[node] = None
                reach.ranks[node] = (node.shown - gpus, [], -node.index, node)
            return
        rivals = _rivals(node, self.brake.order, self.plan.now, self.brake.min_run_s)
        reach.until = min(reach.until, rivals.until)
        if rivals.starting:
            later = _last_to_go(sorted([*rivals.entries, *rivals.starting], reverse=True), missing)
            if later is not None:
                reach.starting[node] = later
        key = _last_to_go(rivals.entries, missing)
        if key is not None:
            reach.keys[node] = key
            reach.ranks[node] = (node.shown - gpus, rivals.entries[:1], -node.index, node)
            if _above(key, reach.top):
                reach.top = key

    def _clear(self, candidates: Iterable[Node], reach: _Reach) -> bool:
        """Evict the least deserving runs on the nodes that need the fewest evictions."""
        plan, left = self.plan, self.line.shape.workers
        ranked = sorted(map(reach.ranks.__getitem__, candidates))
        mark = plan.mark()
        while ranked and left > 0:
            node = ranked.pop()[-1]
            node.memo = None  # what was seen last may be long ago
            self._examine(node, reach)
            if node in reach.free:
                left -= self.wanted(node)[1]
            elif _above(reach.keys.get(node), self.key):
                rank = reach.ranks[node]
                if ranked and rank < ranked[-1]:
                    insort(ranked, rank)
                else:
                    self._clear_node(node)
                    left -= self.wanted(node)[1]
        if left <= 0:
            if plan.place(self.line.head):
                return True
            for node in candidates:  # room, but not of the right sort
                reach.keys.pop(node, None)
                reach.free.pop(node, None)
        plan.undo(mark)
        return False

    def _clear_node(self, node: Node) -> None:
        plan, (gpus, _) = self.plan, self.wanted(node)
        rivals = [run for run in node.runs if gives_way(run, self.key, self.brake.order, plan)]
        for run in _last_first(rivals, self.brake.order, plan.now, self.brake.min_run_s):
            if node.shown >= gpus:
                return
            self.brake.clear(plan, run, f"makes room for {self.line.head.id}")


def _last_to_go(rivals: Iterable[tuple[Key, int]], milli: int) -> Key | None:
    """The key of the last run that has to go until so much is free; None: it is never enough."""
    for key, held in rivals:
        milli -= held
        if milli <= 0:
            return key
    return None


def _above(key: Key | None, other: Key | None) -> bool:
    """Whether one key is larger; None is smaller than any."""
    if key is None or other is None:
        return key is not None
    return key > other  # type: ignore[operator]


def make_room(plan: Plan, line: Line, key: Key, brake: Brake) -> bool:
    """Clear runs behind ``key`` away so that the line's head fits, and place it; or do nothing."""
    job, order, min_run_s = line.head, brake.order, brake.min_run_s
    if not line.preempts or (line.queue is not None and plan.over_limit(job, line.gpu_milli)):
        return False
    if not some_behind(plan, key, brake):
        return False
    shape, need = line.shape, line.shape.resources
    simple = (
        need.whole_gpus_only
        and not (need.needs_host_resources or shape.has_roles or shape.within)
        and plan.consolidates
        and not plan.ledger.crowded
    )
    if simple:
        gpus = need.gpus * shape.workers if plan.ledger.could(need, shape.workers) else None
        return _Search(plan, line, brake, key, gpus).make_room()
    runs = worth_a_look(plan, line, key) if brake.thorough else plan.running
    rivals = [run for run in runs if gives_way(run, key, order, plan)]
    free = [run for run in rivals if may_disturb(plan, run, min_run_s)]
    victims = _last_first(free, order, plan.now, min_run_s)
    if not brake.thorough:
        return displace(plan, job, victims, brake.clear)
    moment = plan.ledger.moment()
    if clear_nodes(plan, job, victims, lambda run: order.running(run, plan.now), brake.clear) or (
        (shape.workers > 1 or shape.roles) and displace(plan, job, victims, brake.clear)
    ):
        return True
    plan.ledger.back_to(moment)
    in_vain(plan, line, key, (_protected_until(run, min_run_s) for run in rivals))
    return False


def some_behind(plan: Plan, key: Key, brake: Brake) -> bool:
    """Whether any run stands behind a key, as far as is known; most questions end here."""
    ceiling = plan.memo.get("ceiling")
    if not isinstance(ceiling, _Ceiling) or ceiling.order is not brake.order:
        ceiling = plan.memo["ceiling"] = _Ceiling(brake.order)
    return _above(ceiling.refresh(plan, brake.min_run_s), key)


def displace(
    plan: Plan, job: Job, victims: Iterable[Run], clear: Clear = Plan.evict, why: str = "makes room"
) -> bool:
    """Clear victims away in turn until the job fits; those that need not have gone are spared."""
    mark = plan.mark()
    cleared: list[Run] = []
    for run in islice(victims, _PATIENCE):
        if clear(plan, run, f"{why} for {job.id}"):
            cleared.append(run)
            if plan.ledger.free_milli >= job.gpu_milli and plan.place(job):
                return _spare(
                    plan, job, mark, [(run, clear, f"{why} for {job.id}") for run in cleared]
                )
    plan.undo(mark)
    return False


def _spare(plan: Plan, job: Job, mark: int, cleared: Sequence[tuple[Run, Clear, str]]) -> bool:
    """Go back, and clear away only those on the nodes that the job was given, or over its quota."""
    placed = plan.decisions[-1]
    assert isinstance(placed, Place)  # noqa: S101 - narrows the type
    nodes = set(placed.allocation.nodes)
    others = [run for run, _, _ in cleared if nodes.isdisjoint(run.allocation.nodes)]
    owing = in_the_way(job, placed.allocation, others)
    plan.undo(mark)
    for run, clear, reason in cleared:
        if not nodes.isdisjoint(run.allocation.nodes) or run in owing:
            clear(plan, run, reason)
    if plan.place_at(job, placed.allocation):
        return True
    plan.undo(mark)
    return False


# A name of the module is found faster than a member of an enumeration.
_RUNNING: Final = RunPhase.RUNNING


def gives_way(run: Run, key: Key, order: Order, plan: Plan) -> bool:
    """Whether a run stands behind a key; one that is still starting will be looked at later."""
    phase = run.phase
    if phase in UNBOOKED or not run.job.preemptible:
        return False
    if not order.running(run, plan.now) > key:  # type: ignore[operator]
        return False
    if phase is not _RUNNING:
        plan.await_starts()
        return False
    return True


def may_disturb(plan: Plan, run: Run, min_run_s: float) -> bool:
    """Whether a run has had its minimum time; if not, the policy is woken when it has."""
    if not run.settled:
        if run.booked:
            plan.await_starts()
        return False
    free_at = _protected_until(run, min_run_s)
    if free_at > plan.now:
        plan.wake(free_at)
        return False
    return True


def _rivals(node: Node, order: Order, now: float, min_run_s: float) -> _Rivals:
    """The runs on a node that could give way to a job."""
    memo = node.memo
    if isinstance(memo, _Rivals) and memo.order is order and now < memo.until:
        return memo
    memo = node.memo = _Rivals(order, [])
    for run, held in node.runs.items():
        phase, job = run.phase, run.job
        if phase in LEAVING or not job.preemptible:
            continue
        key = order.running(run, now)
        if memo.top is None or key > memo.top:  # type: ignore[operator]
            memo.top = key
        if phase is not _RUNNING:
            memo.starting.append((key, held))
        elif (min_run_s or job.spec.min_run_s) and (
            free_at := _protected_until(run, min_run_s)
        ) > now:
            memo.until = min(memo.until, free_at)
        else:
            memo.entries.append((key, held))
    if len(memo.entries) > 1:
        memo.entries.sort(reverse=True)
    return memo


def _last_first(runs: Iterable[Run], order: Order, now: float, min_run_s: float) -> list[Run]:
    """Runs that may be disturbed, least deserving first."""
    free = [run for run in runs if _protected_until(run, min_run_s) <= now]
    return sorted(free, key=lambda run: (order.running(run, now), run.job.seq), reverse=True)


def _protected_until(run: Run, min_run_s: float) -> float:
    """Until when a run is left alone."""
    if run.started_at is None:
        return math.inf
    return run.started_at + max(min_run_s, run.job.spec.min_run_s)
