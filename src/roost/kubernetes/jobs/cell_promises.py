"""Promises of cells in ClusterQueues: told to the core as soon as there are such cells.

A promise may be made before the nodes are there that can keep it, and nodes come and go. So a
queue is told to the core without cells that do not fit, and again with them when there are more
nodes, or other queues have less. Meanwhile its status says what is missing, in the core's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from roost.core import Core, Event, QueueChanged, QueueDeleted, QueueSpec
from roost.core.cells import telling
from roost.core.events import NodeChanged, NodeJoined, NodeUncordoned
from roost.errors import RoostError
from roost.kubernetes.operator.status import Condition

#: What may let cells be promised that could not be before.
_ROOM = (NodeJoined, NodeChanged, NodeUncordoned, QueueChanged, QueueDeleted)


def changes(core: Core, wanted: QueueSpec, now: float) -> Iterator[QueueChanged]:
    """What to tell the core of a queue: the rest first, for it may refuse the cells."""
    known = core.queues.get(wanted.id)
    if known is not None and known.spec == wanted:
        return
    if wanted.cells:
        plain = replace(wanted, cells=() if known is None else known.spec.cells)
        if known is None or known.spec != plain:
            yield QueueChanged(now, plain)
    yield QueueChanged(now, wanted)


def is_room(events: Iterable[Event]) -> bool:
    """Whether cells that could not be promised may be now."""
    return any(isinstance(event, _ROOM) for event in events)


def is_open(core: Core, wanted: QueueSpec) -> bool:
    """Whether the core was told of cells, or should be, and has not taken them."""
    known = core.queues.get(wanted.id)
    return bool(wanted.cells) and (known is None or known.spec.cells != wanted.cells)


def condition(core: Core, wanted: QueueSpec) -> Condition:
    """Whether all cells that a queue is to be promised are promised, and can be had."""
    if is_open(core, wanted):
        return Condition(
            "CellsPromised", holds=False, reason="NotThere", message=_why(core, wanted)
        )
    lacking = [
        f"{count} of {promise.title}" for promise, _, count in standing(core, wanted) if count
    ]
    if lacking:
        text = f"too little healthy hardware is left for {', '.join(lacking)}"
        return Condition("CellsPromised", holds=False, reason="Broken", message=text)
    return Condition("CellsPromised", holds=True, reason="Promised")


def cell_statuses(core: Core, wanted: QueueSpec) -> list[dict[str, Any]]:
    """Each promise, how many of its cells are used, and how many are broken."""
    return [
        {"promise": str(promise), "used": used, "broken": lacking}
        for promise, used, lacking in standing(core, wanted)
    ]


def standing(core: Core, wanted: QueueSpec) -> list[Any]:
    """How it stands with the promises that the core took."""
    cells = core.ledger.cells
    return [] if cells is None else telling.standing(cells, wanted.id)


def _why(core: Core, wanted: QueueSpec) -> str:
    try:
        core.state.check_cells(wanted)
    except RoostError as error:
        return str(error)
    return "the core is told of them"
