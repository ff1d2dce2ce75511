"""Which permissions requests need, recorded where they leave: verb, resource and namespace."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp

from roost.kubernetes.client.transport import ApiCall, Transport


class RequestRecord:
    """What was asked of an API server by this process."""

    def __init__(self) -> None:
        #: Requests by verb and resource, such as ``create pods/binding``,
        self.asked: Counter[str] = Counter()
        #: and the namespaces that each was about; an empty one: all, or none.
        self.where: dict[str, set[str]] = {}

    def note(self, call: ApiCall) -> None:
        asked = call.asked
        what = f"{asked.verb} {asked.resource}"
        self.asked[what] += 1
        self.where.setdefault(what, set()).add(asked.namespace)

    @property
    def total(self) -> int:
        return self.asked.total()


@contextlib.contextmanager
def recording() -> Iterator[RequestRecord]:
    """Everything that this process sends."""
    record = RequestRecord()
    sent, streamed = Transport._exchange, Transport.stream

    async def exchange(self: Transport, request: ApiCall) -> Any:
        record.note(request)
        return await sent(self, request)

    @contextlib.asynccontextmanager
    async def stream(
        self: Transport, request: ApiCall, stall_s: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        record.note(request)
        async with streamed(self, request, stall_s) as answer:
            yield answer

    Transport._exchange, Transport.stream = exchange, stream  # type: ignore[method-assign]
    try:
        yield record
    finally:
        Transport._exchange, Transport.stream = sent, streamed  # type: ignore[method-assign]
