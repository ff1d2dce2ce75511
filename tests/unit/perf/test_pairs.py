"""Tables of pairs: what a neighbour takes, and what cannot be."""

from __future__ import annotations

import math

import pytest

from roost.errors import Fatal, InvalidSpec
from roost.perf.pairs import Pairs
from roost.perf.speed import Speed
from roost.testing.builders import node, shared, spec

TABLE = Pairs(
    {
        "k80": {"lm": {"gan": 0.25}, "gan": {"lm": 0.5}},
        "V100": {"lm": {"gan": 0.5, "lm": 0.6, "huge": 0.0}, "gan": {"lm": 0.9}, "huge": {"lm": 0}},
    }
)


def test_neighbours_multiply_and_kinds_have_tables_of_their_own() -> None:
    assert TABLE.factor("v100", "lm", ["gan"]) == 0.5
    assert TABLE.factor("V100", "lm", ["gan", "lm"]) == pytest.approx(0.3)
    assert TABLE.factor("K80", "lm", ["gan"]) == 0.25
    assert TABLE.factor("h200", "lm", ["gan"]) == 0.5, "other kinds go by the V100"


def test_what_was_not_measured_goes_as_told() -> None:
    assert TABLE.factor("v100", "gan", ["gan"], unknown=0.7) == 0.7
    assert TABLE.factor("v100", "new", ["gan", "lm"], unknown=0.7) == pytest.approx(0.49)


def test_two_that_do_not_fit_are_never_together() -> None:
    with pytest.raises(Fatal, match="'lm' and 'huge' do not fit on one GPU"):
        TABLE.factor("v100", "lm", ["gan", "huge"])


@pytest.mark.parametrize("speed", [math.nan, -0.1, 1.5])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(InvalidSpec, match="'lm' beside 'gan' on k80 must be from 0 to 1"):
        Pairs({"k80": {"lm": {"gan": speed}}})


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="at least one pair"):
        Pairs({"k80": {}})


def test_the_speed_of_a_job_goes_by_its_neighbours_and_by_interference_where_none_is_known() -> (
    None
):
    speed = Speed(pairs=TABLE, interference=0.2)
    nodes = {machine.id: machine for machine in (node("n0", 1, kind="v100"),)}
    lm = spec(0.5, application="lm")

    assert speed.interferes
    assert speed.rate(lm, shared("n0", 0, 500), nodes, ()) == 1.0
    assert speed.rate(lm, shared("n0", 0, 500), nodes, ("gan",)) == 0.5
    assert speed.rate(lm, shared("n0", 0, 500), nodes, ("gan", "new")) == pytest.approx(0.4)
