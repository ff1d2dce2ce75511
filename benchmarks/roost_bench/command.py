"""``roost bench``: measuring Roost itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from roost.cli.options import output_option
from roost.cli.output import number, print_csv, print_json, print_table
from roost.cli.parameter_types import Duration
from roost.errors import InvalidSpec
from roost_bench.ablation.command import ablation
from roost_bench.dl2.command import dl2
from roost_bench.gavel.command import gavel
from roost_bench.gpu.command import gpu
from roost_bench.guarantees.command import guarantees
from roost_bench.hived.command import hived
from roost_bench.kubernetes.command import kubernetes
from roost_bench.live.command import live
from roost_bench.live.deep import deep
from roost_bench.memory.command import memory
from roost_bench.openb.command import openb
from roost_bench.optimus.command import blocks, optimus
from roost_bench.portal.command import portal
from roost_bench.rhythm.command import rhythm
from roost_bench.seeds.command import seeds
from roost_bench.sensitivity.command import sensitivity
from roost_bench.sharing.command import gandiva, harmony
from roost_bench.sia.command import sia
from roost_bench.teams.command import teams
from roost_bench.usage import usage

#: Policies to time the decisions of.
_DECIDERS = "fifo,sjf,srtf,srsf,las,tiresias,gittins,drf,fair"
_TRAINERS = "roost,sia"


@click.group()
def bench() -> None:
    """Measure Roost itself; docs/benchmarks.md keeps the results."""


bench.add_command(ablation)
bench.add_command(dl2)
bench.add_command(gandiva)
bench.add_command(gavel)
bench.add_command(gpu)
bench.add_command(guarantees)
bench.add_command(harmony)
bench.add_command(hived)
bench.add_command(kubernetes)
bench.add_command(blocks)
bench.add_command(live)
bench.add_command(deep)
bench.add_command(memory)
bench.add_command(openb)
bench.add_command(optimus)
bench.add_command(portal)
bench.add_command(seeds)
bench.add_command(rhythm)
bench.add_command(sensitivity)
bench.add_command(sia)
bench.add_command(teams)
bench.add_command(usage)


@bench.command(
    epilog="""\b
Examples:
  roost bench sim --trace philly.csv --nodes 80 --policies fifo,srtf,tiresias
  roost bench sim --trace philly.csv --nodes 64 --sizes 1,2,4,8,16,32 --min-run 1s \\
      --first 30000 --count 5000 --policies fifo,tiresias:promote=0,gittins -o json"""
)
@click.option(
    "--trace",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A trace file.",
)
@click.option("--nodes", type=click.IntRange(1), required=True, metavar="N")
@click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True, metavar="N")
@click.option("--policies", default="fifo,srtf,las", show_default=True)
@click.option("--placer", default="first-fit", show_default=True)
@click.option("--sizes", default="", help="Only jobs of these numbers of GPUs, e.g. 1,2,4.")
@click.option("--min-run", type=Duration(), default=0.0, help="Only jobs at least this long.")
@click.option("--first", type=click.IntRange(0), default=0, help="Skip so many jobs.")
@click.option("--count", help="So many jobs; several counts, e.g. 5000,80000, are run in turn.")
@output_option
def sim(  # noqa: PLR0913 - a verb takes its options
    trace: Path,
    nodes: int,
    gpus_per_node: int,
    policies: str,
    placer: str,
    sizes: str,
    min_run: float,
    first: int,
    count: str | None,
    output: str,
) -> None:
    """Replay TRACE under each policy, in a process of its own, and say what it cost."""
    from roost import traces
    from roost.cli.compare import split_policies
    from roost.placement import placer as find_placer
    from roost.policies import policy as find_policy
    from roost_bench.simulator import Selection, SimBench

    names = split_policies(policies)
    for name in names:
        find_policy(name)
    find_placer(placer)
    traces.recognise(trace)
    rows = []
    for many in whole_numbers("--count", count) or (None,):
        selection = Selection(whole_numbers("--sizes", sizes), min_run, first, many)
        measure = SimBench(str(trace), nodes, gpus_per_node, placer, selection).measure
        for name in names:
            cost = measure(name)
            per_s = round(cost.events / cost.cpu_s, 1)
            rows.append({**dataclasses.asdict(cost), "events_per_cpu_s": per_s})
            if output == "table":
                click.echo(f"{name}: {rows[-1]['cpu_s']:.2f} CPU s", err=True)
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table(
            [
                {
                    "policy": row["policy"],
                    "jobs": f"{row['jobs']:,}",
                    "mean jct s": f"{row['mean_jct_s']:.1f}",
                    "median": f"{row['median_jct_s']:.1f}",
                    "queued s": f"{row['mean_queued_s']:.1f}",
                    "makespan s": number(row["makespan_s"]),
                    "preempted": number(row["preemptions"]),
                    "events": number(row["events"]),
                    "wall s": f"{row['wall_s']:.2f}",
                    "cpu s": f"{row['cpu_s']:.2f}",
                    "us/event": f"{1e6 * row['cpu_s'] / row['events']:.1f}",
                    "events/cpu s": number(row["events_per_cpu_s"]),
                    "jobs/cpu s": number(row["jobs"] / row["cpu_s"]),
                    "rss mib": number(row["peak_rss_mib"]),
                }
                for row in rows
            ]
        )


@bench.command(
    epilog="""\b
Examples:
  roost bench decide --nodes 16000 --jobs 4000 --policies fifo,srtf,tiresias
  roost bench decide --policies sia,optimus --every 10m
  roost bench decide --training --policies roost,sia"""
)
@click.option("--nodes", type=click.IntRange(1), help="Default: 16000; 256 with --training.")
@click.option("--jobs", type=click.IntRange(2), help="Default: 4000; 2000 with --training.")
@click.option("--policies", help=f"Default: {_DECIDERS}; {_TRAINERS} with --training.")
@click.option("--placer", default="first-fit", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True)
@click.option(
    "--every",
    type=Duration(),
    help="Between decisions; policies that decide in rounds or slots need as much, so that each "
    "is one of theirs. Default: 10s; 60s with --training.",
)
@click.option(
    "--training",
    is_flag=True,
    help="Adaptive training jobs on GPUs of three kinds, instead of rigid jobs.",
)
@output_option
def decide(  # noqa: PLR0913 - a verb takes its options
    nodes: int | None,
    jobs: int | None,
    policies: str | None,
    placer: str,
    rounds: int,
    every: float | None,
    output: str,
    *,
    training: bool,
) -> None:
    """Time single decisions on a full cluster with half of the jobs waiting.

    With --training all jobs share a cluster of 2048 GPUs, have told how fast they go where they
    ran, and may be given any size on any kind.
    """
    from roost.cli.compare import split_policies
    from roost.policies import policy as find_policy
    from roost_bench.decisions import RigidJobs, TrainingJobs, time_decisions

    crowd = (
        TrainingJobs(nodes or 256, jobs or 2000)
        if training
        else RigidJobs(nodes or 16000, jobs or 4000)
    )
    every_s = every or (60.0 if training else 10.0)
    names = split_policies(policies or (_TRAINERS if training else _DECIDERS))
    for name in names:
        find_policy(name)
    rows = []
    for name in names:
        found = time_decisions(name, crowd, placer=placer, rounds=rounds, every_s=every_s)
        rows.append(dataclasses.asdict(found))
        if output == "table":
            click.echo(f"{name}: {found.median_ms:.2f} ms", err=True)
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table(
            [
                {name: f"{v:.2f}" if isinstance(v, float) else str(v) for name, v in row.items()}
                for row in rows
            ]
        )


def whole_numbers(option: str, text: str | None) -> tuple[int, ...]:
    """Numbers from a list such as 1,2,4."""
    items = [item.strip() for item in (text or "").split(",")]
    wrong = [item for item in items if item and not item.isdecimal()]
    if wrong:
        raise InvalidSpec(f"{option} takes whole numbers such as 1,2,4, not {wrong[0]!r}")
    return tuple(int(item) for item in items if item)
