"""Help that is pleasant to read, completion in the shell, and progress for those who look."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tests.unit.cli.told import roost, write_jobs

from roost.cli import cli
from roost.cli.parameter_types import Verb

SECTIONS = ["Workload", "Policy", "Cluster", "Costs", "Physics", "Failures", "Run", "Output"]


@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_help_comes_in_sections_with_examples_at_the_end(verb: str) -> None:
    text = roost(verb, "--help").out

    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == [*SECTIONS, "Other"]
    assert text.rpartition("Examples:")[2].count(f"roost {verb} ") >= 3


@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_every_option_is_helped_once_and_lines_are_short(verb: str) -> None:
    text = roost(verb, "--help").out
    before_examples = text.partition("Examples:")[0]
    command = cli.get_command(None, verb)  # type: ignore[arg-type]
    assert isinstance(command, Verb)

    for param in command.params:
        flag = max(param.opts, key=len)
        if flag.startswith("--"):
            assert len(re.findall(rf"^ .*{flag}\b(?!-)", before_examples, re.MULTILINE)) >= 1
    assert max(map(len, before_examples.splitlines())) <= 80
    assert "RANGE" not in text


def test_the_overview_has_a_line_for_every_verb_and_its_help_works() -> None:
    overview = roost("--help").out
    for verb in cli.list_commands(None):  # type: ignore[arg-type]
        assert f"  {verb} " in overview
        told = roost(verb, "-h")
        assert told.status == 0
        assert told.out.startswith(f"Usage: roost {verb}")


def test_every_measure_has_help() -> None:
    bench = cli.get_command(None, "bench")  # type: ignore[arg-type]
    if not isinstance(bench, click.Group):
        pytest.skip("the benchmarks are not installed")
    for name in bench.commands:
        told = roost("bench", name, "--help")
        assert told.status == 0
        assert told.out.startswith(f"Usage: roost bench {name}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_is_told_how_to_complete(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ROOST_COMPLETE", f"{shell}_source")
    told = roost()
    assert told.status == 0
    assert "_ROOST_COMPLETE" in told.out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("roost sim", ["simulate"]),
        ("roost pol", ["policies"]),
        ("roost simulate --node-", ["--node-mtbf", "--node-mttr"]),
        ("roost simulate -p tire", ["tiresias"]),
        ("roost simulate --policy sr", ["srsf", "srtf"]),
        ("roost compare -p fifo,tir", ["fifo,tiresias"]),
        ("roost simulate --placer spr", ["spread"]),
        ("roost simulate -o j", ["json"]),
        ("roost bench d", ["decide", "deep", "dl2"]),
        ("roost nonsense --no", []),
    ],
)
def test_words_are_completed(
    words: str, offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ROOST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))

    told = roost()

    assert told.err == ""
    assert [line.removeprefix("plain,") for line in told.out.split()] == offered


def test_nobody_looks_so_no_progress_is_shown(tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path)
    assert roost("simulate", jobs, "--nodes", 1).err == ""
    assert roost("simulate", jobs, "--nodes", 1, "--no-progress").err == ""
    assert roost("compare", jobs, "--nodes", 1, "-p", "fifo,las", "-j", 1).err == ""


def test_progress_can_be_forced(tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path)

    told = roost("simulate", jobs, "--nodes", 1, "--progress")
    assert re.search(r"fifo .*3/3.* jobs, simulated 2\.17 m", told.err)

    both = roost("compare", jobs, "--nodes", 1, "-p", "fifo,las", "-j", 1, "--progress")
    assert re.search(r"fifo .*3/3", both.err)
    assert re.search(r"las .*3/3", both.err)
    assert "simulated" not in both.out
