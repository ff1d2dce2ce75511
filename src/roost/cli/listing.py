"""``roost policies`` and ``roost placers``: what there is to choose from."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import click

from roost.cli.output import print_json
from roost.errors import InvalidSpec

_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print them.",
)


@click.command(
    epilog="""\b
Examples:
  roost policies
  roost policies tiresias
  roost policies -o json"""
)
@click.argument("name", required=False)
@_output
def policies(name: str | None, output: str) -> None:
    """List the scheduling policies with one line each, or show one with its parameters."""
    from roost import policies as found

    if name is None and output == "json":
        print_json([_if_it_loads(each) for each in found.names()])
    elif name is None:
        _print_lines({each: _if_it_loads(each)["summary"] for each in found.names()})
    elif output == "json":
        print_json(_policy(name))
    else:
        click.echo(f"{name}: {found.summary(name)}")
        parameters = found.parameters(name)
        for key, value in parameters.items():
            click.echo(f"  {key}={_shown(value)}")
        if parameters:
            click.echo(f"set as {name}:key=value,key=value")


@click.command()
@_output
def placers(output: str) -> None:
    """List the placers with one line each."""
    from roost.placement import SUMMARIES

    if output == "json":
        print_json([{"name": name, "summary": line} for name, line in SUMMARIES.items()])
    else:
        _print_lines(SUMMARIES)


def _policy(name: str) -> dict[str, Any]:
    from roost import policies as found

    return {
        "name": name,
        "summary": found.summary(name),
        "parameters": {key: _plain(value) for key, value in found.parameters(name).items()},
    }


def _if_it_loads(name: str) -> dict[str, Any]:
    """A plug-in that does not load must not hide the others."""
    try:
        return _policy(name)
    except InvalidSpec as error:
        return {"name": name, "summary": f"({error})", "parameters": {}}


def _plain(value: object) -> object:
    """A default as JSON; null where there is none."""
    match value:
        case tuple():
            return [_plain(part) for part in value]
        case bool() | int() | str() | None:
            return value
        case float() if math.isfinite(value):
            return value
        case dataclasses.MISSING:
            return None
        case _:
            return str(value)


def _shown(value: object) -> str:
    """A default as it would be typed."""
    match value:
        case tuple():
            return "/".join(map(_shown, value))
        case float():
            return f"{value:g}"
        case dataclasses.MISSING:
            return "..."
        case _:
            return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _print_lines(lines: dict[str, str]) -> None:
    width = max(map(len, lines))
    for name, line in lines.items():
        click.echo(f"{name:<{width}}  {line}")
