"""``roost bench hived``: whether promises of cells are kept, in cases and random histories."""

from __future__ import annotations

from pathlib import Path

import click

from roost.cli.options import output_option
from roost.cli.parameter_types import Verb, option


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench hived
  roost bench hived --cases builtin -o json
  roost bench hived --steps 1000000 --policy srtf""",
)
@option(
    "--cases",
    section="Cases",
    default="builtin",
    show_default=True,
    metavar="DIR",
    help="A folder with files of cases, or builtin: those of HiveD.",
)
@option(
    "--steps",
    section="Random histories",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Take so many random steps, instead of cases, and check every promise after each.",
)
@option(
    "--seed",
    section="Random histories",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="The first history; each has 500 steps.",
)
@option(
    "--policy",
    "policy_name",
    section="Random histories",
    default="sjf",
    show_default=True,
    help="The policy that decides.",
)
@output_option
@click.pass_context
def hived(  # noqa: PLR0913 - a verb takes its options
    context: click.Context, cases: str, steps: int, seed: int, policy_name: str, output: str
) -> None:
    """Run HiveD's conformance cases through the core: {case, expected, got, passed}.

    The status is 1 if one fails.
    """
    from roost.cli.output import print_csv, print_json, print_table
    from roost_bench.hived.cases import run_cases
    from roost_bench.hived.histories import random_histories

    if steps:
        results = random_histories(steps, seed, policy_name)
    else:
        results = run_cases(None if cases == "builtin" else Path(cases))
    rows = [result._asdict() for result in results]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table([{**row, "passed": "yes" if row["passed"] else "NO"} for row in rows])
    if not all(result.passed for result in results):
        context.exit(1)
