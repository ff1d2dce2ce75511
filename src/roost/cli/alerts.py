"""``roost alerts``: what fires, and the rules."""

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
  roost alerts
  roost alerts rules
  roost alerts set alerts.yaml""",
)
def alerts() -> None:
    """Show what fires, show the rules, or change them."""


@alerts.command(
    "list",
    cls=Verb,
    epilog="""\b
Example:
  roost alerts list --ended""",
)
@click.option("--ended", is_flag=True, help="Show what fired and is over, too.")
@connection.output_option
def list_alerts(output: str, *, ended: bool) -> None:
    """Show what fires now (also without the word list)."""
    from roost.client.formatting import clean, clock

    with connection.connect() as client:
        found = client.alerts()
    if connection.printed(found, output):
        return
    if problem := found.get("problem"):
        click.echo(clean(problem), err=True)
    for alert in [*found["items"], *(found["ended"] if ended else ())]:
        over = f", over {clock(alert['ended_at'])}" if alert.get("ended_at") else ""
        done = f" ({', '.join(map(clean, alert['done']))})" if alert.get("done") else ""
        since = f"since {clock(alert['since'])}{over}"
        click.echo(f"{alert['severity']}  {clean(alert['rule'])}  {clean(alert['text'])}{done}")
        click.echo(f"    {since}")
    if not found["items"]:
        click.echo("all quiet")


@alerts.command(
    "rules",
    cls=Verb,
    epilog="""\b
Example:
  roost alerts rules""",
)
@connection.output_option
def show_rules(output: str) -> None:
    """Show the rules, as a file that can be changed and set."""
    from roost.cli.output import print_yaml

    with connection.connect() as client:
        found = client.alerts()
    rules: dict[str, Any] = {"rules": found["rules"]}
    if not connection.printed(rules, output):
        print_yaml(rules)


@alerts.command(
    "set",
    cls=Verb,
    epilog="""\b
Example:
  roost alerts set alerts.yaml""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def set_rules(file: Path) -> None:
    """Take over the rules in FILE, instead of all that there were."""
    from roost import files
    from roost.client.formatting import count
    from roost.jobfile import yaml
    from roost.jobfile.errors import Fault

    try:
        told = yaml.plain(yaml.load(files.load(file).text))
    except Fault as fault:
        raise InvalidSpec(f"{file}, line {fault.error.line}: {fault}") from None
    if not isinstance(told, dict) or not isinstance(told.get("rules"), list):
        raise InvalidSpec(f"{file}: expected rules, a list")
    with connection.connect() as client:
        found = client.set_alert_rules(told["rules"])
    click.echo(f"{count(len(found['rules']), 'rule')} now")
