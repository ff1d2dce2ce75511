"""Records written in place: the newest whole one counts, whatever was torn."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.engines.local.shim import slot_file, stdlib_subset

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    folder = os.open(tmp_path, os.O_RDONLY)
    fd = slot_file.create("it.json", folder)
    yield fd
    os.close(fd)
    os.close(folder)


def test_the_newest_record_counts(fd: int) -> None:
    assert slot_file.read(fd) is None
    for number in range(5):
        slot_file.write(fd, {"number": number})
        assert slot_file.read(fd) == {"number": number}
    assert os.fstat(fd).st_size == 2 * slot_file.PAGE


@pytest.mark.parametrize("place", [0, 4, 12, 25])
def test_a_torn_write_leaves_the_one_before(fd: int, place: int) -> None:
    slot_file.write(fd, {"number": 1})
    slot_file.write(fd, {"number": 2})  # the second record is in the first slot
    byte = os.pread(fd, 1, place)
    os.pwrite(fd, bytes([byte[0] ^ 1]), place)

    found = slot_file.read(fd)

    assert found == {"number": 1}
    slot_file.write(fd, {"number": 3})
    assert slot_file.read(fd) == {"number": 3}


def test_what_does_not_fit_is_refused(fd: int) -> None:
    with pytest.raises(ValueError, match="in a slot of 4096"):
        slot_file.write(fd, {"text": "x" * 5000})


@given(JSON)
def test_the_light_json_is_json(value: object) -> None:
    assert same(json.loads(stdlib_subset.dumps(value)), value)
    assert same(stdlib_subset.loads(json.dumps(value)), value)


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"a" 1}'])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any will do
        stdlib_subset.loads(text)


def test_ignoring_lets_other_errors_through() -> None:
    with stdlib_subset.ignoring(KeyError, OSError):
        raise FileNotFoundError
    with pytest.raises(ValueError, match="other"), stdlib_subset.ignoring(KeyError):
        raise ValueError("other")


def same(one: object, other: object) -> bool:
    """Equal, where NaN is equal to itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other
