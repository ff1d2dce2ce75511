"""Jobs that ask for what their queue was never promised, refused when they are submitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from roost.core.spec import QueueId, QueueSpec
from roost.errors import Conflict, NotFound

if TYPE_CHECKING:
    from roost.core.events import Submitted
    from roost.core.state import Queue

#: Priorities in a queue that keeps to its cells: a negative one has no claim.
_HIGHEST = 1000


def check_claim(queues: Mapping[QueueId, Queue], event: Submitted) -> None:
    """Refuse a job that could never run: by its cell, its kind of GPU, its queue or its priority.

    Only queues that do not overflow are that strict: others may run anywhere.
    """
    spec, queue = event.spec, queues.get(event.spec.queue)
    if queue is None:
        strict = sorted(name for name, one in queues.items() if not one.spec.overflows)
        if strict:
            raise NotFound(
                f"job {event.job!r}: there is no queue {spec.queue!r}; queues that keep to their"
                f" cells are {', '.join(strict)}"
            )
        return
    if spec.cell:
        _check_cell(event, queue.spec)
    if queue.spec.overflows or not queue.spec.cells:
        return
    if not -1 <= spec.priority <= _HIGHEST:
        raise Conflict(
            f"job {event.job!r}: queue {spec.queue} keeps to its cells: priorities there are from"
            f" -1 to {_HIGHEST}, got {spec.priority}"
        )
    kinds = {promise.kind for promise in queue.spec.cells}
    asked = spec.resources.kinds
    claims = spec.priority >= 0 and asked and "" not in kinds and not spec.cell
    if claims and kinds.isdisjoint(asked):
        raise Conflict(
            f"job {event.job!r}: queue {spec.queue} is promised no cells of {', '.join(asked)}"
        )


def _check_cell(event: Submitted, queue: QueueSpec) -> None:
    """Refuse a job that asks for a cell by name which its queue was not promised."""
    named = [promise.pinned for promise in queue.cells if promise.pinned]
    if event.spec.cell not in named:
        has = f"it was promised {', '.join(named)}" if named else "it was promised none by name"
        raise Conflict(
            f"job {event.job!r}: queue {queue.id} has no cell {event.spec.cell!r}: {has}"
        )
