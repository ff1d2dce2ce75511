"""Victims node by node: how to make room for a gang that needs more of a node than GPUs.

A search for the least deserving runs of all finds them scattered over the cluster, and no node that
a worker with CPUs and memory fits on. So nodes are looked at one by one, those with the least
deserving runs first; on each, runs go until a worker fits. In the end those runs stay that turned
out not to be in the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from roost.core.allocation import Allocation
from roost.core.decisions import Place
from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.spec import WHOLE, Resources, Shape
from roost.core.state import Job, Run, needs
from roost.core.waiting import Key, Line
from roost.policies.kit.promises import in_the_way

#: How a run makes room: it is evicted, or suspended.
Clear: TypeAlias = Callable[[Plan, Run, str], bool]

#: How many runs of a node may be cleared for one job, and two for each GPU that it needs.
_MOST = 64
#: How many nodes are looked at for one job.
_PATIENCE = 256


@dataclass(slots=True)
class _InVain:
    """A search that failed for a head with that key.

    ``until`` is when a run that is still left alone may be disturbed; ``starting`` says that one
    may be once it is up.
    """

    stamp: int
    key: Key
    until: float
    starting: bool


@dataclass(slots=True)
class _Crowd:
    """The runs on a node that would give way, least deserving first, and the key of the last."""

    node: Node
    runs: list[Run] = field(default_factory=list)
    last: Key = 0.0


def worth_a_look(plan: Plan, line: Line, key: Key) -> Iterable[Run]:
    """Runs among which room may be found: all, or those on nodes that changed since it was not."""
    shape, last = line.shape, line.blocked
    if not all(plan.ledger.could(need, 1) for need in _wanted(shape)):
        return ()  # not even on an empty node
    if not isinstance(last, _InVain) or key < last.key or plan.now >= last.until:  # type: ignore[operator]
        return plan.running
    changed = plan.ledger.changed_since(last.stamp)
    if changed is None:
        return plan.running
    plan.wake(last.until)
    if last.starting:
        plan.await_starts()
    nodes = [node for node in dict.fromkeys(changed) if _useful(plan, shape, node)]
    if nodes and (shape.workers > 1 or shape.roles):
        return plan.running
    return dict.fromkeys(run for node in nodes for run in node.runs)


def in_vain(plan: Plan, line: Line, key: Key, free_at: Iterable[float]) -> None:
    """Note that nothing can be had for the head of a line until something changes."""
    until = min((at for at in free_at if at > plan.now), default=math.inf)
    if isinstance(line.blocked, _InVain) and line.blocked.until > plan.now:
        until = min(until, line.blocked.until)
    line.blocked = _InVain(plan.ledger.stamp, key, until, plan.awaits_starts)


def _wanted(shape: Shape) -> list[Resources]:
    return [shape.resources, *(role.resources for role in shape.roles)]


def _useful(plan: Plan, shape: Shape, node: Node) -> bool:
    return any(plan.ledger.suits(node, need) for need in _wanted(shape))


def clear_nodes(
    plan: Plan,
    job: Job,
    rivals: Iterable[Run],
    key: Callable[[Run], Key],
    clear: Clear = Plan.evict,
) -> bool:
    """Clear rivals (least deserving first) node by node until a job fits; or change nothing."""
    shape = plan.waiting.line_of(job).shape
    mark = plan.mark()
    cleared: list[Run] = []
    for crowd in islice(_crowds(plan, shape, rivals, key), _PATIENCE):
        gone = _clear(plan, job, shape, crowd, clear)
        cleared += gone
        if gone and plan.ledger.free_milli >= job.gpu_milli and plan.place(job):
            return _settle(plan, job, mark, cleared, clear)
    plan.undo(mark)
    return False


def _crowds(
    plan: Plan, shape: Shape, rivals: Iterable[Run], key: Callable[[Run], Key]
) -> list[_Crowd]:
    """Nodes of use to a gang where runs would give way: the least deserving first."""
    ledger, mask = plan.ledger, 0
    for need in _wanted(shape):
        mask |= ledger.eligible(need)
    found: dict[Node, _Crowd] = {}
    for run in rivals:
        for name in run.allocation.nodes:
            node = ledger.nodes[name]
            if mask & node.bit:
                crowd = found.setdefault(node, _Crowd(node))
                crowd.runs.append(run)
                crowd.last = key(run)
    order = sorted(found.values(), key=lambda crowd: (-len(crowd.runs), -crowd.node.index))
    return sorted(order, key=lambda crowd: crowd.last, reverse=True)


def _clear(plan: Plan, job: Job, shape: Shape, crowd: _Crowd, clear: Clear) -> list[Run]:
    """Clear as few of a crowd as let the most workers in that could come; none, if none could."""
    node, ledger = crowd.node, plan.ledger
    # On a node with very many, others than the least deserving are not looked at.
    runs = crowd.runs[: _MOST + 2 * shape.gpu_milli // WHOLE]
    for need, count in ((shape.resources, shape.workers), *((r.resources, 1) for r in shape.roles)):
        if not ledger.suits(node, need):
            continue
        before, mark = ledger.room(node, need), plan.mark()
        _go(plan, job, runs, clear)
        room = min(ledger.room(node, need), count)
        plan.undo(mark)
        together = plan.consolidates and need is shape.resources and ledger.could(need, count)
        if room <= before or (together and room < count):
            continue
        gone: list[Run] = []
        for run in runs:
            gone += _go(plan, job, [run], clear)
            if ledger.room(node, need) >= room:
                return gone
    return []


def _go(plan: Plan, job: Job, runs: Iterable[Run], clear: Clear) -> list[Run]:
    return [run for run in runs if clear(plan, run, f"makes room for {job.id}")]


def _settle(plan: Plan, job: Job, mark: int, cleared: list[Run], clear: Clear) -> bool:
    """Go back, and clear away only those that are in the way of what the job was given."""
    placed = plan.decisions[-1]
    assert isinstance(placed, Place)  # noqa: S101 - narrows the type
    stay = _not_in_the_way(plan, cleared)
    owing = in_the_way(job, placed.allocation, stay)
    stay = [run for run in stay if run not in owing]
    plan.undo(mark)
    _go(plan, job, [run for run in cleared if run not in stay], clear)
    return plan.place_at(job, Allocation(placed.allocation.parts))


def _not_in_the_way(plan: Plan, cleared: list[Run]) -> list[Run]:
    """Runs that could have their places back beside the job: the most deserving first."""
    ledger, stay = plan.ledger, list[Run]()
    with ledger.trial():
        for run in reversed(cleared):
            if not ledger.claim((part, needs(run.job, part)) for part in run.allocation.parts):
                stay.append(run)
        for run in stay:
            for part in run.allocation.parts:
                ledger.release(part, needs(run.job, part))
    return stay
