"""Which permissions requests need, recorded where they leave: verb, resource and namespace."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.transport import ApiCall, Transport


class RequestRecord:
    """What each client of this process asked of an API server."""

    def __init__(self) -> None:
        self._where: dict[Transport, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def note(self, transport: Transport, call: ApiCall) -> None:
        asked = call.asked
        self._where[transport][f"{asked.verb} {asked.resource}"].add(asked.namespace)

    def of(self, api: Api) -> dict[str, set[str]]:
        """Of one client: by verb and resource the namespaces; an empty one: all, or none."""
        return self._where[api._transport]


@contextlib.contextmanager
def recording() -> Iterator[RequestRecord]:
    """Everything that this process sends."""
    record = RequestRecord()
    sent, streamed = Transport._exchange, Transport.stream

    async def exchange(self: Transport, request: ApiCall) -> Any:
        record.note(self, request)
        return await sent(self, request)

    @contextlib.asynccontextmanager
    async def stream(
        self: Transport, request: ApiCall, stall_s: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        record.note(self, request)
        async with streamed(self, request, stall_s) as answer:
            yield answer

    Transport._exchange, Transport.stream = exchange, stream  # type: ignore[method-assign]
    try:
        yield record
    finally:
        Transport._exchange, Transport.stream = sent, streamed  # type: ignore[method-assign]
