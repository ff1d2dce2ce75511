"""Plans on pods: what is written is read back, and nothing else is."""

from __future__ import annotations

import pytest

from roost.core.allocation import Allocation, Part
from roost.core.spec import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.objects.pods import decode_plan, encode_gpus, encode_plan

A, B = NodeId("a"), NodeId("b.example.org")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((Part(A, (0, 1)),), '[["a",[0,1]]]'),
        ((Part(A, (3,), 250),), '[["a",[3],1,"worker",250]]'),
        ((Part(A, (0, 1), workers=2), Part(B, (), role="ps")), None),
    ],
)
def test_a_plan_is_read_back_as_it_was_written(parts: tuple[Part, ...], text: str | None) -> None:
    plan = encode_plan(Allocation(parts))
    assert text in (None, plan)
    assert decode_plan(plan) == Allocation(parts)


@pytest.mark.parametrize(
    "text",
    [
        *("", "nonsense", "[]", "{}", "[1]", '[["a"]]', '[["a",[-1]]]', '[["a",[0],0]]'),
        *('[["a",["0"]]]', "[[7,[0]]]", '[["a",[0],1,"ps",250,9]]', '[["a",[0],1,5]]'),
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"roost[.]dev/plan"):
        decode_plan(text)


def test_devices_are_numbers_with_commas() -> None:
    assert encode_gpus((0, 3)) == "0,3"
    assert encode_gpus(()) == ""
