"""The API against its own description: whatever is sent, nothing breaks and answers are as told.

Requests are generated from the OpenAPI description, valid and invalid ones, with names of things
that exist mixed in. The engine behind the cluster runs nothing: a fuzzer writes scripts, too.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.unit.server.worlds import World, world

load_all_checks()
CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
#: More with ROOST_FUZZ=1000; the seed is fixed.
EXAMPLES = int(os.environ.get("ROOST_FUZZ", "10"))
#: Things that exist, or nearly so.
NAMES: dict[str, list[str]] = {
    "job": ["done", "open", "waits", "plan"],
    "queue": ["default", "extra"],
    "user": ["ada", "nobody"],
    "node": ["box", "bo x"],
}


class Running:
    """A world in a loop of its own, for tests that are not coroutines."""

    def __init__(self, home: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._context = world(home)
        self.here: World = self.call(self._context.__aenter__)
        self.call(self._fill)
        self._client: httpx.AsyncClient = self.here.client()

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work(*args), self._loop).result(30)

    async def _fill(self) -> None:
        await self.here.add("ada")
        done = await self.here.submit("ada", "done")
        await self.here.finish("ada", done)
        await self.here.until("ada", await self.here.submit("ada", "open", workers=4), "running")
        await self.here.submit("ada", "waits")

    def ask(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = self.call(self._ask, request)
        return answer

    async def _ask(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/stream"):
            return await self._client.send(request)
        path = request.url.raw_path.decode()
        async with self.here.watch(path) as viewer:
            if viewer.status < 400:
                return httpx.Response(viewer.status, request=request)
        return await self._client.send(request)

    def close(self) -> None:
        self.call(self._context.__aexit__, None, None, None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("fuzz"))
    yield found
    found.close()


def operations(running: Running) -> Iterator[Any]:
    """Everything that the description tells of."""
    schema = schemathesis.openapi.from_dict(running.here.app.openapi())
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        yield result.ok()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_nothing_breaks_and_answers_are_as_described(running: Running, mode: Any) -> None:
    tried = 0
    for operation in operations(running):
        tried += _fuzz(running, operation, mode)
    assert tried > EXAMPLES * 10


def _fuzz(running: Running, operation: Any, mode: Any) -> int:
    tried = 0

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def attempt(case: Any, data: st.DataObject) -> None:
        nonlocal tried
        for name, known in NAMES.items():
            if name in (case.path_parameters or {}) and data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(known))
        request = _request(case, running.here.tokens["root"])
        if request is None:
            return
        tried += 1
        answer = running.ask(request)
        assert answer.status_code < 500, (request.method, request.url, answer.text)
        # Every request has a token; a login by hand brings another one in its body.
        logs_in = operation.method == "post" and operation.path.endswith("/session")
        assert logs_in or answer.status_code != 401, (request.method, request.url, answer.text)
        if answer.status_code not in (400, 404, 405, 413) and "x-request-id" in answer.headers:
            case.validate_response(answer, checks=CHECKS)

    with suppress(Unsatisfiable):  # an operation that takes nothing cannot be asked wrongly
        attempt()
    return tried


def _request(case: Any, token: str) -> httpx.Request | None:
    """A generated case as a request; ``None`` where HTTP itself has no way to say it."""
    given_ = case.as_transport_kwargs(base_url="http://127.0.0.1")
    data = given_.get("data")
    try:
        headers = {
            name: value
            for name, value in (given_.get("headers") or {}).items()
            if name.lower() not in ("host", "authorization", "content-length")
        }
        request = httpx.Request(
            given_["method"],
            given_["url"],
            params=given_.get("params"),
            headers={**headers, "Authorization": f"Bearer {token}"},
            json=given_.get("json"),
            content=data if isinstance(data, bytes | str) else None,
        )
    except (httpx.InvalidURL, UnicodeEncodeError, ValueError, TypeError):
        return None
    return request
