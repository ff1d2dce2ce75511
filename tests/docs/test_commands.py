"""Every command in the documentation can be typed; cheap ones are run, and print what is shown.

Verbs that talk to a server do so with a real one, a fresh one for each page: there what is shown
has to be right in its form, and numbers and names of jobs and machines may be others.
"""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.docs.pages import NAMES, ROOT, Command, commands, page, runs

from roost.cli import _SECTIONS, cli

#: Commands that are about something else than Roost.
OTHERS = ("pip install .", "python -m pytest", "kubectl apply -k deploy/base")
LIVE = {verb for section in ("Server", "Jobs", "Cluster") for verb in _SECTIONS[section]}
#: ``roost diff`` says with its exit status that two logs differ.
FINE = {"diff": {0, 1}}


def typed(name: str) -> list[Command]:
    return [
        command
        for block in page(name).blocks
        if block.language == "console"
        for command in commands(block)
    ]


WITH_COMMANDS = [name for name in NAMES if typed(name)]


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_every_command_is_known(name: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in typed(name):
        program, *arguments = shlex.split(command.text)
        where = f"{name}:{command.line}: {command.text}"
        if program == "roost":
            parse(arguments)
        elif program == "make":
            assert set(arguments) <= targets, where
        else:
            assert command.text in OTHERS or (ROOT / program).is_file(), where


@pytest.mark.parametrize("name", WITH_COMMANDS)
@pytest.mark.usefixtures("folder", "package")
def test_commands_run_and_print_what_is_shown(name: str, request: pytest.FixtureRequest) -> None:
    if any(live(shlex.split(command.text)) for command in typed(name)):
        request.getfixturevalue("served")
    for command in typed(name):
        program, *arguments = shlex.split(command.text)
        if program != "roost" or not runs(arguments):
            continue
        done = CliRunner().invoke(cli, arguments)
        where = f"{name}:{command.line}: {command.text}"
        fine = done.exit_code in FINE.get(arguments[0], {0})
        assert fine, f"{where}\n{done.output}{done.exception!r}"
        form = loosely if live(["roost", *arguments]) else str.rstrip
        printed = [form(line) for line in done.output.splitlines()]
        for line in map(form, command.shown):
            assert line in ("...", *printed), f"{where}\nshows, but does not print:\n{line}"


def live(words: list[str]) -> bool:
    """Whether a command needs a server."""
    return words[0] == "roost" and (words[1] in {*LIVE, "history"} or "--from" in words)


def loosely(line: str) -> str:
    """A line without what is never the same: numbers, ids of jobs, the name of this machine."""
    here = re.escape(socket.gethostname().partition(".")[0].lower())
    line = re.sub(rf"\b({here}|vm)\b", "NODE", line)
    line = re.sub(r"-[a-hjkmnp-z2-9]{5}\b", "-ID", line)
    return " ".join(re.sub(r"\d+(\.\d+)?", "0", line).split())


def test_the_readme_names_the_two_commands_of_a_fresh_machine() -> None:
    lines = [command.text for command in typed("README.md")]
    assert [line for line in lines if line.startswith("make ")] == ["make demo", "make test"]


def test_examples_in_help_texts_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("roost.yaml").write_text("slots: 2\n")
    for name in ("notify.yaml", "alerts.yaml", "birds.yaml"):
        Path(name).touch()
    examples = [line for command in every(cli) for line in example_lines(command)]
    assert len(examples) > 10
    for line in examples:
        parse(shlex.split(line)[1:])


def test_every_command_is_documented() -> None:
    everything = "\n".join(page(name).text for name in NAMES)
    context = click.Context(cli)
    for name in cli.list_commands(context):
        assert f"roost {name}" in everything


def parse(arguments: list[str]) -> None:
    """Let click look at a command line as if it were typed; nothing is run."""
    context = click.Context(cli, info_name="roost", **cli.context_settings)
    command: click.Command = cli
    name: str | None = "roost"
    rest = arguments[2:] if arguments[0] == "--context" else arguments
    while isinstance(command, click.Group) and (rest or not command.invoke_without_command):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        assert name is not None
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
    command.make_context(name, rest, parent=context)


def every(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from every(command)


def example_lines(command: click.Command) -> list[str]:
    text = re.sub(r"\\\n\s+", "", command.epilog or "")
    return [line.strip() for line in text.splitlines() if line.strip().startswith("roost ")]
