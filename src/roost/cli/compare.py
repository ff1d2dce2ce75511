"""``roost compare``: many policies, several seeds, side by side."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli.options import (
    complete_policies,
    output_option,
    placer_option,
    progress_option,
    report_option,
    scenario_options,
    since_option,
)
from roost.cli.parameter_types import Verb, option
from roost.cli.simulate_options import SimulationOptions
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.sim.scenario import Scenario

_runs = functools.partial(option, section="Run", metavar="N")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost compare jobs.csv --nodes 16 --policies fifo,srtf,tiresias,alnair
  roost compare --synthetic jobs=1000,load=0.95 --nodes 8 --seeds 5 --report compare.html
  roost compare jobs.csv --nodes 16 --policies fifo,tiresias:limits=600/3600 -o json
  roost compare --from history --since 7d --policies roost,backfill,srtf""",
)
@scenario_options
@option(
    "-p",
    "--policies",
    section="Policy",
    metavar="NAME,...",
    default="fifo,backfill,srtf,tiresias,gittins,drf,fair,alnair,roost",
    show_default=True,
    shell_complete=complete_policies,
    help="Which job runs next; the first is what the others are compared with.",
)
@placer_option
@option(
    "--from",
    "source",
    section="Run",
    type=click.Choice(["history"]),
    help="Replay the jobs that the running server has run, on its nodes, instead of a TRACE.",
)
@since_option
@_runs("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many seeds.")
@_runs("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@_runs("-j", "--processes", type=click.IntRange(1), help="Runs at a time; default: all cores.")
@output_option
@report_option
@progress_option
def compare(  # noqa: PLR0913 - a verb takes its options
    asked: SimulationOptions,
    policies: str,
    placer: str,
    seeds: int,
    seed: int,
    processes: int | None,
    *,
    source: str | None,
    since: float | None,
    output: str,
    report: Path | None,
    progress: bool | None,
) -> None:
    """Replay the workload TRACE under several policies and compare what became of it."""
    from roost.cli.history import recorded
    from roost.sim.scenario import Scenario

    names = split_policies(policies)
    for name in names:  # a typo shows before a large trace is read
        Scenario.check_names(name, placer)
    if source is None:
        asked.refuse(("since",), "goes with --from history")
    past = None if source is None else recorded(since)
    scenario = asked.scenario(timeline=report is not None, recorded=past)
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
        progress=progress,
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
    progress: bool | None = None,
) -> None:
    """Run every policy with every seed, write the report and print the comparison."""
    from roost.cli.figures import note_unfinished, print_comparison
    from roost.cli.progress import watching
    from roost.sim.parallel import run_many

    cases = [(name, seed) for name in names for seed in seeds]
    labels = [name if len(seeds) == 1 else f"{name}, seed {seed}" for name, seed in cases]
    with watching(labels, show=progress) as watcher:
        runs = run_many(scenario, cases, placer, processes=processes, watcher=watcher)
    try:
        if report is not None:
            from roost.sim.report import write_report

            write_report(report, runs)
    finally:  # also on a full disk: the runs may have taken long
        print_comparison(runs, output)
    note_unfinished(runs)
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
    if not names:
        raise InvalidSpec("name at least one policy; see roost policies")
    return list(dict.fromkeys(names))
