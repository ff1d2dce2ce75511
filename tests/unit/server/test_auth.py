"""Tokens are looked up, remembered for a moment, and forgotten in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.worlds import looped

from roost.server.auth import Tokens, bearer
from roost.store.rows import Token, User


class Book:
    """Tokens that can be looked up, and how often that was done."""

    def __init__(self) -> None:
        self.known = {"good": (Token("tok-1", "ada", "", 0.0), User("ada"))}
        self.asked: list[str] = []
        self.now = 0.0

    def find(self, secret: str) -> tuple[Token, User] | None:
        self.asked.append(secret)
        return self.known.get(secret)

    async def read(self, call: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return call()

    def tokens(self) -> Tokens:
        return Tokens(self.find, self.read, 2.0, lambda: self.now)


@looped
async def test_one_look_serves_everybody_for_a_moment() -> None:
    book = Book()
    tokens = book.tokens()
    callers = await asyncio.gather(*(tokens.caller("good") for _ in range(50)))
    assert {caller.user for caller in callers if caller} == {"ada"}
    assert book.asked == ["good"]
    book.now = 1.9
    await tokens.caller("good")
    assert book.asked == ["good"]
    book.now = 2.0
    book.known.clear()
    assert await tokens.caller("good") is None
    assert book.asked == ["good", "good"]


@looped
async def test_a_revocation_here_counts_at_once() -> None:
    book = Book()
    tokens = book.tokens()
    assert await tokens.caller("good") is not None
    book.known.clear()
    tokens.forget()
    assert await tokens.caller("good") is None


@looped
async def test_a_flood_of_bad_tokens_needs_bounded_memory() -> None:
    book = Book()
    tokens = book.tokens()
    for number in range(5000):
        assert await tokens.caller(f"bad-{number}") is None
    assert len(tokens._known) <= 4096


@looped
async def test_what_cannot_be_a_token_is_not_even_looked_up() -> None:
    book = Book()
    tokens = book.tokens()
    for secret in ("", "x" * 1_000_000, "snowman \u2603"):
        assert await tokens.caller(secret) is None
    assert book.asked == []


@looped
async def test_secrets_are_not_kept() -> None:
    book = Book()
    tokens = book.tokens()
    await tokens.caller("good")
    assert "good" not in repr(vars(tokens))


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([(b"authorization", b"Bearer abc")], "abc"),
        ([(b"authorization", b"bearer  abc ")], "abc"),
        ([(b"authorization", b"Basic abc")], ""),
        ([(b"authorization", b"abc")], ""),
        ([], ""),
        ([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")], ""),
    ],
)
def test_one_bearer_header(headers: list[tuple[bytes, bytes]], secret: str) -> None:
    assert bearer(headers) == secret
