"""``roost compare``: many policies, several seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli.options import Asked, output_option, placer_option, report_option, scenario_options

if TYPE_CHECKING:
    from roost.sim.scenario import Scenario


@click.command(
    epilog="""\b
Examples:
  roost compare jobs.csv --nodes 16 --policies fifo,srtf,tiresias,alnair
  roost compare --synthetic jobs=1000,load=0.95 --nodes 8 --seeds 5 --report compare.html
  roost compare jobs.csv --nodes 16 --policies fifo,tiresias:limits=600/3600 -o json"""
)
@scenario_options
@click.option(
    "-p",
    "--policies",
    default="fifo,backfill,srtf,tiresias,gittins,drf,fair,alnair",
    show_default=True,
    help="Policies, the first being what the others are compared with.",
)
@placer_option
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first.")
@click.option("-j", "--processes", type=click.IntRange(1), help="At a time; default: all cores.")
@output_option
@report_option
def compare(  # noqa: PLR0913 - a verb takes its options
    asked: Asked,
    policies: str,
    placer: str,
    seeds: int,
    seed: int,
    processes: int | None,
    output: str,
    report: Path | None,
) -> None:
    """Replay the workload TRACE under several policies and compare what became of it."""
    names = split_policies(policies)
    scenario = asked.scenario(timeline=report is not None)
    if seeds > 1 and not scenario.random:
        click.echo(
            "note: nothing here is random, so every seed gives the same run; "
            "running one (see --synthetic, --node-mtbf, --estimate-error)",
            err=True,
        )
        seeds = 1
    run_and_show(
        scenario,
        names,
        placer,
        range(seed, seed + seeds),
        processes=processes,
        output=output,
        report=report,
    )


def run_and_show(  # noqa: PLR0913 - the whole of a comparison
    scenario: Scenario,
    names: Sequence[str],
    placer: str,
    seeds: Sequence[int],
    *,
    processes: int | None = None,
    output: str = "table",
    report: Path | None = None,
) -> None:
    """Run every policy with every seed, print the comparison and write the report."""
    from roost.cli.figures import print_comparison
    from roost.cli.progress import watching
    from roost.sim.many import run_many

    cases = [(name, seed) for name in names for seed in seeds]
    for name in names:  # a typo shows before anything runs
        scenario.check_names(name, placer)
    labels = [name if len(seeds) == 1 else f"{name}, seed {seed}" for name, seed in cases]
    with watching(labels) as watcher:
        runs = run_many(scenario, cases, placer, processes=processes, watcher=watcher)
    if report is not None:
        from roost.sim.report import write_report

        write_report(report, runs)
    print_comparison(runs, output)
    if report is not None:
        click.echo(f"report: {report}", err=output != "table")


def split_policies(text: str) -> list[str]:
    """Policy texts from a comma-separated list; commas inside parameters belong to them."""
    names: list[str] = []
    for item in text.split(","):
        head, equals, _ = item.partition("=")
        if names and equals and ":" not in head:
            names[-1] += f",{item}"
        elif item.strip():
            names.append(item.strip())
    return list(dict.fromkeys(names))
