"""Secrets do not get into what is said about a failure."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from roost.live.blots import blot

SECRETS = (
    "line1-canary\nline2-canary",
    "it's\tcanary",
    " canary-with-spaces ",
    'canary"quote',
    "q" * 300 + "canary",
    "größe-canary",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "written",
    [
        str,
        repr,
        json.dumps,
        lambda text: quote(text, safe=""),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: f"RuntimeError: {text.splitlines()[-1]}",
        lambda text: f"error: {text.strip()}!",
    ],
)
def test_a_secret_is_blotted_out_however_it_is_printed(secret: str, written: object) -> None:
    assert callable(written)
    text = f"before {written(secret)} after".encode()

    found = blot(text, [secret])

    assert b"canary" not in found
    assert base64.b64encode(secret.encode()) not in found
    assert found.startswith(b"before ")
    assert found.endswith(b" after")


def test_words_that_may_be_anybodys_stay() -> None:
    assert blot(b"a b c", ["a\nb\nc"]) == b"a b c"
