"""The runs that really are on the devices: the second ledger.

The ledger knows what is *free*: what will be unused once the stops under way are done. This is
the rest of the truth, as little of it as is needed: which runs are on which nodes, what some of
them are still leaving, and which runs wait for that. What is free and not being left is *idle*.
"""

from __future__ import annotations

from collections.abc import Iterable

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.ledger import Ledger
from roost.core.node import Node, mask_of
from roost.core.spec import CPU_SLOT, WHOLE, JobSpec, NodeId, RunId, Way
from roost.core.state import Run


class Occupancy:
    """Runs on nodes, and runs that have yet to leave."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        #: Runs that hold something others were promised, and the runs that wait for them.
        self._leaving: dict[RunId, list[Run]] = {}

    def settle(self, run: Run, allocation: Allocation | None) -> None:
        """Note on the nodes what a run holds from now on; None: nothing."""
        nodes = self._nodes
        for part in run.allocation.parts:
            nodes[part.node].runs.pop(run, None)
        for part in (*run.leaving, *(run.target.parts if run.target else ())):
            nodes[part.node].runs.pop(run, None)
        if allocation is None:
            return
        milli = 0
        for part in allocation.parts:
            held = len(part.gpus) * part.share_milli
            runs = nodes[part.node].runs
            runs[run] = runs[run] + held if run in runs else held
            milli += held
        run.allocation = allocation
        run.gpu_milli = milli
        run.workers = allocation.workers

    def expect(self, run: Run, target: Allocation) -> None:
        """Note on the nodes that a run will come to them."""
        for part in target.parts:
            self._nodes[part.node].runs.setdefault(run, 0)

    def leave(self, run: Run, parts: tuple[Part, ...]) -> None:
        """A run was asked to give these parts up."""
        if parts:
            run.leaving = parts
            self._leaving.setdefault(run.id, [])
            for part in parts:
                self._nodes[part.node].leaving |= mask_of(part.gpus)

    def left(self, run: Run) -> list[Run]:
        """A run holds nothing of others any more; returns the runs that may go on."""
        waiters = self._leaving.pop(run.id, None)
        if waiters is None:
            return []
        parts, run.leaving = run.leaving, ()
        for node in {part.node: self._nodes[part.node] for part in parts}.values():
            node.leaving = 0
            for part in (part for other in node.runs for part in other.leaving):
                node.leaving |= mask_of(part.gpus) if part.node == node.id else 0
        ready = []
        for waiter in waiters:
            if run.id in waiter.after:
                waiter.after.discard(run.id)
                if not waiter.after:
                    ready.append(waiter)
        return ready

    def waiters(self, run: Run) -> list[Run]:
        """Runs that wait for this one to leave, each once.

        One that was called back, had to give its place up and was called back again is noted twice.
        """
        noted = dict.fromkeys(self._leaving.get(run.id, ()))
        return [other for other in noted if run.id in other.after]

    def still_there(self, parts: Iterable[Part]) -> list[RunId]:
        """Runs that still use what these parts need."""
        found: dict[RunId, None] = {}
        for part in parts:
            node = self._nodes[part.node]
            for other in node.runs:
                if other.leaving and _clash(part, other.leaving, node):
                    found[other.id] = None
        return list(found)

    def in_the_way(self, parts: Iterable[Part], run: Run) -> set[RunId]:
        """Runs that still use what these parts need; ``left`` will tell when they do not."""
        found: set[RunId] = set()
        if not self._leaving:
            return found
        for part in parts:
            node = self._nodes[part.node]
            for other in node.runs:
                if other is not run and other.leaving and _clash(part, other.leaving, node):
                    found.add(other.id)
        for run_id in found:
            self._leaving[run_id].append(run)
        return found


def uses(run: Run, node: Node, gpu: int) -> bool:
    """Whether a run is on a device, or about to be."""
    parts = (*run.allocation.parts, *(run.target.parts if run.target else ()))
    return any(part.node == node.id and gpu in part.gpus for part in parts)


def neighbours(run: Run, ledger: Ledger) -> list[Run]:
    """Other runs with a share of the devices of a run, in the order in which they came there."""
    found: dict[Run, None] = {}
    for part in run.allocation.parts:
        if part.share_milli < WHOLE:
            node = ledger.nodes[part.node]
            for other in node.runs:
                if other is not run and any(uses(other, node, gpu) for gpu in part.gpus):
                    found[other] = None
    return list(found)


def pinned(run: Run, ledger: Ledger) -> bool:
    """Whether a run's memory stays on its devices though it is suspended, so that it holds them.

    What shares a GPU the spatial way cannot be taken off it; CPUs that stand in for one let it go.
    """
    spec, nodes = run.job.spec, ledger.nodes
    return any(nodes[name].spec.kind != CPU_SLOT for name in lasting(spec, run.allocation))


def lasting(spec: JobSpec, allocation: Allocation) -> list[NodeId]:
    """The nodes on which an allocation has shares of the spatial way."""
    ways = {role.name: role.resources.way for role in spec.roles}
    ways[WORKER] = spec.resources.way
    if Way.SPATIAL not in ways.values():
        return []
    return [
        part.node
        for part in allocation.parts
        if part.share_milli < WHOLE and ways[part.role] is Way.SPATIAL
    ]


def _clash(part: Part, leaving: Iterable[Part], node: Node) -> bool:
    """Whether a part needs what others are still leaving: devices, or what a node counts."""
    spec = node.spec
    counted = bool(spec.cpu_milli or spec.memory_mib or spec.workers or spec.extras)
    return any(
        other.node == part.node and (counted or not set(other.gpus).isdisjoint(part.gpus))
        for other in leaving
    )
