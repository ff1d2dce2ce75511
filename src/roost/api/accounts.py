"""Users, tokens, and the server itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roost.api.schema import WireView

RoleName = Literal["admin", "user", "viewer"]


@dataclass(frozen=True, slots=True)
class CallerView(WireView):
    """The caller."""

    user: str
    role: RoleName
    unix: str
    token: str
    expires_at: float | None
    permissions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserView(WireView):
    """A user of the server."""

    name: str
    role: RoleName
    unix: str
    active: bool


@dataclass(frozen=True, slots=True)
class UserList(WireView):
    """All users of the server."""

    items: tuple[UserView, ...]


@dataclass(frozen=True, slots=True)
class TokenView(WireView):
    """A token without its text, which is shown once. ``parent``: the token that made it."""

    id: str
    user: str
    label: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    parent: str | None


@dataclass(frozen=True, slots=True)
class TokenList(WireView):
    """The tokens of one user."""

    items: tuple[TokenView, ...]


@dataclass(frozen=True, slots=True)
class NewToken(TokenView):
    """A token that was just made; ``secret`` is its text, shown this once."""

    secret: str


@dataclass(frozen=True, slots=True)
class HealthView(WireView):
    """Whether the server works.

    ``policy`` is empty, or says that the policy fails and jobs are started in order of arrival.
    """

    ok: bool
    why: str
    version: str
    policy: str = ""
