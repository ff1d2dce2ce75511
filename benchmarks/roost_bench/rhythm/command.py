"""``roost bench rhythm``: what repeats itself, and how often."""

from __future__ import annotations

import dataclasses

import click

from roost.cli.options import output_option
from roost.cli.output import number, print_csv, print_json, print_table
from roost.cli.parameter_types import Verb


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench rhythm
  roost bench rhythm --seed 7 --each 1000 -o json""",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option(
    "--each",
    type=click.IntRange(1, 100_000),
    default=300,
    show_default=True,
    metavar="N",
    help="Signals of each kind.",
)
@output_option
def rhythm(seed: int, each: int, output: str) -> None:
    """Find periods in made-up signals of known periods; exit status 1 if a goal is missed."""
    from roost_bench.rhythm.benchmark import measure

    rows = [dataclasses.asdict(figure) for figure in measure(seed, each)]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table(
            [{**row, "value": number(row["value"]), "goal": number(row["goal"])} for row in rows]
        )
    if not all(row["passed"] for row in rows):
        click.get_current_context().exit(1)
