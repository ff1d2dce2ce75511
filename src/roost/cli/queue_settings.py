"""``--queue NAME:KEY=VALUE,...``: what a queue was promised, as it is typed.

Cells are separated by slashes, because a comma ends a value: ``vision:cells=2xnode:A100/1xswitch``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.core.cells import CellPromise
    from roost.core.spec import QueueSpec

_CELLS = "cells="


def read_queues(texts: Iterable[str], known: Iterable[QueueSpec] = ()) -> list[QueueSpec]:
    """Queues that were typed, and those that a file tells: what is typed of them comes first.

    Raises InvalidSpec or NotFound for settings that are none.
    """
    from roost.core.spec import QueueId, QueueSpec
    from roost.settings import build

    typed: list[QueueSpec] = []
    told = {queue.id: queue for queue in known}
    for text in texts:
        name, _, settings = text.partition(":")
        if not name:
            raise InvalidSpec(f"--queue takes NAME:KEY=VALUE,..., not {text!r}")
        plain, cells = _split(name, settings)
        queue = build(QueueSpec, f"queue {name!r}", plain, id=QueueId(name))
        if cells is None and (of_file := told.pop(queue.id, None)) is not None:
            cells = of_file.cells
        told.pop(queue.id, None)
        typed.append(queue if cells is None else replace(queue, cells=cells))
    return [*told.values(), *typed]


def _split(name: str, settings: str) -> tuple[str, tuple[CellPromise, ...] | None]:
    """Settings without the cells, and the cells if they are told."""
    from roost.core.cells import parse_promise

    items = [item.strip() for item in settings.split(",")]
    told = [item.removeprefix(_CELLS) for item in items if item.startswith(_CELLS)]
    if len(told) > 1:
        raise InvalidSpec(f"parameter 'cells' of queue {name!r} is given twice")
    plain = ",".join(item for item in items if not item.startswith(_CELLS))
    if not told:
        return plain, None
    parts = () if told[0] in ("", "none") else told[0].split("/")
    try:
        return plain, tuple(map(parse_promise, parts))
    except InvalidSpec as error:
        raise InvalidSpec(f"queue {name!r}: {error}") from None
