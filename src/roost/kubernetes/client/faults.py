"""What an API server's refusals mean to us.

    Expired       410: the version asked for is no longer known; list again
    Unpermitted   403 by the rules of access; it names the verb and the resource
    Disrupted     an eviction that a disruption budget does not allow now
    Retryable     429, 5xx, a timeout or a broken connection; ``after`` is the server's word

The rest are Roost's own errors: 404 NotFound, 409 Conflict, other 4xx InvalidSpec with the
server's sentence, 401 and other 403 Forbidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from roost.errors import (
    Conflict,
    Forbidden,
    InvalidSpec,
    NotFound,
    Retryable,
    RoostError,
)
from roost.kubernetes.client.kinds import ResourceKind

#: What a server is given to recover when it names no time itself.
AFTER_S = 1.0


class Expired(RoostError):
    """The version asked for is older than what the server remembers."""


class Unpermitted(Forbidden):
    """The rules of access give no right to this verb on this resource."""

    def __init__(self, verb: str, resource: str, namespace: str = "", said: str = "") -> None:
        where = f"in namespace {namespace!r}" if namespace else "in the whole cluster"
        tail = f" (the API server says: {said})" if said else ""
        super().__init__(f"no permission to {verb} {resource} {where}{tail}")
        self.verb, self.resource, self.namespace, self.said = verb, resource, namespace, said

    def __reduce__(self) -> tuple[type[Unpermitted], tuple[str, str, str, str]]:
        return Unpermitted, (self.verb, self.resource, self.namespace, self.said)


class Disrupted(Conflict):
    """A disruption budget does not allow this eviction now; perhaps ``after`` seconds from now."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class AccessRequest(NamedTuple):
    """What was asked of the server, in the words of its rules of access."""

    verb: str
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    sub: str = ""

    @property
    def resource(self) -> str:
        """The resource as permissions name it: ``pods/binding``, ``jobs.roost.dev/status``."""
        return f"{self.kind.resource}/{self.sub}" if self.sub else self.kind.resource

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource} {where}".rstrip()


def fault(
    asked: AccessRequest, code: int, status: Mapping[str, Any], after: str = ""
) -> RoostError:
    """The error that an answer with this code and body stands for."""
    said = str(status.get("message") or _phrase(code))
    match code:
        case HTTPStatus.NOT_FOUND:
            return NotFound(f"{asked}: {said}")
        case HTTPStatus.CONFLICT:
            return Conflict(f"{asked}: {said}")
        case HTTPStatus.GONE:
            return Expired(f"{asked}: {said}")
        case HTTPStatus.UNAUTHORIZED:
            return Forbidden(f"{asked}: the API server does not accept these credentials ({said})")
        case HTTPStatus.FORBIDDEN:
            return _forbidden(asked, said)
        case HTTPStatus.TOO_MANY_REQUESTS if _by_budget(asked, status):
            return Disrupted(f"{asked}: {said}", seconds(after, status))
        case HTTPStatus.INTERNAL_SERVER_ERROR if _by_budgets(asked, said):
            return Disrupted(f"{asked}: {said}", AFTER_S)
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.REQUEST_TIMEOUT:
            return Retryable(f"{asked}: {said}", seconds(after, status))
        case _ if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Retryable(f"{asked}: {said}", seconds(after, status))
        case _:
            return InvalidSpec(f"{asked}: {said}")


def seconds(after: str, status: Mapping[str, Any]) -> float:
    """When to ask again: of the header Retry-After, of the body, or a second."""
    details = status.get("details") or {}
    for given in (after, details.get("retryAfterSeconds")):
        try:
            return max(0.0, float(given or ""))
        except (TypeError, ValueError):
            continue  # nothing, or a date: an API server gives seconds
    return AFTER_S


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return f"status {code}"


def _forbidden(asked: AccessRequest, said: str) -> Forbidden:
    """Missing rights are told from refusals by quota, admission, or a namespace that goes."""
    if " cannot " in said or said == _phrase(HTTPStatus.FORBIDDEN):
        return Unpermitted(asked.verb, asked.resource, asked.namespace, said)
    return Forbidden(f"{asked}: {said}")


def _by_budget(asked: AccessRequest, status: Mapping[str, Any]) -> bool:
    """Whether a budget refuses, and not a server that has too much to do."""
    causes = (status.get("details") or {}).get("causes") or ()
    return asked.sub == "eviction" and any(
        cause.get("reason") == "DisruptionBudget" for cause in causes
    )


def _by_budgets(asked: AccessRequest, said: str) -> bool:
    """Two budgets on one pod are an error 500 in Kubernetes, and no time will mend it."""
    return asked.sub == "eviction" and "more than one PodDisruptionBudget" in said
