"""Quantities are exact integers, rounded against whoever would promise too much."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import InvalidSpec
from roost.kubernetes.objects import quantities


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("100m", 100),
        ("2", 2000),
        ("0.5", 500),
        (".5", 500),
        ("1.", 1000),
        ("+1", 1000),
        ("0", 0),
        ("-0", 0),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1e-3", 1),
        ("5E-1", 500),
        ("2k", 2_000_000),
        ("1u", 1),
        ("999999n", 1),
        ("1000001n", 2),
        ("0.0001", 1),
        (2, 2000),
        (0.1, 100),
    ],
)
def test_thousandths_are_rounded_up(text: Any, milli: int) -> None:
    assert quantities.milli(text, "cpu") == milli


@pytest.mark.parametrize(
    ("text", "up", "down"),
    [
        ("1.5Gi", 1536, 1536),
        ("1Gi", 1024, 1024),
        ("1G", 954, 953),
        ("1Ki", 1, 0),
        ("129e6", 124, 123),
        ("1Ti", 1 << 20, 1 << 20),
        ("0.5Mi", 1, 0),
        ("134217728", 128, 128),
        ("128974848000m", 123, 123),
        ("1Ei", 1 << 40, 1 << 40),
    ],
)
def test_mebibytes_are_rounded_for_the_one_who_asks(text: str, up: int, down: int) -> None:
    assert quantities.mib(text, "memory") == up
    assert quantities.mib(text, "memory", down=True) == down


@pytest.mark.parametrize(
    "senseless",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        ".",
        "m",
        "E",
        "1e",
        "1K",
        "1ki",
        "1mi",
        "1GiB",
        "1,5",
        "0x10",
        "1_000",
        "-1",
        "-1m",
        "NaN",
        "inf",
        "1e400",
        "1e99",
        "1e-999",
        "9223372036854775808",
        "8Ei",
        "٣",
        "1٣",
        "१m",
        "²",
        "1" * 100_000,
        "0." + "0" * 100_000,
        None,
        True,
        float("nan"),
        float("inf"),
        -1,
        1 << 80,
        [],
        {},
        b"1",
    ],
)
def test_what_is_no_quantity_is_refused_by_name(senseless: Any) -> None:
    for read in (quantities.milli, quantities.whole, quantities.mib):
        with pytest.raises(InvalidSpec, match="memory of a container must be a quantity") as error:
            read(senseless, "memory of a container")
        assert len(str(error.value)) < 250


_UNITS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "e2": Fraction(100),
    "E-2": Fraction(1, 100),
}


@given(st.integers(0, 10**6), st.text("0123456789", max_size=12), st.sampled_from(sorted(_UNITS)))
def test_every_quantity_equals_its_fraction(ones: int, parts: str, unit: str) -> None:
    text = f"{ones}.{parts}{unit}"
    exact = Fraction(f"{ones}.{parts or '0'}") * _UNITS[unit]

    assert quantities.milli(text, "q") == ceil(exact * 1000)
    assert quantities.whole(text, "q") == ceil(exact)
    assert quantities.whole(text, "q", down=True) == floor(exact)
    assert quantities.mib(text, "q") == ceil(exact / 2**20)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.booleans()))
def test_nothing_but_a_refusal_comes_of_nonsense(value: Any) -> None:
    with suppress(InvalidSpec):
        assert quantities.whole(value, "q") >= 0
