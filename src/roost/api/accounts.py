"""Users, tokens, and the server itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from roost.api.schema import WireView

RoleName = Literal["admin", "user", "viewer"]


@dataclass(frozen=True, slots=True)
class BoundsView(WireView):
    """The most that a user may have: jobs that are not over, bytes on the disk, valid tokens.

    ``null``: as much as there is. At ``disk_bytes`` nothing new is taken, at ``disk_max_bytes``
    jobs that still write are stopped.
    """

    jobs: int
    disk_bytes: int | None
    disk_max_bytes: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class UseView(WireView):
    """What a user has: jobs that are not over, bytes on the disk and in what, valid tokens."""

    jobs: int
    disk_bytes: int
    runs_bytes: int
    snapshots_bytes: int
    sent_bytes: int
    tokens: int


@dataclass(frozen=True, slots=True)
class MountView(WireView):
    """A folder of the server's machine that jobs may use by its name."""

    name: str
    path: str
    readonly: bool
    queues: tuple[str, ...] = field(
        default=(), metadata={"description": "For jobs in these queues; in any if empty."}
    )


@dataclass(frozen=True, slots=True)
class CallerView(WireView):
    """The caller; ``bounds`` and ``use`` where the server keeps users."""

    user: str
    role: RoleName
    unix: str
    token: str
    expires_at: float | None
    permissions: tuple[str, ...]
    bounds: BoundsView | None = None
    use: UseView | None = None
    mounts: tuple[MountView, ...] = ()


@dataclass(frozen=True, slots=True)
class UserView(WireView):
    """A user of the server; bounds that are ``null`` are those of all users."""

    name: str
    role: RoleName
    unix: str
    active: bool
    jobs: int | None = None
    disk_bytes: int | None = None
    disk_max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UserList(WireView):
    """All users of the server."""

    items: tuple[UserView, ...]


@dataclass(frozen=True, slots=True)
class TokenView(WireView):
    """A token without its text, which is shown once. ``parent``: the token that made it.

    A token of the kind *session* lives in the cookie of a browser.
    """

    id: str
    user: str
    label: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    parent: str | None
    kind: Literal["token", "session"] = "token"


@dataclass(frozen=True, slots=True)
class TokenList(WireView):
    """The tokens of one user."""

    items: tuple[TokenView, ...]


@dataclass(frozen=True, slots=True)
class NewToken(TokenView):
    """A token that was just made; ``secret`` is its text, shown this once."""

    secret: str = ""


@dataclass(frozen=True, slots=True)
class SessionView(WireView):
    """Who is logged in, by a browser's session or by a token; ``token`` is its id.

    ``version`` and ``assets`` are of the server: with another digest, pages are to be reloaded.
    """

    user: str
    role: RoleName
    permissions: tuple[str, ...]
    token: str
    expires_at: float | None
    via: Literal["session", "token"]
    version: str
    assets: str


@dataclass(frozen=True, slots=True)
class LoginLinkView(WireView):
    """A link that logs a browser in once: its path on this server, and until when it works."""

    path: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class HealthView(WireView):
    """Whether the server works.

    ``policy`` is empty, or says that the policy fails and jobs are started in order of arrival;
    ``clock`` that the times of the journal are far ahead of the machine's clock.
    """

    ok: bool
    why: str
    version: str
    policy: str = ""
    clock: str = ""
