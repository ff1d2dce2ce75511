"""Permissions: one table of roles, and the mark that every route must carry.

A route declares what it needs with ``needs(Permission.X)`` among its dependencies. An app with a
route that does not is refused when it is made (``undeclared``). Which jobs a caller sees is decided
in ``visible``: a user sees the own ones, other roles all of them.
"""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from roost.server.auth import Caller
from roost.server.errors import HttpError
from roost.server.roles import ROLES, RoutePermission

#: Paths that answer without a token. Everything else is closed before it is even routed.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
#: The portal's page and files, which browsers get without a token, too.
PAGE_PATHS = frozenset({"/", "/login", "/assets/{path}"})
#: Where a token is handed in for a session.
LOGIN_PATH = "/api/v1/session"


class Needs:
    """A dependency that lets only callers with one permission through."""

    def __init__(self, permission: RoutePermission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> Caller | None:
        """The caller, if it may; None on open routes."""
        caller: Caller | None = request.scope.get("roost.caller")
        if self.permission is RoutePermission.OPEN:
            return caller
        if caller is None:
            raise HttpError(401, "unauthenticated", "this needs a token")
        if self.permission not in ROLES[caller.role]:
            raise HttpError(
                403,
                "forbidden",
                f"role {caller.role!r} lacks the permission {self.permission.value!r}",
                "ask an administrator",
            )
        return caller


def needs(permission: RoutePermission) -> Any:
    """Mark a route: only callers with that permission get in; gives the caller."""
    return Depends(Needs(permission))


def sees_all(caller: Caller) -> bool:
    """Whether a caller reads the jobs of all users."""
    return caller.role != "user"


def visible(caller: Caller, owner: str) -> bool:
    """Whether a caller may know of the jobs of an owner."""
    return sees_all(caller) or caller.user == owner


def declared(route: BaseRoute) -> RoutePermission | None:
    """The permission that a route asks for, if it asks for one."""
    if not isinstance(route, APIRoute):
        return None
    return _find(route.dependant)


def undeclared(app: FastAPI) -> list[str]:
    """The routes that ask for no permission, by path."""
    found = [route for route in app.routes if declared(route) is None]
    return [str(getattr(route, "path", route)) for route in found]


def _find(dependant: Dependant) -> RoutePermission | None:
    if isinstance(dependant.call, Needs):
        return dependant.call.permission
    for inner in dependant.dependencies:
        if (permission := _find(inner)) is not None:
            return permission
    return None
