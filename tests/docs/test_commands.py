"""Every command in the documentation can be typed; cheap ones are run, and print what is shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from tests.docs.pages import NAMES, ROOT, Command, commands, page

from roost.cli import cli

#: Commands that are about something else than Roost.
OTHERS = ("pip install .", "python -m pytest")
#: What takes long, or needs a large trace, is parsed only.
LONG = ("bench",)
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
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
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
def test_commands_run_and_print_what_is_shown(name: str) -> None:
    for command in typed(name):
        program, *arguments = shlex.split(command.text)
        if program != "roost" or arguments[0] in LONG:
            continue
        done = CliRunner().invoke(cli, arguments)
        where = f"{name}:{command.line}: {command.text}"
        fine = done.exit_code in FINE.get(arguments[0], {0})
        assert fine, f"{where}\n{done.output}{done.exception!r}"
        printed = [line.rstrip() for line in done.output.splitlines()]
        for line in command.shown:
            assert line in ("...", *printed), f"{where}\nshows, but does not print:\n{line}"


def test_the_readme_names_the_two_commands_of_a_fresh_machine() -> None:
    lines = [command.text for command in typed("README.md")]
    assert lines[:2] == ["make demo", "make test"]


def test_examples_in_help_texts_can_be_typed() -> None:
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
    context, command = click.Context(cli, info_name="roost"), cli
    name: str | None = "roost"
    rest = arguments
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        assert name is not None
        command = found  # type: ignore[assignment]
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
