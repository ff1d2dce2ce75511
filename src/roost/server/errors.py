"""Errors as callers see them: one shape, one line, never a traceback.

    {"error": {"kind": "conflict", "message": "...", "hint": "..."}}

``kind`` says what the caller can do about it; the status follows from it. An unexpected
error becomes a 500 with the number of the request, under which the log tells the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from roost.errors import Conflict, Fatal, Forbidden, InvalidSpec, NotFound, Retryable, RoostError

Kind = Literal[
    "not-found",
    "invalid",
    "conflict",
    "forbidden",
    "unauthenticated",
    "retry",
    "full",
    "fatal",
]

_LONGEST = 2000
_SERVER_ERROR = 500


class ErrorDetail(BaseModel):
    """What went wrong, and what can be done about it."""

    kind: Kind
    message: str
    hint: str = ""


class FieldPath(BaseModel):
    """Where in a job file something is wrong."""

    line: int | None = None
    field: str = ""
    message: str


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail
    errors: list[FieldPath] = Field(default_factory=list)


class HttpError(RoostError):
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, kind: Kind, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.kind, self.hint = status, kind, hint
        self.places: list[dict[str, Any]] = []


_MEANING = {
    400: "The request is malformed.",
    401: "There is no token, or it is not valid (any more).",
    403: "The caller's role, or the queue, does not allow it.",
    404: "There is no such thing, or the caller may not know of it.",
    405: "This path does not know that method.",
    409: "It clashes with the present state.",
    408: "The body took too long.",
    413: "The body is too large.",
    416: "The file is shorter than that.",
    421: "The Host or Origin header names another server.",
    422: "What was sent is wrong; the message names the field.",
    429: "Too many streams, large requests or answers, or questions of this user are under way.",
    431: "Address and headers are too long.",
    500: "A fault of the server; the message carries the number of the request.",
    503: "Not now; try again after the seconds in Retry-After.",
    507: "The disk is full; reading goes on.",
}


def answers(*more: int) -> dict[int | str, dict[str, Any]]:
    """The failures that a route can answer with, for its description."""
    statuses = sorted({400, 401, 403, 408, 413, 421, 422, 429, 431, 500, 503, *more})
    return {status: {"model": ErrorBody, "description": _MEANING[status]} for status in statuses}


def failure(
    status: int,
    problem: ErrorDetail,
    places: list[dict[str, Any]] | None = None,
    after: float = 0.0,
) -> Response:
    """An error as a response."""
    body: dict[str, Any] = {"error": problem.model_dump()}
    body["error"]["message"] = problem.message[:_LONGEST]
    body["errors"] = places or []
    headers = {"Retry-After": str(max(1, math.ceil(after)))} if status in {429, 503} else {}
    if status == 401:  # noqa: PLR2004 - the status itself
        headers["WWW-Authenticate"] = "Bearer"
    return Response(as_json(body), status, headers, "application/json")


def as_json(value: Any) -> bytes:
    """Compact JSON; what cannot be encoded as UTF-8 is replaced, what is no number is null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return as_json(_finite(value))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    """A value without infinities and NaN: a job may well report such a loss."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def of(error: RoostError) -> Response:
    """The response to an error that was raised on purpose."""
    message = " ".join(str(error).split()) or type(error).__name__
    match error:
        case HttpError():
            problem = ErrorDetail(kind=error.kind, message=message, hint=error.hint)
            return failure(error.status, problem, error.places)
        case NotFound():
            return failure(404, ErrorDetail(kind="not-found", message=message))
        case Forbidden():
            return failure(403, ErrorDetail(kind="forbidden", message=message, hint=error.hint))
        case Conflict():
            return failure(409, ErrorDetail(kind="conflict", message=message))
        case InvalidSpec():
            return failure(422, ErrorDetail(kind="invalid", message=message), _places(error))
        case Retryable() if _full(error):
            hint = "free some space; nothing that runs is touched"
            return failure(507, ErrorDetail(kind="full", message=message, hint=hint))
        case Retryable():
            problem = ErrorDetail(kind="retry", message=message, hint="try again in a moment")
            return failure(503, problem, after=error.after)
        case Fatal():
            return failure(500, ErrorDetail(kind="fatal", message=message))
        case _:
            return failure(500, ErrorDetail(kind="fatal", message=message))


def _full(error: Retryable) -> bool:
    return type(error).__name__ == "StoreFull"


def _places(error: InvalidSpec) -> list[dict[str, Any]]:
    """Line and field, where the error of a job file knows them."""
    found = getattr(error, "errors", None)
    places = [] if found is None else list(found)
    return [
        {
            "line": getattr(place, "line", None),
            "field": str(getattr(place, "field", "")),
            "message": str(getattr(place, "message", place)),
        }
        for place in places
    ]


def install(app: FastAPI) -> None:
    """Let an app answer all errors in this shape."""
    app.add_exception_handler(RoostError, _roost)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)


def _roost(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RoostError)  # noqa: S101 - by registration
    return of(error)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - by registration
    kinds: dict[int, Kind] = {
        401: "unauthenticated",
        403: "forbidden",
        404: "not-found",
        405: "invalid",
        429: "retry",
        503: "retry",
    }
    fallback: Kind = "invalid" if error.status_code < _SERVER_ERROR else "fatal"
    kind = kinds.get(error.status_code, fallback)
    response = failure(error.status_code, ErrorDetail(kind=kind, message=str(error.detail)))
    response.headers.update(error.headers or {})
    if error.status_code == 405:  # noqa: PLR2004 - the status itself
        response.headers["Allow"] = ", ".join(_methods(request))
    return response


def _methods(request: Request) -> list[str]:
    """What the path of a request can be asked with; several routes may share it."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


def _said(error: Mapping[str, Any]) -> str:
    """What is wrong with one value; what a pattern means, in words."""
    if error.get("type") != "string_pattern_mismatch":
        return str(error.get("msg"))
    pattern = str((error.get("ctx") or {}).get("pattern", ""))
    letters = "letters" if "A-Z" in pattern else "small letters"
    marks = [mark for mark in "_.@+" if mark in pattern] + ["-"] * ("-]" in pattern)
    allowed = ", ".join([letters, "digits", *marks[:-1]]) + (f" and {marks[-1]}" if marks else "")
    return f"{str(error.get('input'))[:80]!r} cannot be a name here: {allowed} make one"


def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - by registration
    places = []
    for one in error.errors()[:20]:
        where = [str(part) for part in one.get("loc", ())]
        places.append({"line": None, "field": ".".join(where[1:]), "message": _said(one)})
    first = places[0] if places else {"field": "", "message": "the request is malformed"}
    message = f"{first['field']}: {first['message']}" if first["field"] else str(first["message"])
    return failure(422, ErrorDetail(kind="invalid", message=message), places)
