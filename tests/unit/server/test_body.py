"""Bodies that would hurt are refused, quickly; others pass as they are."""

from __future__ import annotations

import time

import pytest
from starlette.exceptions import HTTPException

from roost.server.body import checked


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, null, true, "x\\u00e9"]}', '"[[[[["', "[]"])
def test_json_passes(text: str) -> None:
    assert checked(text.encode()) is not None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 10_000 + b"]" * 10_000, "nested deeper"),
        (b'{"a":' * 10_000, "nested deeper"),
        (b"[" + b"1," * 5_000_000 + b"1]", "parts"),
        (b"[" + b'"",' * 3_000_000 + b'""]', "parts"),
        (b'"' + b'\\"' * 4_000_000, "not JSON"),
        (b'"\xff\xfe"', "not UTF-8"),
        # In these, a sign may hold the byte of a quote, behind which nothing would be counted.
        (('["\u2200",' + "[" * 900 + "]" * 900 + "]").encode("utf-16-le"), "not UTF-8|not JSON"),
        ("{}".encode("utf-16"), "not UTF-8"),
        ("{}".encode("utf-16-le"), "not JSON"),
        ("{}".encode("utf-32-be"), "not JSON"),
        ("{}".encode("utf-8-sig"), "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "no JSON number"),
        (b"[-Infinity]", "no JSON number"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "the key 'b' is given twice"),
        (b'"\\u0000"', "zero byte"),
        (b'{"\\ud800": 1}', "half a character"),
        (b"9" * 100_000, "not JSON"),
    ],
)
def test_what_would_hurt_is_refused_quickly(body: bytes, why: str) -> None:
    began = time.process_time()
    with pytest.raises(HTTPException, match=why) as refused:
        checked(body)
    assert refused.value.status_code == 422
    assert time.process_time() - began < 1.0
