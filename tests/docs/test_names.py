"""What the code has, the documentation names: policies, formats, events, options, figures."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from typing import get_args

import click
import pytest
from tests.docs.pages import ROOT, page

from roost import policies
from roost.cli import cli
from roost.core import Action, Cause, Decision, Event, JobState, NodeSpec, Plan
from roost.core.spec import QueueSpec
from roost.placement import PLACERS
from roost.sim.metrics import Summary
from roost.traces import FORMATS
from roost.traces.generate import Synthetic
from roost.traces.table import _COLUMNS

ARCHITECTURE = page("docs/architecture.md")
CHANGES = page("CHANGELOG.md").text
POLICIES = page("docs/policies.md")
SIMULATOR = page("docs/simulator.md")
TRACES = page("docs/traces.md")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = sorted(PROJECT["entry-points"][policies.GROUP])


def in_code(text: str) -> set[str]:
    """Everything in single backticks, and each word of it."""
    quoted = re.findall(r"`([^`\n]+)`", text)
    return {*quoted, *(word for item in quoted for word in re.findall(r"[\w-]+", item))}


@pytest.mark.parametrize("name", OWN)
def test_a_policy_has_a_paragraph_with_its_parameters(name: str) -> None:
    section = POLICIES.section(f"`{name}`")
    for parameter, default in policies.parameters(name).items():
        assert f"`{parameter}={written(default)}`" in section
    assert re.search(rf"\b{name}\b", CHANGES)
    assert f"[`{name}`](#{name})" in POLICIES.section("What all of them respect")


def test_the_readme_counts_right() -> None:
    text = page("README.md").text
    words = {6: "six", 7: "seven", 9: "nine", 10: "ten", 15: "fifteen", 16: "sixteen"}
    for count, things in (
        (len(OWN) - 2, "policies from the literature and two of our own"),
        (len(PLACERS), "placers"),
        (len(FORMATS), "trace formats"),
    ):
        assert f"{words.get(count, count)} {things}" in text


def test_policies_that_are_named_exist() -> None:
    titles = re.findall(r"^### `(.+)`$", POLICIES.section("Policies"), re.MULTILINE)
    assert sorted(titles) == OWN


@pytest.mark.parametrize("name", PLACERS)
def test_a_placer_is_in_the_table(name: str) -> None:
    assert f"\n| `{name}` | " in POLICIES.section("Placers")
    assert name in CHANGES


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_a_section_with_its_columns_and_options(name: str) -> None:
    named = in_code(TRACES.section(f"`{name}`"))
    assert FORMATS[name].columns <= named
    assert set(FORMATS[name].options) - {"nodes"} <= named | {"throughputs"}
    assert name in CHANGES


def test_the_columns_of_our_own_tables_are_listed() -> None:
    own = TRACES.section("`roost`")
    assert {column.name for column in _COLUMNS} <= in_code(own)
    nodes = TRACES.section("Tables of nodes")
    assert {field.name for field in fields(NodeSpec)} <= in_code(nodes)


def test_what_can_be_generated_is_listed() -> None:
    rows = re.findall(r"^\| (`.+?) \|", TRACES.section("The generator"), re.MULTILINE)
    assert in_code("\n".join(rows)) == {field.name for field in fields(Synthetic)}


@pytest.mark.parametrize("kinds", [Event, Action], ids=["events", "actions"])
def test_events_and_actions_are_listed(kinds: object) -> None:
    named = in_code(ARCHITECTURE.section("Events and actions"))
    assert {kind.__name__ for kind in get_args(kinds)} <= named


def test_decisions_causes_and_states_are_named() -> None:
    named = in_code(ARCHITECTURE.text)
    assert {kind.__name__ for kind in get_args(Decision)} <= named
    assert {state.value for state in JobState} <= named
    assert {cause.name for cause in Cause} | {cause.token for cause in Cause} <= named


def test_the_verbs_of_a_plan_exist() -> None:
    verbs = re.findall(r"`(\w+)\(", ARCHITECTURE.section("The plan"))
    assert len(verbs) > 10
    assert all(hasattr(Plan, verb) for verb in verbs)


def test_every_package_is_in_the_table() -> None:
    named = in_code(ARCHITECTURE.section("Packages"))
    for path in (ROOT / "src" / "roost").iterdir():
        if path.stem[0] not in "_." and path.suffix in ("", ".py"):
            assert f"roost.{path.stem}" in named


def test_every_figure_is_defined() -> None:
    assert {field.name for field in fields(Summary)} <= in_code(SIMULATOR.section("Metrics"))


@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_every_option_is_listed(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    options = SIMULATOR.section("Options")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for spelling in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"`{spelling}[` ]", options), spelling


def test_options_that_are_listed_exist() -> None:
    known = {
        spelling
        for verb in ("simulate", "compare")
        for parameter in cli.get_command(click.Context(cli), verb).params  # type: ignore[union-attr]
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    listed = set(re.findall(r"^\| .*?`(--[\w-]+)", SIMULATOR.section("Options"), re.MULTILINE))
    assert listed <= known


def test_what_can_be_said_of_a_queue_is_listed() -> None:
    named = in_code(SIMULATOR.section("Options"))
    assert {field.name for field in fields(QueueSpec)} - {"id"} <= named


def written(value: object) -> str:
    """A default as people write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple():
            return "/".join(map(written, value))
        case int() | float():
            return f"{value:g}"
        case _:
            return str(value)
