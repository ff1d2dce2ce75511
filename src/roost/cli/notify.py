"""``roost notify``: who is told what becomes of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Noun, Verb
from roost.errors import InvalidSpec


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost notify
  roost notify set notify.yaml
  roost notify test https://hooks.example.com/roost""",
)
def notify() -> None:
    """Show the settings of web hooks and mail, change them, or try a target."""


@notify.command("list", cls=Verb)
@connection.output_option
def list_settings(output: str) -> None:
    """Show the settings, without secrets, and what waits to be sent."""
    with connection.connect() as client:
        found = client.notifications()
    if not connection.printed(found, output):
        _show(found)


@notify.command(
    "set",
    cls=Verb,
    epilog="""\b
A secret or password of ******** stays as it is.
\b
Example:
  roost notify set notify.yaml""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def set_settings(file: Path) -> None:
    """Take over the settings in FILE: secret, allow, mail, users, queues."""
    from roost import files
    from roost.jobfile import yaml
    from roost.jobfile.errors import Fault

    try:
        settings = yaml.plain(yaml.load(files.load(file).text))
    except Fault as fault:
        raise InvalidSpec(f"{file}, line {fault.error.line}: {fault}") from None
    if not isinstance(settings, dict):
        raise InvalidSpec(f"{file}: expected a mapping with keys such as mail and users")
    with connection.connect() as client:
        found = client.set_notifications(settings)
    _show(found)


@notify.command(
    "test",
    cls=Verb,
    epilog="""\b
Examples:
  roost notify test https://hooks.example.com/roost
  roost notify test ada@example.com""",
)
@click.argument("to", metavar="URL|ADDRESS")
def test(to: str) -> None:
    """Send a notification to a URL or a mail address now."""
    with connection.connect() as client:
        client.test_notification(to)
    click.echo(f"{to}  was told")


def _show(found: dict[str, Any]) -> None:
    from roost.cli.output import print_yaml
    from roost.client.formatting import clean, clock, count

    print_yaml(found.get("settings", {}))
    waiting = found.get("waiting", [])
    click.echo(f"{count(len(waiting), 'notification')} wait:" if waiting else "nothing waits")
    for one in waiting:
        tries = count(int(one.get("tries", 0)), "try").replace("trys", "tries")
        error = f", next {clock(one.get('next_at'))}: {clean(one.get('error', ''))}"
        click.echo(f"  {clean(one['job'])} to {clean(one['target'])}: {tries}{error}")
    if dropped := int(found.get("dropped", 0)):
        click.echo(f"{count(dropped, 'notification')} given up")
