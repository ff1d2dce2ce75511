"""Disruption budgets and the selectors that say whom they protect."""

from __future__ import annotations

from typing import Any

import pytest

from roost.kubernetes.operator.budgets import matches

LABELS = {"app": "train", "tier": "gold"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "train"}}, True),
        ({"matchLabels": {"app": "serve"}}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, True),
        (
            {
                "matchLabels": {"app": "train"},
                "matchExpressions": [{"key": "team", "operator": "Exists"}],
            },
            False,
        ),
    ],
)
def test_a_selector_selects(selector: dict[str, Any] | None, *, selected: bool) -> None:
    assert matches(selector, LABELS) is selected
