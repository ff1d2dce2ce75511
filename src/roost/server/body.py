"""Bodies of requests: JSON that is neither too deep nor made of things no store can keep.

FastAPI hands a body to pydantic as ``json`` read it. Before that, this looks for nesting that would
exhaust the stack, for more parts than any real request has, for keys that are given twice, and
afterwards for zero bytes and halves of surrogate pairs, which are valid JSON but not valid text.
Whether the caller may call the route at all is looked at before any of it is read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from roost.server.options import ServerOptions
from roost.server.permissions import Needs, declared

_LIMITS = ServerOptions()
#: A string, closed or not, a bracket or a comma. Possessive: no byte is looked at twice.
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)
_UNFIT = re.compile(r"[\x00\ud800-\udfff]")


class CheckedRequest(Request):
    """A request with checked JSON."""

    async def body(self) -> bytes:
        """All of the body; what was read of one that does not come to its end is dropped."""
        try:
            return await super().body()
        except (ClientDisconnect, HTTPException) as error:
            # Without its frames, which hold what was read: they would wait for the collector.
            cut_off = error.with_traceback(None)
        raise cut_off

    async def json(self) -> Any:
        """The body; raises HTTPException where it cannot be used."""
        if not hasattr(self, "_checked"):
            self._checked = checked(await self.body())
        return self._checked


class CheckedRoute(APIRoute):
    """A route that checks its requests.

    What it answers with is for the description alone, because all endpoints make their answers
    themselves: the models of hundreds of answers are worked out when the description is asked for.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **told: Any) -> None:
        super().__init__(path, endpoint, **{**told, "response_model": None, "responses": None})
        self._told = told

    def described(self) -> APIRoute:
        """The same for the description, with what it answers; it serves no request."""
        return APIRoute(self.path, self.endpoint, **self._told)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with a checked request."""
        handle, permission = super().get_route_handler(), declared(self)
        gate = None if permission is None else Needs(permission)

        async def handler(request: Request) -> Response:
            if gate is not None:
                await gate(request)
            return await handle(CheckedRequest(request.scope, request.receive))

        return handler


def checked(body: bytes) -> Any:
    """JSON that can be worked with; raises HTTPException (422)."""
    _check_depth(body)
    try:
        # Left to itself, json would take other encodings, too, in which the check means nothing.
        value = json.loads(
            body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique
        )
    except UnicodeDecodeError:
        raise HTTPException(422, "the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise HTTPException(422, f"the body is not JSON: {error.msg} at {where}") from None
    except (ValueError, RecursionError):
        raise HTTPException(422, "the body is not JSON that can be read") from None
    _check_text(value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise HTTPException(422, f"the body is not JSON: {name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a key that is given twice, nobody knows which is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise HTTPException(422, f"the key {twice[:80]!r} is given twice")
    return found


def _check_depth(body: bytes) -> None:
    depth = 0
    for count, token in enumerate(_TOKENS.finditer(body)):
        first = body[token.start()]
        if first in b"[{":
            depth += 1
            if depth > _LIMITS.json_depth:
                raise HTTPException(422, f"the body is nested deeper than {_LIMITS.json_depth}")
        elif first in b"]}":
            depth -= 1
        if count > _LIMITS.json_parts:
            raise HTTPException(422, f"the body has more than {_LIMITS.json_parts} parts")


def _check_text(value: Any) -> None:
    if isinstance(value, str):
        if _UNFIT.search(value):
            raise HTTPException(422, "a text in the body holds a zero byte or half a character")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)
