from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.errors import InvalidSpec
from roost.live.alerts.rules import CONDITIONS, DEFAULTS, RuleFile, read_rules, shown


def test_what_is_shipped_looks_for_everything_and_only_tells() -> None:
    assert {rule.when for rule in DEFAULTS.rules} == set(CONDITIONS)
    assert {action for rule in DEFAULTS.rules for action in rule.do} == {"tell"}
    again = read_rules({"rules": [shown(rule) for rule in DEFAULTS.rules]})
    assert again == DEFAULTS


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"name": "x"}, "when"),
        ({"name": "x", "when": "rain"}, "when"),
        ({"name": "<b>", "when": "disk"}, "name"),
        ({"name": "x", "when": "disk", "do": ["suspend"]}, "no job"),
        ({"name": "x", "when": "stuck", "do": ["drain"]}, "no machine"),
        ({"name": "x", "when": "stuck", "below": 0.5}, "no bound"),
        ({"name": "x", "when": "disk", "below": 7}, "below"),
        ({"name": "x", "when": "disk", "to": ["javascript:alert(1)"]}, "neither a URL"),
        ({"name": "x", "when": "disk", "lasts": "soon"}, "lasts"),
        ({"name": "x", "when": "disk", "colour": "red"}, "colour"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_its_fault(
    rule: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said):
        read_rules({"rules": [rule]})


def test_two_rules_of_one_name_are_refused() -> None:
    rule = {"name": "x", "when": "disk"}
    with pytest.raises(InvalidSpec, match="two rules are named 'x'"):
        read_rules({"rules": [rule, rule]})


def test_a_file_that_people_edit_counts_once_it_is_right(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yaml"
    rules = RuleFile(path)
    rules.refresh()
    assert rules.rules == DEFAULTS.rules
    path.write_text("rules:\n- {name: mine, when: idle-gpu, lasts: 10m, below: 0.1}\n")
    rules.refresh()
    assert [(rule.name, rule.lasts, rule.bound) for rule in rules.rules] == [("mine", 600.0, 0.1)]
    path.write_text("rules:\n- {name: mine, when: [\n")
    rules.refresh()
    assert [rule.name for rule in rules.rules] == ["mine"]
    assert "alerts.yaml: line" in rules.problem
    rules.change({"rules": [{"name": "other", "when": "disk"}]})
    assert ([rule.name for rule in rules.rules], rules.problem) == (["other"], "")
    path.unlink()
    rules.refresh()
    assert rules.rules == DEFAULTS.rules
