"""Links that log a browser in: each works once, for a few minutes, and is kept here alone.

A code is random and kept as a hash. A link stands for the token it was made with: where that one is
revoked meanwhile, no session begins.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from roost.errors import Conflict

#: How long a link works, in seconds.
LASTS_S = 900.0
_MOST = 1000
_MOST_PER_USER = 100


class LinkOwner(NamedTuple):
    """Who is logged in by a link, and the token that it was made with."""

    user: str
    token: str


class LoginLinks:
    """The links that were not used yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[bytes, tuple[float, LinkOwner]] = {}

    def make(self, owner: LinkOwner) -> str:
        """The path of a new link; raises Conflict where there are too many."""
        now = self._clock()
        self._made = {key: one for key, one in self._made.items() if one[0] > now}
        own = sum(one.user == owner.user for _, one in self._made.values())
        if own >= _MOST_PER_USER or len(self._made) >= _MOST:
            raise Conflict("too many links to log in were made and not used; wait some minutes")
        code = secrets.token_urlsafe(24)
        self._made[_key(code)] = (now + LASTS_S, owner)
        return f"/login?once={code}"

    def take(self, code: str) -> LinkOwner | None:
        """Whose link that is; it works no more. None for one that does not work."""
        found = self._made.pop(_key(code), None)
        return None if found is None or found[0] <= self._clock() else found[1]


def _key(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "replace")).digest()
