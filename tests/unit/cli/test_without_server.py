"""Verbs where no server answers, what needs none, and completion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.unit.cli.told import roost
from tests.unit.client.fakes import FakeServer, put_jobs

from roost.cli import connection


@pytest.mark.parametrize(
    "command",
    [
        *("list", "get x", "logs x", "events", "explain x", "top", "queues", "nodes", "cancel x"),
        *("submit -- true", "whoami", "users", "tokens", "scale x 2", "delete x -y", "migrate x"),
    ],
)
def test_without_a_server_one_line_says_how_to_start_one(nowhere: Path, command: str) -> None:
    line = "no Roost server answers at http://127.0.0.1:8610; start one with: roost up"
    assert roost(*command.split()).error == line
    (nowhere / "server.json").write_text('{"url": "http://127.0.0.1:9"}')


def test_a_server_that_is_gone_is_named(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PATIENCE_S", 0.0)
    (nowhere / "server.json").write_text('{"url": "http://127.0.0.1:9"}')
    assert "no Roost server answers at http://127.0.0.1:9;" in roost("list").error


def test_convert_needs_no_server(nowhere: Path) -> None:
    file = nowhere / "old.sbatch"
    file.write_text("#!/bin/bash\n#SBATCH --job-name=old\n#SBATCH --gpus=2\n#SBATCH -M x\ntrue\n")
    told = roost("convert", file)
    assert yaml.safe_load(told.out)["name"] == "old"
    assert told.err.startswith("note: ")
    assert "nowhere" in roost("convert", "nowhere").error


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    out = roost("completion", shell).out
    assert "_ROOST_COMPLETE" in out
    assert "roost" in out


def completed(words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("_ROOST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    told = roost()
    assert told.err == ""
    return [line.removeprefix("plain,") for line in told.out.split()]


@pytest.mark.usefixtures("nowhere")
def test_jobs_and_queues_are_completed_from_the_server(
    monkeypatch: pytest.MonkeyPatch, serving: Callable[[FakeServer], str]
) -> None:
    fake = FakeServer()
    put_jobs(fake)
    fake.routes["GET", "/queues"] = {"items": [{"id": "vision"}, {"id": "default"}]}
    monkeypatch.setenv("ROOST_URL", serving(fake))
    assert completed("roost logs re", monkeypatch) == ["resnet-x7k2p"]
    assert completed("roost list -q v", monkeypatch) == ["vision"]
    assert completed("roost list -s queued,ru", monkeypatch) == ["queued,running"]
    assert completed("roost list --sort g", monkeypatch) == ["gpus"]
    assert completed("roost queues s", monkeypatch) == ["set"]


@pytest.mark.usefixtures("nowhere")
def test_completion_is_silent_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("roost logs re", monkeypatch) == []
    monkeypatch.setenv("ROOST_URL", "http://127.0.0.1:9")
    assert completed("roost logs re", monkeypatch) == []


VERBS = (
    *("submit", "list", "get", "logs", "events", "explain", "top", "scale", "suspend", "resume"),
    *("migrate", "cancel", "delete", "queues", "nodes", "users", "tokens", "whoami", "convert"),
    "completion",
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_and_short_lines(verb: str) -> None:
    out = roost(verb, "--help").out
    assert "Example" in out
    assert max(map(len, out.partition("Example")[0].splitlines())) <= 100
