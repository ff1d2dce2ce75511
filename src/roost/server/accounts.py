"""Users and tokens. Users manage their own tokens, administrators all."""

from __future__ import annotations

import math
import os
import pwd
import time
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from roost.api.accounts import (
    BoundsView,
    CallerView,
    MountView,
    NewToken,
    TokenList,
    TokenView,
    UserList,
    UserView,
    UseView,
)
from roost.api.schema import encode, project
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import HttpError, answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.roles import ROLES, RoutePermission
from roost.store.rows import OPEN_STATES, JobQuery, Token, User

router = APIRouter(prefix="/api/v1", tags=["accounts"], route_class=CheckedRoute)

Self = Annotated[Caller, needs(RoutePermission.SELF)]
Reader = Annotated[Caller, needs(RoutePermission.ACCOUNTS_READ)]
Admin = Annotated[Caller, needs(RoutePermission.ACCOUNTS_WRITE)]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$")]
_MOST_TOKENS = 200


@router.get("/whoami", response_model=CallerView, responses=answers(), operation_id="whoami")
async def whoami(here: Here, caller: Self) -> Response:
    """The caller, what the role allows, how much the caller may have and has, and its mounts."""
    bounds, use = await bounds_of(here, caller.user)
    permissions = tuple(sorted(ROLES[caller.role]))
    usable = [one for one in here.options.mounts if one.is_for(caller.user)]
    view = project(
        CallerView,
        caller,
        permissions=permissions,
        bounds=bounds,
        use=use,
        mounts=tuple(project(MountView, one) for one in usable),
    )
    return json(encode(view))


async def bounds_of(here: Context, user: str) -> tuple[BoundsView | None, UseView | None]:
    """The bounds of a user, and what it has; None where there are none."""
    if here.cluster.bounds is None:
        return None, None
    told = here.cluster.bounds.shown(user)
    tokens = await here.read(lambda: here.cluster.store.accounts.tokens(user))
    alive = sum(_alive(token) for token in tokens if token.kind == "token")
    return (
        BoundsView(**told["bounds"], tokens=_MOST_TOKENS),
        UseView(**told["use"], tokens=alive),
    )


@router.get("/users", response_model=UserList, responses=answers(), operation_id="list_users")
async def list_users(here: Here, _caller: Reader) -> Response:
    """All users of this server."""
    users = await here.read(here.cluster.store.accounts.users)
    return json({"items": [encode(project(UserView, user)) for user in users]})


@router.post(
    "/users",
    status_code=201,
    response_model=UserView,
    responses=answers(409, 507),
    operation_id="add_user",
)
async def add_user(here: Here, caller: Admin, body: requests.AddUser) -> Response:
    """Add a user; a token is made apart from that."""
    _check_account(body.unix)
    user = User(**body.model_dump())
    await here.read(lambda: here.cluster.store.accounts.add_user(user, actor=caller.user))
    await here.cluster.user_changed(user, caller.user)
    return json(encode(project(UserView, user)), 201)


@router.patch(
    "/users/{user}",
    response_model=UserView,
    responses=answers(404, 409, 507),
    operation_id="change_user",
)
async def change_user(here: Here, caller: Admin, user: Name, body: requests.ChangeUser) -> Response:
    """Change a role, the Unix account or bounds, or switch a user off with all tokens and jobs."""
    store = here.cluster.store
    known = await here.read(lambda: store.accounts.user(user))
    if known is None:
        raise NotFound(f"no user {user!r}")
    _check_account(body.unix or "")
    changed = replace(known, **body.given())
    if user == caller.user and (changed.role, changed.active) != (known.role, known.active):
        raise Conflict("an administrator cannot give up the own role; another one can")
    await here.read(lambda: store.accounts.set_user(changed, actor=caller.user))
    here.tokens.forget()
    await here.streams.check()
    await here.cluster.user_changed(changed, caller.user)
    return json(encode(project(UserView, changed)))


@router.delete(
    "/users/{user}",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409, 507),
    operation_id="delete_user",
)
async def delete_user(
    here: Here, caller: Admin, user: Name, *, cancel_jobs: bool = False
) -> Response:
    """Forget a user with all tokens; jobs that are over stay, under its name.

    Refused while it has others, unless they are to be cancelled.
    """
    accounts = here.cluster.store.accounts
    known = await here.read(lambda: accounts.user(user))
    if known is None:
        raise NotFound(f"no user {user!r}")
    if user == caller.user:
        raise Conflict("an administrator cannot delete the own account; another one can")
    query = JobQuery(states=OPEN_STATES, users=(user,), limit=1)
    count = (await here.read(lambda: here.cluster.store.jobs.find(query))).total
    if count and not cancel_jobs:
        raise Conflict(
            f"{user} has {count} jobs that are not over: wait for them, or cancel them with it "
            f"(roost users delete {user} --cancel-jobs)"
        )
    # Switched off first: nothing new comes in while its jobs are cancelled.
    switched_off = replace(known, active=False)
    await here.read(lambda: accounts.set_user(switched_off, actor=caller.user))
    here.tokens.forget()
    await here.cluster.user_changed(switched_off, caller.user)
    await here.read(lambda: accounts.delete_user(user, actor=caller.user))
    here.tokens.forget()
    await here.streams.check()
    return Response(status_code=204)


def _check_account(unix: str) -> None:
    """Refuse an account that is not there, where jobs would run under it."""
    if not unix or os.geteuid() != 0:
        return
    try:
        pwd.getpwnam(unix)
    except KeyError:
        raise InvalidSpec(f"unix: this machine has no account {unix!r}") from None


@router.get("/tokens", response_model=TokenList, responses=answers(404), operation_id="list_tokens")
async def list_tokens(
    here: Here,
    caller: Self,
    user: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The caller's tokens, or those of another user for an administrator."""
    owner = await _owner(here, caller, user)
    tokens = await here.read(lambda: here.cluster.store.accounts.tokens(owner))
    return json({"items": [encode(project(TokenView, token)) for token in tokens]})


@router.post(
    "/tokens",
    status_code=201,
    response_model=NewToken,
    responses=answers(404, 409, 507),
    operation_id="add_token",
)
async def add_token(here: Here, caller: Self, body: requests.AddToken) -> Response:
    """Make a token; its secret is told in this answer and never again.

    It expires no later than the one it was made with, and is revoked with it: lending one does not
    give it away.
    """
    store = here.cluster.store
    owner = await _owner(here, caller, body.user or "")
    alive = [
        token
        for token in await here.read(lambda: store.accounts.tokens(owner))
        if _alive(token) and token.kind == "token"
    ]
    if len(alive) >= _MOST_TOKENS:
        raise Conflict(f"{owner} has {len(alive)} tokens; revoke some first")
    end = await _end_of(here, caller)
    ends = [] if end is None else [end]
    if body.expires_in_s is not None:
        ends.append(time.time() + body.expires_in_s)  # by the clock that the store goes by
    token, secret = await here.read(
        lambda: store.accounts.add_token(
            owner, body.label, min(ends, default=None), parent=caller.root, actor=caller.user
        )
    )
    return json(encode(project(NewToken, token, secret=secret)), 201)


async def _end_of(here: Context, caller: Caller) -> float | None:
    """Until when the token works that others are made with; of a session, the one it began with."""
    if not caller.session:
        return caller.expires_at
    own = await here.read(lambda: here.cluster.store.accounts.tokens(caller.user))
    return next((one.expires_at for one in own if one.id == caller.root), caller.expires_at)


def _alive(token: Token) -> bool:
    return token.revoked_at is None and (token.expires_at or math.inf) > time.time()


@router.delete(
    "/tokens/{token}",
    response_model=TokenView,
    responses=answers(404, 507),
    operation_id="revoke_token",
)
async def revoke_token(
    here: Here,
    caller: Self,
    token: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,80}$")],
) -> Response:
    """Make a token useless, and all that were made with it; their open streams end."""
    store = here.cluster.store
    if RoutePermission.ACCOUNTS_WRITE not in ROLES[caller.role]:
        own = await here.read(lambda: store.accounts.tokens(caller.user))
        if token not in {one.id for one in own}:
            raise NotFound(f"no token {token!r}")
    revoked = await here.read(lambda: store.accounts.revoke_token(token, actor=caller.user))
    here.tokens.forget()
    await here.streams.check()
    return json(encode(project(TokenView, revoked)))


async def _owner(here: Context, caller: Caller, user: str) -> str:
    """The user of the tokens that are meant; raises HttpError if the caller may not see them."""
    if not user or user == caller.user:
        return caller.user
    if RoutePermission.ACCOUNTS_WRITE not in ROLES[caller.role]:
        raise HttpError(403, "forbidden", "the tokens of others are for administrators")
    if await here.read(lambda: here.cluster.store.accounts.user(user)) is None:
        raise NotFound(f"no user {user!r}")
    return user
