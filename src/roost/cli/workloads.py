"""``roost generate`` and ``roost inspect``: making workloads, and looking at them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli.output import duration, print_table
from roost.cli.parameter_types import OutFile

if TYPE_CHECKING:
    from roost.traces.workload import Workload


@click.command(
    epilog="""\b
Examples:
  roost generate jobs.csv
  roost generate jobs.csv --set jobs=5000,arrivals=diurnal,load=0.9,gpus=512,elastic=0.3 --seed 7"""
)
@click.argument("path", type=OutFile())
@click.option("--set", "settings", default="", metavar="KEY=VALUE,...", help="See above.")
@click.option("--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True)
def generate(path: Path, settings: str, seed: int) -> None:
    """Write a synthetic workload to the csv file PATH.

    Sizes and run times are fitted to Microsoft's Philly trace. What can be set: jobs, arrivals
    (poisson, diurnal, bursty or uniform), daily_swing, load and gpus (or rate), queues, gpu_weights
    (such as 1:70/2:20/8:10), elastic, fractional, killed, failed, run_time_scale, max_run_s,
    estimate_error.
    """
    from roost.settings import build
    from roost.traces import write_workload
    from roost.traces.generate import Synthetic
    from roost.traces.generate import generate as make

    workload = make(build(Synthetic, "--set", settings, seed=seed))
    write_workload(path, workload)
    _describe(workload)
    click.echo(f"written: {path}")


@click.command(
    epilog="""\b
Examples:
  roost inspect cluster_job_log
  roost inspect trace.csv --format philly-csv --to jobs.csv"""
)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--format", "trace_format", metavar="NAME", default="auto", help="Its format, if not clear."
)
@click.option("--skip-bad-rows", is_flag=True, help="Count malformed rows and go on.")
@click.option(
    "--throughputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rates of the jobs of a Gavel trace.",
)
@click.option("--to", type=OutFile(), help="Write the jobs here as csv.")
def inspect(
    path: Path | None,
    trace_format: str,
    *,
    skip_bad_rows: bool,
    throughputs: Path | None,
    to: Path | None,
) -> None:
    """Say what is in the trace file PATH; without one, list the formats that can be read."""
    from roost import traces

    if path is None:
        print_table(
            [{"format": name, "what": form.summary} for name, form in traces.FORMATS.items()]
        )
        return
    options = {} if throughputs is None else {"throughputs": throughputs}
    workload = traces.read(path, format=trace_format, skip_bad_rows=skip_bad_rows, **options)
    _describe(workload)
    for row in workload.skipped[:10]:
        click.echo(f"skipped line {row.line}, column {row.column!r}: {row.why}")
    if len(workload.skipped) > 10:  # noqa: PLR2004
        click.echo(f"... and {len(workload.skipped) - 10} more")
    if to is not None:
        traces.write_workload(to, workload)
        click.echo(f"written: {to}")


def _describe(workload: Workload) -> None:
    """Size, span, load and mix of a workload."""
    jobs = workload.jobs
    span = jobs[-1].submitted_at - jobs[0].submitted_at
    service = sum(job.work_s * job.spec.gpus for job in jobs)
    times = sorted(job.work_s for job in jobs)
    click.echo(f"{workload.name}: {len(jobs):,} jobs over {duration(span)}")
    click.echo(
        f"run time: median {duration(times[len(times) // 2])}, "
        f"mean {duration(sum(times) / len(times))}, longest {duration(times[-1])}"
    )
    if span > 0:
        click.echo(f"asks for {service / span:,.1f} GPUs on average")
    if workload.nodes:
        gpus = sum(node.gpus for node in workload.nodes)
        click.echo(f"cluster: {len(workload.nodes):,} nodes, {gpus:,} GPUs")
    sizes = Counter(job.spec.gpus for job in jobs)
    queues = Counter(job.spec.queue for job in jobs)
    outcomes = Counter(job.outcome.value for job in jobs)
    for title, counts in (("GPUs", sizes), ("queues", queues), ("outcomes", outcomes)):
        top = ", ".join(
            f"{name:g}: {n:,}" if isinstance(name, float) else f"{name}: {n:,}"
            for name, n in counts.most_common(8)
        )
        more = f", and {len(counts) - 8} more" if len(counts) > 8 else ""  # noqa: PLR2004
        click.echo(f"{title}: {top}{more}")
    if workload.skipped:
        click.echo(f"rows skipped: {len(workload.skipped)}")
