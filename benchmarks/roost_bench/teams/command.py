"""``roost bench teams``: two teams with quotas, borrowing, and nodes from nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from roost.cli.options import output_option
from roost.cli.output import print_csv, print_json, print_table


@click.command(
    epilog="""\b
Examples:
  roost bench teams
  roost bench teams --seed 7 -o json"""
)
@click.option("--seed", type=int, metavar="N", help="Other promises and jobs by chance.")
@output_option
@click.pass_context
def teams(ctx: click.Context, seed: int | None, output: str) -> None:
    """Play an hour of two teams in virtual time, and check every promise each minute.

    The operator's own code schedules; the API server, kubelets and a pool of nodes that begins at
    none are in memory. Exit 1 if a promise was broken.
    """
    from roost_bench.teams.hour import played
    from roost_bench.teams.script import by_chance, by_hand

    script = by_hand() if seed is None else by_chance(seed)
    hour = played(script)
    if output == "json":
        print_json(dataclasses.asdict(hour))
    elif output == "csv":
        print_csv([_flat(row) for row in dataclasses.asdict(hour)["rows"]])
    else:
        print_table([_told(row) for row in dataclasses.asdict(hour)["rows"]])
        promised = "; ".join(
            f"{one.name}: {one.quota} GPUs, borrows {one.borrowing}, lends {one.lending}"
            for one in script.teams
        )
        click.echo(promised)
        click.echo(
            f"{hour.ended} of {hour.jobs} jobs ended, {hour.restarts} restarts, "
            f"{hour.nodes_made} nodes made; {hour.checks} checks, {len(hour.broken)} broken"
        )
        for sentence in hour.broken:
            click.echo(sentence)
    if hour.broken:
        ctx.exit(1)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the figures of each team beside each other."""
    flat = {name: value for name, value in row.items() if name != "teams"}
    for team in row["teams"]:
        flat |= {f"{team['team']}_{name}": team[name] for name in ("held", "borrowed", "lent")}
    return flat


def _told(row: dict[str, Any]) -> dict[str, str]:
    """A row as a table shows it."""
    teams = {
        f"{team['team']} held/borrowed/lent": f"{team['held']}/{team['borrowed']}/{team['lent']}"
        for team in row["teams"]
    }
    return {
        "minute": str(row["minute"]),
        "nodes": str(row["nodes"]),
        **teams,
        "waiting": str(row["waiting"]),
        "broken": str(row["broken"]),
    }
