"""``roost bench portal``: what the portal costs the server, and how fast its pages get answers."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from roost.cli.options import output_option
from roost.cli.output import print_json, print_table
from roost.cli.parameter_types import Verb
from roost_bench.live.command import row_of


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench portal
  roost bench portal --quick -o json""",
)
@click.option("--quick", is_flag=True, help="Small sizes, to see that everything works.")
@output_option
def portal(output: str, *, quick: bool) -> None:
    """Measure the portal; exit status 1 if a goal is missed.

    A real server runs on this machine, around 250 machines with 8 GPUs each that exist only in its
    books; 60 jobs report every second. Measured are the bytes of the first page, the CPU time and
    memory that viewers cost, submissions beside them, and lists of up to 100 000 jobs. The process
    that measures is another one. It takes some minutes; nothing is left behind.
    """
    from roost_bench.portal.measures import QUICK, PortalSizes, figures

    with tempfile.TemporaryDirectory(prefix="roost-bench-portal-") as folder:
        found = list(figures(Path(folder), QUICK if quick else PortalSizes(), _say))
    if output == "json":
        print_json([asdict(figure) for figure in found])
    else:
        print_table([row_of(figure) for figure in found])
    if not all(figure.passed for figure in found):
        click.get_current_context().exit(1)


def _say(text: str) -> None:
    click.echo(text, err=True)
