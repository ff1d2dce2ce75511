"""What an elastic run keeps for the next leader."""

from __future__ import annotations

import json

import pytest

from roost.core import Allocation, NodeId
from roost.core.allocation import Part
from roost.kubernetes.jobs.member_state import read, recalled

A, B = NodeId("a"), NodeId("b")
SEATS = {"0": ["a", [1], 1000], "3": ["b", [0], 1000]}
KEPT = {"attempt": 2, "generation": 1, "number": 4, "changing": True, "members": "", "seats": SEATS}
PS = Part(A, (), 1000, 2, "ps")
BEGUN = Allocation((Part(A, (0, 1), 1000, 2), PS))


def test_everybody_who_has_a_pod_holds_something() -> None:
    found = recalled(json.dumps(KEPT), 2, 1, BEGUN)
    assert found is not None
    allocation, crew = found
    assert allocation == Allocation((Part(A, (1,)), Part(B, (0,)), PS))
    assert crew.members == ("0", "3")
    assert [(seat.role, seat.index, seat.node) for seat in crew.seats] == [
        ("worker", 0, A),
        ("worker", 1, B),
        ("ps", 0, A),
        ("ps", 1, A),
    ]
    assert [crew.number(seat) for seat in crew.seats] == [0, 3, 0, 1]


@pytest.mark.parametrize("start", [(1, 1), (2, 2), (3, 1)])
def test_what_is_of_another_start_does_not_count(start: tuple[int, int]) -> None:
    assert recalled(json.dumps(KEPT), *start, BEGUN) is None


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "{}", '{"attempt": 2, "generation": 1}'])
def test_what_makes_no_sense_does_not_count(text: str) -> None:
    assert read(text, 2, 1) is None
