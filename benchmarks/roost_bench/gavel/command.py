"""``roost bench gavel``: Gavel's benchmark under any policies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import complete_policies, output_option
from roost.cli.parameter_types import Duration, Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost_bench.gavel.benchmark import GavelBench, GavelRow

_POLICIES = (
    "gavel:objective=max_min,gavel:objective=max_sum,gavel:objective=ftf,"
    "gavel:aware=no,themis,allox,fifo,las,srtf"
)


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench gavel --data gavel
  roost bench gavel --data gavel --trace msr-ee9e8c-seed0 --limit 200 --policies gavel,fifo
  roost bench gavel --data gavel --jobs-per-hour 2,4,6 --count 400 --policies gavel,gavel:aware=no
  roost bench gavel --data gavel --jobs-per-hour 2 --several --restart 30s -o json""",
)
@option(
    "--data",
    section="Workload",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that holds Gavel's throughputs.json, and its traces.",
)
@option(
    "--trace",
    section="Workload",
    metavar="FILE",
    help="A trace of Gavel's: a path, or a name in DIR; default: physical-*.trace.",
)
@option("--limit", section="Workload", type=click.IntRange(1), help="Only its first N jobs.")
@option(
    "--jobs-per-hour",
    section="Workload",
    metavar="RATE,...",
    help="Generate jobs that come at this rate instead, 0: all at once; several rates in turn.",
)
@option(
    "--count",
    section="Workload",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    metavar="N",
    help="How many jobs to generate.",
)
@option(
    "--several",
    section="Workload",
    is_flag=True,
    help="Let 30 % of the generated jobs have 2, 4 or 8 workers, as in Philly.",
)
@option("--seed", section="Workload", type=click.IntRange(0), default=0, show_default=True)
@option(
    "-p",
    "--policies",
    section="Policy",
    metavar="NAME,...",
    default=_POLICIES,
    show_default=True,
    shell_complete=complete_policies,
    help="Policies with their parameters; gavel:aware=no takes all kinds of GPU for equal.",
)
@option(
    "--cluster",
    section="Cluster",
    metavar="V100:P100:K80",
    help="GPUs of each kind; default: 8:16:24 for a physical trace, else 36:36:36.",
)
@option(
    "--gpus-per-node",
    section="Cluster",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar="N",
    help="Jobs that are spread over nodes go at the table's rates for that.",
)
@option(
    "--restart",
    section="Costs",
    type=Duration(),
    default=0.0,
    help="Time to start again; Gavel's simulations have none.",
)
@option(
    "-j",
    "--jobs",
    section="Run",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Runs at a time, each in a process of its own.",
)
@output_option
def gavel(  # noqa: PLR0913 - a verb takes its options
    data: Path,
    trace: str | None,
    limit: int | None,
    jobs_per_hour: str | None,
    count: int,
    seed: int,
    policies: str,
    cluster: str | None,
    gpus_per_node: int,
    restart: float,
    jobs: int,
    *,
    several: bool,
    output: str,
) -> None:
    """Run jobs whose speed depends on the kind of GPU, as Gavel's authors (OSDI'20) did.

    The table in DIR says how fast each type of job goes on V100, P100 and K80; policies that look
    at kinds are told it, as a profiler would tell. Prints mean and 99th percentile of the
    completion times, the makespan, and finish-time fairness: rho is a job's completion time over
    that on an equal part of the cluster of its own, so above 1 sharing has cost it time.
    """
    from roost.cli.compare import split_policies
    from roost.policies import policy as find_policy
    from roost_bench.gavel.benchmark import PHYSICAL, SIMULATED, GavelBench, find_trace
    from roost_bench.gavel.jobs import Mix

    names = split_policies(policies)
    for name in names:
        find_policy(name)
    if jobs_per_hour is not None and trace is not None:
        raise InvalidSpec("give --trace or --jobs-per-hour, not both")
    rates = _rates(jobs_per_hour)
    file = find_trace(str(data), trace if not rates else None, needed=not rates)
    physical = file is not None and Path(file).name.startswith("physical")
    shape = _cluster(cluster) if cluster else PHYSICAL if physical else SIMULATED
    base = GavelBench(str(data), shape, gpus_per_node, file, limit=limit, restart_s=restart)
    benches = [
        dataclasses.replace(base, mix=Mix(count, rate, several=several, seed=seed))
        for rate in rates
    ]
    _print(_run_all(benches or [base], names, at_once=jobs), output)


def _rates(text: str | None) -> list[float]:
    """Jobs per hour from a list such as 2,4,6."""
    found = []
    for item in filter(None, (text or "").split(",")):
        try:
            rate = float(item)
        except ValueError:
            rate = math.nan
        if not 0 <= rate < math.inf:
            raise InvalidSpec(f"--jobs-per-hour takes rates such as 2,4,6, not {item.strip()!r}")
        found.append(rate)
    if text is not None and not found:
        raise InvalidSpec("--jobs-per-hour takes rates such as 2,4,6")
    return found


def _cluster(text: str) -> tuple[int, ...]:
    """GPUs of each kind from a text such as 36:36:36."""
    parts = text.split(":")
    if not all(part.strip().isdecimal() for part in parts):
        raise InvalidSpec(f"--cluster takes GPUs of each kind such as 36:36:36, not {text!r}")
    return tuple(int(part) for part in parts)


def _run_all(
    benches: Sequence[GavelBench], names: Sequence[str], *, at_once: int
) -> list[GavelRow]:
    """Run every workload under every policy, and tell of each run that is over."""
    from roost_bench.gavel.benchmark import measure
    from roost_bench.subprocesses import in_fresh_processes

    cases = [(bench, name) for bench in benches for name in names]
    rows: dict[int, GavelRow] = {}
    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    for number, row in in_fresh_processes(measure, cases, at_once=at_once):
        rows[number] = row
        click.echo(
            f"[{len(rows)}/{len(cases)}] {_named(row)} {row.policy}: mean JCT "
            f"{row.mean_jct_h:.2f} h, in {row.wall_s:.1f} s",
            err=True,
        )
    return [rows[number] for number in range(len(cases))]


def _named(row: GavelRow) -> str:
    return row.workload if row.jobs_per_hour is None else f"{row.jobs_per_hour:g} jobs/h"


def _print(rows: Sequence[GavelRow], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table

    plain: list[dict[str, Any]] = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
    elif output == "csv":
        print_csv(plain)
    else:
        print_table([_cells(row, rows) for row in rows])


def _cells(row: GavelRow, rows: Sequence[GavelRow]) -> dict[str, str]:
    first = next(one for one in rows if _named(one) == _named(row))
    return {
        "workload": _named(row),
        "policy": row.policy,
        "jobs": str(row.jobs),
        "mean jct h": f"{row.mean_jct_h:.2f}",
        "vs first": f"{row.mean_jct_h / first.mean_jct_h:.2f}x",
        "p99 h": f"{row.p99_jct_h:.1f}",
        "makespan h": f"{row.makespan_h:.1f}",
        "rho": f"{row.mean_rho:.2f}",
        "worst": f"{row.worst_rho:.2f}",
        "preempted": f"{row.preemptions:,}",
        "gpu h/job": f"{row.gpu_hours_per_job:.1f}",
        "wall s": f"{row.wall_s:.1f}",
        "decision ms": f"{row.decision_ms_p50:.2f}",
    }
