"""``roost simulate``: one run."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import click

from roost.cli.options import (
    Asked,
    Duration,
    output_option,
    placer_option,
    report_option,
    scenario_options,
)
from roost.errors import InvalidSpec


@click.command(
    epilog="""\b
Examples:
  roost simulate jobs.csv --nodes 16 --policy srtf --restart 30s --checkpoint-every 10m
  roost simulate --synthetic jobs=2000,load=0.9 --nodes 8 --policy tiresias --report run.html
  roost simulate jobs.csv --nodes 16 --stop-at 2d --save half.roost
  roost simulate --resume half.roost"""
)
@scenario_options
@click.option("-p", "--policy", default="fifo", show_default=True, help="See roost policies.")
@placer_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--stop-at", type=Duration(), help="Stop at that virtual time.")
@click.option("--save", type=click.Path(path_type=Path), help="Save the state there at the end.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with a saved run.")
@click.option("--events", type=click.Path(path_type=Path), help="Write the event log (see diff).")
@output_option
@report_option
def simulate(  # noqa: PLR0913 - a verb takes its options
    asked: Asked,
    policy: str,
    placer: str,
    seed: int,
    stop_at: float | None,
    save: Path | None,
    resume: Path | None,
    events: Path | None,
    output: str,
    report: Path | None,
) -> None:
    """Replay the workload TRACE under one policy and print what became of it."""
    from roost.cli.figures import print_run
    from roost.cli.progress import watching
    from roost.sim import saved
    from roost.sim.log import LogWriter
    from roost.sim.simulation import Simulation

    if resume is not None:
        if asked.trace is not None or asked.synthetic is not None:
            raise InvalidSpec("--resume goes on with a saved run; it takes no other workload")
        simulation = saved.load(resume)
    else:
        scenario = asked.scenario(timeline=report is not None)
        simulation = Simulation(scenario.setup(policy, placer, seed))
    with contextlib.ExitStack() as stack:
        observer = None
        if events is not None:
            observer = LogWriter(stack.enter_context(events.open("w", encoding="utf-8")))
        watch = stack.enter_context(watching([simulation.setup.policy_name]))
        results = simulation.run(
            math.inf if stop_at is None else stop_at,
            observer=observer,
            progress=None if watch is None else lambda *figures: watch(0, *figures),
        )
    if save is not None:
        saved.save(simulation, save)
    if report is not None:
        from roost.sim.report import write_report

        write_report(report, [results])
    print_run(results, output)
    if report is not None:
        click.echo(f"report: {report}", err=output != "table")
