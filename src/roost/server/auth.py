"""Callers by their bearer tokens, looked up in the store and remembered for a moment.

What is remembered is kept under the SHA-256 of a token, never the token itself. A token that was
revoked, that ran out or that belongs to a user who was switched off stops working when its entry
is too old (``ServerOptions.token_cache_s``), and at once where this server revoked it (``forget``).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from roost.store.accounts import SESSION

if TYPE_CHECKING:
    from roost.store.rows import Token, User

T = TypeVar("T")

#: Runs a blocking call in one of a bounded number of threads.
Read = Callable[[Callable[[], Any]], Awaitable[Any]]

_LONGEST = 256
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a valid token. ``key`` is the token's hash, ``expires_at`` its end.

    ``session``: the token lives in a browser's cookie. ``root`` is the token that others are made
    with: of a session the one that it began with.
    """

    user: str
    role: str
    unix: str
    token: str
    key: bytes
    expires_at: float | None = None
    session: bool = False
    parent: str = ""

    @property
    def root(self) -> str:
        """The token that what this caller makes is made with."""
        return self.parent if self.session else self.token


class Tokens:
    """Finds callers by their tokens."""

    def __init__(
        self,
        find: Callable[[str], tuple[Token, User] | None],
        read: Read,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._read, self._ttl_s, self._clock = find, read, ttl_s, clock
        self._known: OrderedDict[bytes, tuple[float, Caller | None]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[Caller | None]] = {}

    async def caller(self, secret: str) -> Caller | None:
        """The caller with that token; None if it is not valid."""
        if not secret or len(secret) > _LONGEST or not secret.isascii():
            return None
        key = hashlib.sha256(secret.encode()).digest()
        known = self._known.get(key)
        if known is not None and self._clock() - known[0] < self._ttl_s:
            return known[1]
        asking = self._asking.get(key)
        if asking is None:  # many requests of one token at once ask once
            asking = self._asking[key] = asyncio.ensure_future(self._ask(key, secret))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, key: bytes, secret: str) -> Caller | None:
        asked_at = self._clock()  # the answer is as old as the question
        found: tuple[Token, User] | None = await self._read(lambda: self._find(secret))
        caller = None
        if found is not None:
            token, user = found
            caller = Caller(
                user.name,
                user.role,
                user.unix,
                token.id,
                key,
                token.expires_at,
                token.kind == "session",
                token.parent or "",
            )
        self._known[key] = (asked_at, caller)
        self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return caller

    def forget(self) -> None:
        """Ask the store again for all tokens: an account or a token was changed here."""
        self._known.clear()


def bearer(headers: list[tuple[bytes, bytes]]) -> str:
    """The token in a request's headers; empty if there is none, or more than one.

    The secret of a session is none: it counts in its cookie alone.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) != 1:
        return ""
    scheme, _, secret = found[0].decode("latin-1").partition(" ")
    secret = secret.strip()
    return secret if scheme.lower() == "bearer" and not secret.startswith(SESSION) else ""
