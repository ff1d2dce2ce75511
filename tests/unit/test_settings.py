"""Settings: ``key=value,...`` means what the fields of a dataclass say, or is refused in a line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NewType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import InvalidSpec, NotFound, RoostError
from roost.policies import names, parameters, policy
from roost.settings import build, seconds

Name = NewType("Name", str)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Everything:
    """One field of every kind that can be typed."""

    whole: int = 0
    number: float = 0.0
    flag: bool = False
    text: str = ""
    name: Name = Name("")
    colour: Colour = Colour.RED
    loose: Colour | str = "x"
    wait_s: float = 0.0
    maybe: float | None = 1.0
    maybe_s: float | None = None
    limits: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    waits_s: tuple[float, ...] = ()
    weights: tuple[tuple[int, float], ...] = ()
    inner: int = field(default=7, init=False)
    shared: ClassVar[int] = 9

    def __post_init__(self) -> None:
        """Refuse what the type does not rule out."""
        if self.whole == 13:
            raise InvalidSpec("whole must not be 13")
        if self.whole == 14:
            raise ValueError("not 14 either")


class Plain:
    """No dataclass."""


@dataclass
class Strange:
    """Fields that cannot be typed, and one without a default."""

    needed: int
    table: dict[str, int] = field(default_factory=dict)


def made(text: str) -> Everything:
    return build(Everything, "thing", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Everything()),
        (",,", Everything()),
        ("whole=-3", Everything(whole=-3)),
        (" whole = 3 , number = 0.5 ", Everything(whole=3, number=0.5)),
        ("number=1e3", Everything(number=1000)),
        ("number=-inf", Everything(number=-math.inf)),
        ("flag=yes", Everything(flag=True)),
        ("flag=True", Everything(flag=True)),
        ("flag=0", Everything(flag=False)),
        ("text=a=b", Everything(text="a=b")),
        ("name=vision", Everything(name=Name("vision"))),
        ("colour=blue", Everything(colour=Colour.BLUE)),
        ("loose=blue", Everything(loose=Colour.BLUE)),
        ("wait_s=90", Everything(wait_s=90)),
        ("wait_s=1.5h", Everything(wait_s=5400)),
        ("wait_s=inf", Everything(wait_s=math.inf)),
        ("maybe=none", Everything(maybe=None)),
        ("maybe_s=2d", Everything(maybe_s=172800)),
        ("limits=60", Everything(limits=(60,))),
        ("limits=60/0.5/inf", Everything(limits=(60, 0.5, math.inf))),
        ("sizes=1/2/4", Everything(sizes=(1, 2, 4))),
        ("waits_s=1m/1h", Everything(waits_s=(60, 3600))),
        ("weights=1:0.5/2:3", Everything(weights=((1, 0.5), (2, 3)))),
    ],
)
def test_values_are_what_the_fields_say(text: str, expected: Everything) -> None:
    assert made(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("whole=x", "parameter 'whole' of thing must be a whole number, got 'x'"),
        ("whole=1.5", "must be a whole number, got '1.5'"),
        ("whole=nan", "must be a whole number, got 'nan'"),
        ("whole=" + "9" * 5000, "must be a whole number"),
        ("number=nan", "parameter 'number' of thing must be a number, got 'nan'"),
        ("number=1,5", "unknown parameter of thing: '5'"),
        ("flag=maybe", "must be yes or no, got 'maybe'"),
        ("flag=none", "must be yes or no, got 'none'"),
        ("colour=green", "must be one of red, blue, got 'green'"),
        ("wait_s=-1", "must be a duration such as 90s, 15m, 2h or 1d, got '-1'"),
        ("wait_s=nan", "must be a duration"),
        ("wait_s=5y", "must be a duration"),
        ("wait_s=s", "must be a duration"),
        ("wait_s=none", "must be a duration"),
        ("maybe=x", "must be a number, got 'x'"),
        ("limits=1/x", "must be a list such as 1/2/3 of a number, got '1/x'"),
        ("limits=1//2", "must be a list such as 1/2/3 of a number"),
        ("limits=1/nan", "must be a list such as 1/2/3 of a number"),
        ("waits_s=1/-2", "must be a list such as 1/2/3 of a duration"),
        ("weights=1/2", "must be a list such as 1:2/3:4 of a whole number and a number"),
        ("weights=1:2:3", "must be a list such as 1:2/3:4"),
        ("weights=1.5:2", "must be a list such as 1:2/3:4"),
        ("whole=", "parameter 'whole' of thing needs a value: whole=..."),
        ("whole", "parameter 'whole' of thing needs a value: whole=..."),
        ("whole=1,whole=2", "parameter 'whole' of thing is given twice"),
        ("whole=13", "whole must not be 13"),
        ("whole=14", "thing: not 14 either"),
    ],
)
def test_what_a_field_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(RoostError) as caught:
        made(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("wohle=1", "unknown parameter of thing: 'wohle'; did you mean 'whole'?"),
        ("=1", "unknown parameter of thing: ''"),
        ("Whole=1", "did you mean 'whole'?"),
        ("inner=1", "unknown parameter of thing: 'inner'"),
        ("shared=1", "unknown parameter of thing: 'shared'"),
        ("__class__=1", "unknown parameter of thing: '__class__'"),
    ],
)
def test_an_unknown_key_names_the_nearest(text: str, says: str) -> None:
    with pytest.raises(NotFound) as caught:
        made(text)
    assert says in str(caught.value)


def test_what_is_given_cannot_be_set() -> None:
    assert build(Everything, "thing", "whole=1", text="given").text == "given"
    with pytest.raises(NotFound, match="'text'"):
        build(Everything, "thing", "text=x", text="given")


def test_a_class_without_fields_has_no_parameters() -> None:
    assert isinstance(build(Plain, "plain", ""), Plain)
    with pytest.raises(NotFound, match=r"unknown parameter of plain: 'x'; one of: \(none\)"):
        build(Plain, "plain", "x=1")


def test_fields_that_cannot_be_typed_and_missing_ones_are_named() -> None:
    with pytest.raises(InvalidSpec, match="'table' of strange must be dict"):
        build(Strange, "strange", "needed=1,table=x")
    with pytest.raises(InvalidSpec, match=r"strange: .*'needed'"):
        build(Strange, "strange", "")


@given(
    st.builds(
        Everything,
        whole=st.integers(-(10**9), 10**9).filter(lambda n: n not in (13, 14)),
        number=st.floats(allow_nan=False),
        flag=st.booleans(),
        text=st.text(st.characters(codec="ascii", exclude_characters=",\x00"), min_size=1).filter(
            lambda text: text == text.strip()
        ),
        colour=st.sampled_from(Colour),
        wait_s=st.floats(0, allow_nan=False),
        maybe=st.none() | st.floats(allow_nan=False),
        limits=st.lists(st.floats(allow_nan=False), min_size=1).map(tuple),
        weights=st.lists(st.tuples(st.integers(1, 99), st.floats(allow_nan=False)), min_size=1).map(
            tuple
        ),
    )
)
def test_what_is_written_is_read_back(thing: Everything) -> None:
    text = ",".join(
        [
            f"whole={thing.whole}",
            f"number={thing.number!r}",
            f"flag={thing.flag}",
            f"text={thing.text}",
            f"colour={thing.colour.value}",
            f"wait_s={thing.wait_s!r}",
            f"maybe={thing.maybe!r}",
            f"limits={'/'.join(map(repr, thing.limits))}",
            f"weights={'/'.join(f'{size}:{weight!r}' for size, weight in thing.weights)}",
        ]
    )
    assert made(text) == thing


@given(st.text() | st.from_regex(r"((whole|wait_s|limits|weights|flag|loose)=[^,]*,?)*"))
def test_any_text_is_taken_or_refused_in_one_line(text: str) -> None:
    try:
        made(text)
    except RoostError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - most texts are refused


@given(
    st.floats(0, 1e6, allow_nan=False),
    st.sampled_from([("", 1), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("w", 604800)]),
)
def test_durations_have_units(value: float, unit: tuple[str, int]) -> None:
    letter, factor = unit
    assert seconds(f"{value!r}{letter}") == value * factor
    assert seconds(f"{value!r}{letter.upper()}") == value * factor


@pytest.mark.parametrize("text", ["", "s", "m", "-1", "-1h", "nan", "nand", "1y", "h1", "1:30"])
def test_what_is_no_duration_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S|^$"):
        seconds(text)


@pytest.mark.parametrize("name", names())
def test_every_policy_can_be_given_its_own_defaults(name: str) -> None:
    def shown(value: object) -> str:
        return "/".join(map(repr, value)) if isinstance(value, tuple) else str(value)

    typed = ",".join(f"{key}={shown(value)}" for key, value in parameters(name).items())
    assert policy(f"{name}:{typed}") == policy(name)
