"""``roost demo``: the real thing on this machine, or many policies on a recorded workload."""

from __future__ import annotations

from pathlib import Path

import click

from roost.cli.parameter_types import OutFile

_POLICIES = ["fifo", "backfill", "sjf", "srtf", "las", "tiresias", "drf", "alnair", "roost"]


@click.group(invoke_without_command=True)
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Train small models, see one grow and shrink, kill a worker, compare with the simulator.

    Everything is real, runs on this machine's CPUs, takes a minute or two and is removed again.
    It uses PyTorch where that is installed, NumPy elsewhere.
    """
    if ctx.invoked_subcommand is None:
        from roost.cli.output import print_table
        from roost.demo.show import run

        run(print_table)


@demo.command()
@click.option(
    "--report",
    type=OutFile(),
    default="demo.html",
    show_default=True,
    help="Where to write the HTML page.",
)
def policies(report: Path) -> None:
    """Replay a bundled workload on 8 nodes of 8 GPUs under several policies."""
    from roost.cli.compare import run_and_show
    from roost.core.spec import Level
    from roost.perf.speed import Speed
    from roost.sim.scenario import Scenario, uniform_cluster
    from roost.traces import bundled

    workload = bundled("demo")
    scenario = Scenario(
        workload=workload,
        nodes=uniform_cluster(8, 8, sockets=2, nodes_per_switch=4),
        speed=Speed(spread={Level.SWITCH: 0.9, Level.CLUSTER: 0.7}, scaling=0.9),
        costs={"checkpoint_every_s": 600, "checkpoint_s": 5, "restart_s": 30, "resize_s": 5},
        min_run_s=300,
        timeline=True,
    )
    click.echo(
        f"Replaying {len(workload.jobs)} jobs on 8 nodes of 8 GPUs under {len(_POLICIES)} policies."
    )
    click.echo()
    run_and_show(scenario, _POLICIES, "consolidate", range(1), report=report)
    click.echo("Open it in a browser; then try: roost compare --help")
