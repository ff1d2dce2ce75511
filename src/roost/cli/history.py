"""``roost history``: what a server has run, as a trace for the simulator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli import connection
from roost.cli.parameter_types import Duration, OutFile, Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.traces.workload import Workload


@click.group()
def history() -> None:
    """Write the jobs that a server has run as a trace."""


@history.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost history export jobs.csv --since 7d
  roost history export jobs.csv --cluster nodes.csv
  roost compare jobs.csv --cluster nodes.csv --policies roost,backfill,srtf""",
)
@click.argument("path", type=OutFile())
@option("--since", section="What", type=Duration(), help="Jobs submitted in that time; else all.")
@option("--cluster", section="What", type=OutFile(), help="Write its nodes there, too.")
def export(path: Path, since: float | None, cluster: Path | None) -> None:
    """Write the jobs that are over to the csv file PATH: sizes, users, queues, real run times."""
    from roost.traces import write_workload
    from roost.traces.table import write_nodes

    workload = recorded(since)
    write_workload(path, workload)
    click.echo(f"written: {path}, {len(workload.jobs):,} jobs")
    if cluster is not None:
        write_nodes(cluster, workload.nodes)
        click.echo(f"written: {cluster}, {len(workload.nodes):,} nodes")


def recorded(since_s: float | None) -> Workload:
    """The jobs that are over on the server, with the time that they really ran, and its nodes.

    Jobs that never began are left out. Times count from the first submission.
    """
    from roost.jobs.recorded import ran, recorded_node, trace_job
    from roost.traces.workload import Workload

    with connection.connect() as client:
        after = 0.0 if since_s is None else time.time() - since_s
        over = client.jobs(state=("succeeded", "failed", "cancelled"))
        views = [view for view in over if view.submitted_at >= after and ran(view)]
        if not views:
            raise InvalidSpec("no job that ran is over on this server since then; try a later day")
        views.sort(key=lambda view: (view.submitted_at, view.id))
        first = views[0].submitted_at
        jobs = [trace_job(view, client.job(view.id).document(), first) for view in views]
        return Workload("history", jobs, tuple(map(recorded_node, client.nodes())))
