"""Sessions of browsers: logging in with a token, logging out, and links that log in once.

A session is a token that was made with the one that somebody logged in with, and lives in a cookie
alone. So roles, revoking and the end of users hold for it as for any token.
"""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from roost import __version__
from roost.api.accounts import LoginLinkView, SessionView
from roost.api.schema import encode
from roost.errors import Conflict
from roost.server import login_links, requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.cookies import PAGE_HEADER, cookie
from roost.server.errors import HttpError, answers
from roost.server.jobs import Here, json
from roost.server.login_links import LinkOwner
from roost.server.permissions import needs
from roost.server.roles import ROLES, RoutePermission

router = APIRouter(prefix="/api/v1", tags=["sessions"], route_class=CheckedRoute)

Self = Annotated[Caller, needs(RoutePermission.SELF)]
OpenToAll = Annotated[Caller | None, needs(RoutePermission.OPEN)]


@router.post(
    "/session",
    status_code=201,
    response_model=SessionView,
    responses=answers(409, 507),
    operation_id="log_in",
)
async def log_in(
    request: Request, here: Here, _caller: OpenToAll, body: requests.LogIn
) -> Response:
    """Log a browser in with a token: the answer sets the cookie of a session."""
    headers = request.scope["headers"]
    if any(name == b"origin" for name, _ in headers) and not any(
        name == PAGE_HEADER for name, _ in headers
    ):  # a page of another port of this host could log its own user in
        raise HttpError(403, "forbidden", "to log in, a page sends the header X-Roost-Request")
    caller = await here.tokens.caller(body.token.strip())
    if caller is None or caller.session:
        raise HttpError(401, "unauthenticated", "this token does not open this server")
    made, set_cookie = await begin(request, here, LinkOwner(caller.user, caller.token))
    answer = json(encode(_view(here, made)), 201)
    answer.headers["Set-Cookie"] = set_cookie
    return answer


@router.get("/session", response_model=SessionView, responses=answers(), operation_id="get_session")
async def get_session(here: Here, caller: Self) -> Response:
    """Who is logged in, and what the role allows."""
    return json(encode(_view(here, caller)))


@router.delete(
    "/session",
    status_code=204,
    response_class=Response,
    responses=answers(507),
    operation_id="log_out",
)
async def log_out(
    request: Request,
    here: Here,
    caller: Self,
    everywhere: Annotated[bool, Query()] = False,  # noqa: FBT002 - a parameter of the address
) -> Response:
    """End this session, or all sessions of this user, with their open streams."""
    accounts = here.cluster.store.accounts
    only = "" if everywhere else caller.token
    if everywhere or caller.session:
        await here.read(lambda: accounts.end_sessions(caller.user, only, actor=caller.user))
        here.tokens.forget()
        await here.streams.check()
    answer = Response(status_code=204)
    answer.headers["Set-Cookie"] = cookie(request.scope, "", 0.0)
    return answer


@router.post(
    "/session/links",
    status_code=201,
    response_model=LoginLinkView,
    responses=answers(409),
    operation_id="add_login_link",
)
async def add_login_link(here: Here, caller: Self) -> Response:
    """A link that logs a browser in as the caller: it works once, and for some minutes."""
    path = here.links.make(LinkOwner(caller.user, caller.root))
    return json(encode(LoginLinkView(path, time.time() + login_links.LASTS_S)), 201)


async def begin(request: Request, here: Context, owner: LinkOwner) -> tuple[Caller, str]:
    """A new session, and its cookie; raises Conflict where the token is not valid any more."""
    accounts, agent = here.cluster.store.accounts, request.headers.get("user-agent", "")
    token, secret = await here.read(
        lambda: accounts.add_session(
            owner.user, owner.token, time.time() + here.options.session_s, _browser(agent)
        )
    )
    caller = await here.tokens.caller(secret)
    if caller is None:
        raise Conflict("the token that this was made with is not valid any more")
    lasts_s = (token.expires_at or time.time()) - time.time()
    return caller, cookie(request.scope, secret, lasts_s)


def _browser(agent: str) -> str:
    """What people call a browser, for the list of sessions."""
    known = {"Edg/": "Edge", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
    return next((name for word, name in known.items() if word in agent), "browser")


def _view(here: Context, caller: Caller) -> SessionView:
    return SessionView(
        user=caller.user,
        role=caller.role,  # type: ignore[arg-type]
        permissions=tuple(sorted(ROLES[caller.role])),
        token=caller.token,
        expires_at=caller.expires_at,
        via="session" if caller.session else "token",
        version=__version__,
        assets=here.assets.digest,
    )
