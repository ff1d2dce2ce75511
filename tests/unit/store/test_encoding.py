from __future__ import annotations

import pytest

from roost.errors import InvalidSpec
from roost.store import StoreBroken
from roost.store.encoding import clean, from_json, to_json


def test_json_is_the_same_for_equal_values() -> None:
    assert (
        to_json("x", {"b": 1, "a": [1.5, None, "é\0"]}) == '{"a":[1.5,null,"\\u00e9\\u0000"],"b":1}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, object(), b"x"])
def test_what_json_has_no_word_for(value: object) -> None:
    with pytest.raises(InvalidSpec, match="job 7 cannot be written"):
        to_json("job 7", value)


def test_a_loop_is_refused() -> None:
    loop = list[object]()
    loop.append(loop)
    with pytest.raises(InvalidSpec):
        to_json("job 7", loop)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_json_that_was_damaged(text: str) -> None:
    with pytest.raises(StoreBroken, match="job 7 is damaged"):
        from_json("job 7", text)


def test_letters_that_no_database_keeps() -> None:
    assert clean("a\0b\ud800c😀é") == "a\ufffdb?c😀é"
    assert clean("plain") == "plain"
