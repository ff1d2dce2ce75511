"""The ends of the logs of pods: what a worker printed last says whose fault it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.jobs.reports import TAIL_BYTES
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.pod_ends import place_of
from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

_LINES = 400


async def tails_of(context: OperatorContext, pods: Iterable[Object]) -> dict[str, bytes]:
    """The ends of the logs of pods, by role and number; those that are not to be had are left out.

    Nothing is written, so nobody has to lead for it.
    """
    found = await asyncio.gather(*(_read(context, pod) for pod in pods))
    return {place: text for place, text in found if text is not None}


async def _read(context: OperatorContext, pod: Object) -> tuple[str, bytes | None]:
    meta, (role, index) = pod["metadata"], place_of(pod)
    place = f"{role}-{index}"
    try:
        text = await context.api.log(meta["namespace"], meta["name"], tail_lines=_LINES)
    except (NotFound, Forbidden, InvalidSpec, Conflict, Retryable) as error:
        _log.info("the log of %s is not to be had: %s", meta["name"], error)
        return place, None
    return place, text[-TAIL_BYTES:]


class LogTail:
    """What was read of a log."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def size(self) -> int:
        """Bytes there are."""
        return len(self._text)

    def read(self, offset: int, n: int) -> bytes:
        """At most ``n`` bytes from there."""
        return self._text[offset : offset + n]

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
