"""Whatever stands in claims, classes and slices: a sentence, or a verdict, and never an error."""

from __future__ import annotations

import copy
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.kubernetes.filters.claims.things import (
    CLASS,
    DRIVER,
    allocated,
    claim,
    claiming,
    device,
    device_class,
    request,
    selectors,
    slice_of,
)
from tests.unit.kubernetes.operator.objects import node

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
)
from roost.kubernetes.filters.claims import ClaimsFilter
from roost.kubernetes.filters.claims.expressions import EvaluationError, Value, compiled

JUNK: tuple[Any, ...] = (
    *(None, "", "x", 0, -1, 1 << 70, 1.5, True, [], {}, [None], ["x"], {"x": 1}, [[]], [{}]),
    *("0/1", "a/b/c", "1.2", "Gi", "\x00", "🦆", "All", {"value": "1e999"}, {"cel": None}),
)
_WORDS = (
    "device",
    ".",
    "attributes",
    "capacity",
    "driver",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    '"a"',
    "'b'",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    "in",
    "?",
    ":",
    ",",
    "1",
    "2.5",
    "0x1f",
    "3u",
    "true",
    "null",
    "x",
    "has",
    "size",
    "all",
    "exists",
    "map",
    "filter",
    "cel",
    "bind",
    "quantity",
    "semver",
    "matches",
    "split",
    "optional",
    "of",
    "none",
    "orValue",
    "sum",
    "substring",
    "compareTo",
    "isGreaterThan",
    "[1]",
    '{"k":1}',
    'r"\\d+"',
    "string",
    "int",
)
DEVICE: Value = {
    "driver": "d",
    "attributes": {"d": {"a": 1, "b": "x"}},
    "capacity": {},
    "allowMultipleAllocations": False,
}


@given(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=14), st.sampled_from(("", " ")))
def test_every_expression_has_a_value_or_a_sentence(words: list[str], between: str) -> None:
    _evaluate(between.join(words))


@given(st.text(max_size=40))
def test_every_text_has_a_value_or_a_sentence(text: str) -> None:
    _evaluate(text)


@given(st.text(alphabet="ab.*+?()[]{}|^$\\dwsbQ1,-:<>Pi=", max_size=14), st.text("ab1", max_size=9))
def test_every_pattern_has_an_answer_or_a_sentence(pattern: str, text: str) -> None:
    quoted = pattern.replace("'", "")
    _evaluate(f"'{text}'.matches(r'{quoted}')")


def _evaluate(text: str) -> None:
    try:
        found: object = compiled(text).holds(DEVICE)
    except (InvalidSpec, EvaluationError) as error:
        found = str(error)
    assert isinstance(found, bool) or found


@pytest.mark.parametrize("block", range(4))
def test_whatever_stands_in_objects_nothing_breaks(block: int) -> None:
    for seed in range(block * 1_000_000, block * 1_000_000 + examples(600)):
        chance = Random(seed)
        things = _things()
        for _ in range(chance.choice((1, 1, 2, 3))):
            kind, one = chance.choice(things)
            _spoil(one["spec"]["resourceClaims"] if kind is PODS else one, chance)
        found = ClaimsFilter(None)  # type: ignore[arg-type]
        pod = things.pop()[1]
        found.object_changed(NODES, None, node("n1", 0))
        for kind, one in things:
            found.object_changed(kind, None, one)
        found.object_changed(PODS, None, pod)
        if not found.concerns(pod):
            continue
        for ask in (
            lambda: found.refusals(pod, [node("n1", 0)]),  # noqa: B023 - called at once
            lambda: found.room(pod, [node("n1", 0)], 3),  # noqa: B023
            lambda: found.together(pod),  # noqa: B023
        ):
            with suppress(InvalidSpec):
                ask()
        found.amounts(pod)
        found.reserve(pod, NodeId("n1"))
        found.release(pod)
        for kind, one in things:
            found.object_changed(kind, one, None)


def _things() -> list[tuple[Any, Object]]:
    """Objects that make sense, to be spoiled; the pod comes last."""
    config = [{"opaque": {"driver": DRIVER, "parameters": {}}}]
    counted = {
        **device("b"),
        "capacity": {"memory": {"value": "40Gi"}},
        "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    }
    shared = [{"name": "s", "counters": {"c": {"value": "2"}}}]
    half = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [half]}]}
    first = {"name": "f", "firstAvailable": [{"name": "w", "deviceClassName": CLASS, "count": 1}]}
    asked = request(
        selectors=selectors(f'device.attributes["{DRIVER}"].model == "A"'),
        tolerations=[{"operator": "Exists"}],
        count=1,
    )
    alike = [{"matchAttribute": f"{DRIVER}/model", "requests": ["one"]}]
    things = (
        (DEVICE_CLASSES, device_class(config=config)),
        (RESOURCE_SLICES, slice_of("n1", device("a", model="A"), counted, sharedCounters=shared)),
        (RESOURCE_SLICES, slice_of("net", device("n", model="A"), nodeSelector=terms)),
        (RESOURCE_CLAIMS, claim("x", asked, first, constraints=alike, config=config)),
        (RESOURCE_CLAIMS, allocated(claim("y"), "b", node="n1", by=("q",))),
        (PODS, claiming("p", "x", "y")),
    )
    return [(kind, copy.deepcopy(one)) for kind, one in things]


def _spoil(found: Any, chance: Random) -> None:
    """Put something else in a place of it; what every object has stays as it is."""
    part: Any = found
    if isinstance(found, dict):
        part = found[chance.choice([key for key in found if key != "metadata"])]
        if not isinstance(part, dict | list):
            return
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        if not keys:
            return
        key = chance.choice(keys)
        deeper = part[key]
        if isinstance(deeper, dict | list) and deeper and chance.random() < 0.8:
            part = deeper
            continue
        if isinstance(part, dict) and chance.random() < 0.2:
            del part[key]
        else:
            part[key] = copy.deepcopy(chance.choice(JUNK))
        return
