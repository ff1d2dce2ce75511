"""``roost policies`` and ``roost placers``: what there is to choose from."""

from __future__ import annotations

import inspect

import click


@click.command(
    epilog="""\b
Examples:
  roost policies
  roost policies tiresias"""
)
@click.argument("name", required=False)
def policies(name: str | None) -> None:
    """List the scheduling policies with one line each, or show one with its parameters."""
    from roost import policies as found

    if name is None:
        width = max(map(len, found.names()))
        for each in found.names():
            click.echo(f"{each:<{width}}  {found.summary(each)}")
        return
    click.echo(f"{name}: {found.summary(name)}")
    for key, value in found.parameters(name).items():
        text = "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else value
        click.echo(f"  {key}={text}")
    if found.parameters(name):
        click.echo(f"set as {name}:key=value,key=value")


@click.command()
def placers() -> None:
    """List the placers with one line each."""
    from roost.placement import PLACERS

    width = max(map(len, PLACERS))
    for name, placer in PLACERS.items():
        line = (inspect.getdoc(placer) or "").partition("\n")[0]
        click.echo(f"{name:<{width}}  {line}")
