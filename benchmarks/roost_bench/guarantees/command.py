"""``roost bench guarantees``: what sharing a cluster costs its tenants, with cells and without."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import complete_placers, complete_policies, output_option
from roost.cli.parameter_types import Number, Verb, option

if TYPE_CHECKING:
    from roost_bench.guarantees.benchmark import GuaranteesBench, GuaranteesRow, Play
    from roost_bench.guarantees.tenants import Tenant

_GENERATED = 2000
#: How often a run says how far it is, in seconds.
_TELL_S = 10.0
_DAY_S = 86400.0


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench guarantees
  roost bench guarantees --data philly.csv
  roost bench guarantees --data philly.csv --limit 20000 --load 0.7 -o json""",
)
@option(
    "--data",
    section="Workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A trace whose virtual clusters are the tenants, such as philly.csv; without it a small "
    "workload is generated.",
)
@option(
    "--limit",
    section="Workload",
    type=click.IntRange(1),
    metavar="N",
    help=f"Only the first N jobs; of generated ones {_GENERATED} by default.",
)
@option(
    "--seed",
    section="Workload",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Of generated jobs.",
)
@option(
    "--load",
    section="Workload",
    type=Number(most=1.0),
    default=0.8,
    show_default=True,
    help="The part of a tenant's cells that its jobs ask for on average.",
)
@option(
    "--policy",
    section="Policy",
    default="fifo",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_policies,
)
@option(
    "--placer",
    section="Policy",
    default="consolidate",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_placers,
)
@option(
    "-j",
    "--jobs",
    section="Run",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Runs at a time, each in a process of its own.",
)
@output_option
def guarantees(  # noqa: PLR0913 - a verb takes its options
    data: Path | None,
    limit: int | None,
    seed: int,
    load: float,
    policy: str,
    placer: str,
    jobs: int,
    output: str,
) -> None:
    """Count sharing anomalies: jobs that wait though they would run in their private cluster.

    Every tenant is played alone on its cells, and all together on a cluster of the same size: under
    quotas of as many GPUs, and under promises of these cells. A tenant's opportunistic use is what
    its jobs held beyond what it was promised.
    """
    from roost import traces
    from roost.placement import placer as find_placer
    from roost.policies import policy as find_policy
    from roost_bench.guarantees.benchmark import GuaranteesBench
    from roost_bench.guarantees.tenants import generated, tenants_of

    find_policy(policy)
    find_placer(placer)
    workload = generated(limit or _GENERATED, seed) if data is None else traces.read(data)
    tenants = tenants_of(workload, load, limit)
    rows = _rows(GuaranteesBench(policy, placer), tenants, at_once=jobs)
    _print(rows, output)


def _rows(
    bench: GuaranteesBench, tenants: Sequence[Tenant], *, at_once: int
) -> list[GuaranteesRow]:
    """Make all runs, the longest first, and tell of each that is over."""
    from roost_bench.guarantees.benchmark import CELLS, QUOTAS, row
    from roost_bench.subprocesses import in_fresh_processes

    shared = [(bench, tenants, sharing) for sharing in (CELLS, QUOTAS)]
    private = sorted(
        ((bench, [tenant], "") for tenant in tenants), key=lambda case: -len(case[1][0].jobs)
    )
    plays: dict[str, Play] = {}
    cases = [*shared, *private]
    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    for number, play in in_fresh_processes(_play, cases, at_once=at_once):
        _, who, sharing = cases[number]
        name = sharing or str(who[0].name)
        plays[name if sharing else f"alone {name}"] = play
        click.echo(
            f"[{len(plays)}/{len(cases)}] {name}{'' if sharing else ' alone'}: "
            f"{len(play.jobs):,} jobs, {play.preemptions:,} preemptions, {play.cpu_s:.1f} CPU s",
            err=True,
        )
    return [
        row(tenant, sharing, plays[f"alone {tenant.name}"], plays[sharing])
        for sharing in (QUOTAS, CELLS)
        for tenant in tenants
    ]


def _play(bench: GuaranteesBench, tenants: Sequence[Tenant], sharing: str) -> Play:
    told = _Teller(sharing or f"{tenants[0].name} alone")
    return bench.together(tenants, sharing, told) if sharing else bench.alone(tenants[0], told)


class _Teller:
    """Says now and then how far a run is."""

    def __init__(self, name: str) -> None:
        self._name, self._at = name, time.monotonic()

    def __call__(self, now: float, over: int, jobs: int) -> None:
        """Take note of progress."""
        if time.monotonic() - self._at >= _TELL_S:
            self._at = time.monotonic()
            text = f"{self._name}: {over:,} of {jobs:,} jobs over, day {now / _DAY_S:.1f}"
            click.echo(f"  {text}", err=True)


def _print(rows: Sequence[GuaranteesRow], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table

    plain: list[dict[str, Any]] = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
        return
    if output == "csv":
        print_csv(plain)
        return
    print_table([_cells(row) for row in rows])
    for sharing in dict.fromkeys(row.sharing for row in rows):
        mine = [row for row in rows if row.sharing == sharing]
        worse = sum(row.jct_h > row.alone_jct_h for row in mine)
        click.echo(
            f"{sharing}: {sum(row.anomalies for row in mine):,} of "
            f"{sum(row.jobs for row in mine):,} jobs with a sharing anomaly, "
            f"{sum(row.anomalous_wait_h for row in mine):,.1f} h in all; "
            f"{worse} of {len(mine)} queues worse off than alone"
        )


def _cells(row: GuaranteesRow) -> dict[str, str]:
    return {
        "sharing": row.sharing,
        "queue": row.queue,
        "jobs": f"{row.jobs:,}",
        "promised": row.cells,
        "alone jct h": f"{row.alone_jct_h:.2f}",
        "jct h": f"{row.jct_h:.2f}",
        "anomalies": f"{row.anomalies:,}",
        "anomalous h": f"{row.anomalous_wait_h:,.1f}",
        "overtaken": f"{row.overtaken:,}",
        "beyond promise": f"{row.opportunistic_pct:.1f} %",
    }
