"""Promises of cells checked as a whole before they are made, and refused in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from roost.core.cells.dues import Due, Dues, fit
from roost.core.cells.forest import Cell, Forest
from roost.core.node import Node
from roost.core.spec import QueueId, QueueSpec
from roost.errors import Conflict


def check_cells(nodes: Iterable[Node], specs: Mapping[QueueId, QueueSpec], spec: QueueSpec) -> None:
    """Refuse promises to a queue that cannot be kept beside all others; raises Conflict.

    They are laid out on the nodes that are here, with nothing claimed. ``specs`` has what queues
    are promised so far.
    """
    here = [node for node in nodes if node.here]
    old, new = Dues(Forest(here), specs), Dues(Forest(here), {**specs, spec.id: spec})
    for due in new.of(spec.id):
        if due.promise.pinned:
            _check_pin(new, due)
        else:
            _check_sort(new.forest, due)
    before = {(due.queue, due.key): count for due, count in old.shortage().items()}
    short = new.shortage()
    worse = [due for due in short if short[due] > before.get((due.queue, due.key), 0)]
    if worse:
        raise Conflict(_too_much(new, spec.id, worse))


def _check_pin(dues: Dues, due: Due) -> None:
    """Refuse a promise of a cell that does not exist, or is another queue's already."""
    whose, name = f"queue {due.queue}", due.promise.pinned
    pin = dues.forest.cells.get(name)
    if pin is None:
        raise Conflict(f"{whose}: there is no cell {name!r}{_named_like(dues.forest, name)}")
    # By name: of two that want the same cell only the first has it.
    for owner in (one for dues_of in dues.by_queue.values() for one in dues_of):
        other = dues.forest.cells.get(owner.promise.pinned)
        if owner is not due and other is not None and _overlap(pin, other):
            raise Conflict(
                f"{whose}: cell {pin.name!r} overlaps {other.name!r},"
                f" which is promised to {owner.queue}"
            )


def _overlap(one: Cell, other: Cell) -> bool:
    return one is other or other in tuple(one.ancestors()) or one in tuple(other.ancestors())


def _named_like(forest: Forest, name: str) -> str:
    some = [cell for cell in forest.cells if name in cell][:3]
    return f"; did you mean {', '.join(some)}?" if some else ""


def _check_sort(forest: Forest, due: Due) -> None:
    """Refuse a promise of cells of which there are none, or of several sorts."""
    whose, promise = f"queue {due.queue}", due.promise
    if not due.levels:
        raise Conflict(
            f"{whose}: there is no {promise.level} such as in {str(promise)!r}; {_sorts(forest)}"
        )
    kinds = sorted({chain.kind for chain, _ in due.levels})
    if len(kinds) > 1:
        raise Conflict(
            f"{whose}: {str(promise)!r} does not say of which kind of GPU: {', '.join(kinds)}"
        )
    sizes = sorted({chain.sizes[height] for chain, height in due.levels})
    if len(sizes) > 1:
        told = " or ".join(map(str, sizes))
        raise Conflict(
            f"{whose}: a {promise.level} of {kinds[0]} has {told} GPUs: say which,"
            f" like {str(promise) + '*' + str(sizes[-1])!r}"
        )


def _sorts(forest: Forest) -> str:
    """The sorts of cells that there are."""
    found = {
        f"{level} of {chain.kind}" for chain in forest.chains for level in reversed(chain.levels)
    }
    return f"there are {', '.join(sorted(found))}" if found else "there are no nodes with GPUs"


def _too_much(dues: Dues, queue: QueueId, short: list[Due]) -> str:
    """What is left for a queue that is promised too much, by kind and level."""
    mine = [due for due in short if due.queue == queue] or dues.of(queue)
    asked = ", ".join(due.promise.title for due in mine)
    left = [f"{free} × {level} of {kind}" for (kind, level), free in _left(dues, queue).items()]
    return (
        f"queue {queue} cannot be promised {asked}: beside what others are promised,"
        f" {', '.join(left) if left else 'nothing'} is left"
    )


def _left(dues: Dues, queue: QueueId) -> dict[tuple[str, str], int]:
    """How many cells of each sort are left beside what other queues are promised."""
    room = dues.room()
    for due in dues.order:
        if due.queue != queue:
            fit(due, room)
    found: dict[tuple[str, str], int] = {}
    for chain, free in room.items():
        whole = 0
        for height in reversed(range(len(chain.levels))):
            whole = whole * (chain.parts[height + 1] if height + 1 < len(chain.parts) else 0)
            whole += max(0, free[height])
            sort = (chain.kind, chain.levels[height])
            found[sort] = found.get(sort, 0) + whole
    return {sort: count for sort, count in found.items() if count}
