"""``roost bench dl2``: the learnt policy in DL2's own world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import output_option
from roost.cli.output import print_csv, print_json, print_table
from roost.cli.parameter_types import Duration

if TYPE_CHECKING:
    from roost_bench.dl2.benchmark import Dl2Row


@click.command(
    epilog="""\b
Examples:
  roost bench dl2 --nodes 96,12
  roost bench dl2 --data DL2 --nodes 96,12 --seconds 300 --seeds 3 -o json"""
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="DL2's table lies there (config_speed.txt); without it, speeds are of our own physics.",
)
@click.option("--nodes", default="96,12", show_default=True, help="Sizes of clusters.")
@click.option(
    "--seconds", type=Duration(), default=60.0, show_default=True, help="Of each training."
)
@click.option("--generations", type=click.IntRange(0), help="So many, in place of --seconds.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--traces", type=click.IntRange(1), default=10, show_default=True, help="Of the test."
)
@click.option("--jobs", type=click.IntRange(1), default=60, show_default=True, help="Of a trace.")
@output_option
def dl2(nodes: str, seeds: int, first_seed: int, output: str, **asked: Any) -> None:
    """Train networks for dl2, and compare them with DRF, Optimus and lookahead.

    Time goes in slots of 20 minutes. Two trainings take place for each seed and size of cluster,
    with estimates of speed and without; a third one leaves two sorts of jobs out.
    """
    from roost_bench.command import whole_numbers
    from roost_bench.dl2.benchmark import Dl2Bench, run_all

    counts = whole_numbers("--nodes", nodes) or (96,)
    chosen = range(first_seed, first_seed + seeds)
    bench = Dl2Bench(nodes=counts[0], **asked)
    rows = [_figures(row) for row in run_all(bench, counts, chosen, _say)]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table([{name: _cell(value) for name, value in row.items()} for row in rows])


def _figures(row: Dl2Row) -> dict[str, Any]:
    return {
        "policy": row.compared.policy,
        "nodes": row.compared.nodes,
        "seed": row.seed,
        **{
            name: value
            for name, value in row.compared._asdict().items()
            if name not in {"policy", "nodes"}
        },
        "train_cpu_s": row.train_cpu_s,
        "generations": row.generations,
        "unknown_sorts": row.unknown_sorts,
        "unknown_ratio": row.unknown_ratio,
    }


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value < 10 else f"{value:.1f}"  # noqa: PLR2004 - digits that matter
    return "-" if value is None else str(value)


def _say(text: str) -> None:
    click.echo(text, err=True)
