"""What can go wrong on the way to the server, and what the server says when it refuses.

    RoostError
    ├── RequestRefused      the server said no: ``kind``, ``hint`` and HTTP ``status``
    │   ├── also a NotFound, InvalidSpec, Forbidden, Conflict, Retryable or Fatal, as it may be
    │   └── Unauthenticated no token, or one that is not valid
    ├── NoServer            no server answers there (Retryable)
    ├── CertificateRefused  its TLS is not to be trusted, or is none; trying again does not help
    ├── LostAnswer          it was sent, but no answer came: done or not is unknown (Retryable)
    └── RemoteError         a submitted function failed with something that cannot be raised here

A refusal is caught as what it means, ``except NotFound``, or as ``RequestRefused``; it is a
``NotFoundRefusal``, ``InvalidRefusal`` and so on, which are both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from roost.errors import Conflict, Fatal, Forbidden, InvalidSpec, NotFound, Retryable, RoostError

_FULL = 507


class RequestRefused(RoostError):
    """The server's answer was no; the text is its message, with its hint in parentheses."""

    kind = "fatal"
    status = 500
    hint = ""


class Unauthenticated(RequestRefused):
    """The server does not know the caller."""


class NotFoundRefusal(RequestRefused, NotFound):
    """There is no such thing, or the caller may not know of it."""


class InvalidRefusal(RequestRefused, InvalidSpec):
    """What was sent is wrong; the message says what."""


class ForbiddenRefusal(RequestRefused, Forbidden):
    """The caller has no right to it."""


class ConflictRefusal(RequestRefused, Conflict):
    """It clashes with the present state."""


class RetryRefusal(RequestRefused, Retryable):
    """Not now; the same may work after ``after`` seconds."""

    def __init__(self, message: str, after: float = 1.0) -> None:
        Retryable.__init__(self, message, after)


class FatalRefusal(RequestRefused, Fatal):
    """A fault of the server."""


class NoServer(Retryable):
    """No server answers at that address; ``others`` are logins that may be meant instead."""

    def __init__(self, url: str, others: Sequence[str] = ()) -> None:
        advice = "start one with: roost up"
        if urlsplit(url).hostname not in {"localhost", "127.0.0.1", "::1"}:
            advice = "is it up, and can it be reached from here?"
        elif others:
            advice += f", or name another: --on {others[0]}"
        super().__init__(f"no Roost server answers at {url}; {advice}", 1.0)
        self.url, self.others = url, tuple(others)

    def __reduce__(self) -> tuple[type[NoServer], tuple[str, tuple[str, ...]]]:
        return NoServer, (self.url, self.others)


class CertificateRefused(RoostError):
    """The certificate of a server is not accepted, or there is none."""


class LostAnswer(Retryable):
    """The request went out, and no answer came back."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"no answer from {url}: {why}; whether it was done is not known", 1.0)
        self.url, self.why = url, why

    def __reduce__(self) -> tuple[type[LostAnswer], tuple[str, str]]:
        return LostAnswer, (self.url, self.why)


class RemoteError(RoostError):
    """A submitted function failed; ``trace`` is what it wrote, if that is known."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


_KINDS: dict[str, type[RequestRefused]] = {
    "not-found": NotFoundRefusal,
    "invalid": InvalidRefusal,
    "conflict": ConflictRefusal,
    "forbidden": ForbiddenRefusal,
    "unauthenticated": Unauthenticated,
    "retry": RetryRefusal,
    "full": RetryRefusal,
    "fatal": FatalRefusal,
}
#: For an answer that does not say: a proxy's, or one of an older server.
_STATUSES = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    409: "conflict",
    422: "invalid",
    429: "retry",
    502: "retry",
    503: "retry",
    504: "retry",
    _FULL: "full",
}


_WHO = "log in with: roost login URL, or give yours as ROOST_TOKEN"


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> RequestRefused:
    """What an answer of status 400 or above means."""
    told = _told(content)
    kind = str(told.get("kind") or "")
    if kind not in _KINDS:
        kind = _STATUSES.get(status, "fatal" if status >= 500 else "invalid")  # noqa: PLR2004
    message = str(told.get("message") or f"the server answered with status {status}")
    # What the server advises is about the wire, which people here do not see.
    hint = _WHO if kind == "unauthenticated" else str(told.get("hint") or "")
    error = _KINDS[kind](f"{message} ({hint})" if hint else message)
    error.kind, error.status, error.hint = kind, status, hint
    if isinstance(error, Retryable):
        error.after = _seconds(headers.get("retry-after", ""))
    return error


def _told(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    told = body.get("error") if isinstance(body, dict) else None
    if isinstance(told, dict):
        return told
    lines = body.get("errors") if isinstance(body, dict) else None
    if isinstance(lines, list) and lines:
        return {"kind": "invalid", "message": "; ".join(map(_line, lines))}
    return {}


def _line(error: Any) -> str:
    """One mistake in a job file: where, and what."""
    if not isinstance(error, dict):
        return str(error)
    where = [f"line {error['line']}"] if error.get("line") else []
    where += [str(error["field"])] if error.get("field") else []
    message = str(error.get("message", ""))
    return f"{', '.join(where)}: {message}" if where else message


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 1.0
