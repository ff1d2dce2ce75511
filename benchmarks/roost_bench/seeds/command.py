"""``roost bench seeds``: the evaluation of Optimus, DL2 and Harmony by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import output_option
from roost.cli.output import print_csv, print_json, print_table

if TYPE_CHECKING:
    from roost_bench.seeds.studies import SeedsRow


@click.command(
    epilog="""\b
Examples:
  roost bench seeds --seeds 5 --plots plots
  roost bench seeds --only performance,mode --policies drf,optimus,dl2,roost -o json"""
)
@click.option(
    "--only", help="Some of: performance, adjusting, speed, epochs, mode, arrivals, decisions."
)
@click.option(
    "--policies", help="The first is what others are compared with. Default: all of them."
)
@click.option("--jobs", type=click.IntRange(1), default=100, show_default=True)
@click.option("--nodes", type=click.IntRange(1), default=32, show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--large-nodes", type=click.IntRange(1), default=16000, show_default=True)
@click.option("--large-jobs", type=click.IntRange(2), default=4000, show_default=True)
@click.option("--plots", type=click.Path(path_type=Path), metavar="DIR", help="Draw them here.")
@output_option
def seeds(  # noqa: PLR0913 - a verb takes its options
    only: str | None,
    policies: str | None,
    jobs: int,
    nodes: int,
    seeds: int,
    first_seed: int,
    large_nodes: int,
    large_jobs: int,
    plots: Path | None,
    output: str,
) -> None:
    """Put the questions of three papers to all policies: completion, adjusting, errors, scale.

    Jobs have parameter servers and train until they converge, as in `roost bench optimus`.
    """
    from roost.cli.compare import split_policies
    from roost.errors import unknown
    from roost.files import save
    from roost.policies import policy
    from roost_bench.optimus.benchmark import OptimusBench
    from roost_bench.seeds import studies

    names = split_policies(policies) if policies else studies.installed()
    for name in names:
        policy(name)
    asked = (
        [part.strip() for part in only.split(",")]
        if only
        else [*studies.STUDIES, studies.DECISIONS]
    )
    for name in asked:
        if name not in {*studies.STUDIES, studies.DECISIONS}:
            raise unknown("study", name, [*studies.STUDIES, studies.DECISIONS])
    chosen = range(first_seed, first_seed + seeds)
    rows: list[SeedsRow] = []
    for name in asked:
        if name == studies.DECISIONS:
            found = list(studies.decide(large_nodes, large_jobs, names))
        else:
            bench = OptimusBench(jobs=jobs, nodes=nodes)
            found = list(studies.run(name, bench, names, chosen, _say))
        rows += found
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
            save(plots / f"{name}.svg", studies.plot(name, found))
    figures = [row._asdict() for row in rows]
    if output == "json":
        print_json({"rows": figures, "published": [one._asdict() for one in studies.PUBLISHED]})
    elif output == "csv":
        print_csv(figures)
    else:
        print_table([{name: _cell(value) for name, value in row.items()} for row in figures])
        for one in studies.PUBLISHED:
            click.echo(f"published: {one.policy} {one.ratio:.2f} of {one.against} ({one.source})")


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def _say(text: str) -> None:
    click.echo(text, err=True)
