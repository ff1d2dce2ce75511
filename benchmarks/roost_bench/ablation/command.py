"""``roost bench ablation``: what each part of the default policy brings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from roost.cli.options import output_option
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.sim.metrics import Estimate
    from roost_bench.ablation.benchmark import AblationBench, AblationRow, Variant

_MOST_LOAD = 10.0


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench ablation
  roost bench ablation --jobs 1000 --load 1.5 --seeds 10 -o json""",
)
@option(
    "--jobs",
    section="Workload",
    type=click.IntRange(10),
    default=400,
    show_default=True,
    metavar="N",
    help="Jobs of each run.",
)
@option(
    "--load",
    section="Workload",
    type=click.FloatRange(0, _MOST_LOAD, min_open=True),
    default=1.2,
    show_default=True,
    metavar="X",
    help="They ask for X times all GPUs on average, while they come.",
)
@option(
    "--seeds",
    section="Run",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    metavar="N",
    help="Workloads to draw; intervals need two at least.",
)
@option("--seed", section="Run", type=click.IntRange(0), default=1, help="The first of them.")
@option(
    "-j",
    "--processes",
    section="Run",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Runs at a time.",
)
@output_option
def ablation(  # noqa: PLR0913 - a verb takes its options
    jobs: int, load: float, seeds: int, seed: int, processes: int, output: str
) -> None:
    """Switch parts of the default policy off, and replay the same mixed jobs.

    The jobs ask for whole GPUs, for shares of one, for CPUs alone, and some are elastic, on 64 GPUs
    of two kinds, and belong to three queues; under the last variant two of these are promised cells
    for 40 GPUs. Times are means over the seeds, with half the width of their 95 % interval;
    the change is the mean of what differs with the same seed, from the first row.
    """
    from roost_bench.ablation.benchmark import VARIANTS, AblationBench

    bench = AblationBench(jobs, load)
    cases = [
        (bench, variant, number) for variant in VARIANTS for number in range(seed, seed + seeds)
    ]
    _print(_run_all(cases, at_once=processes), output)


def _measure(bench: AblationBench, variant: Variant, seed: int) -> AblationRow:
    return bench.measure(variant, seed)


def _run_all(
    cases: Sequence[tuple[AblationBench, Variant, int]], *, at_once: int
) -> list[AblationRow]:
    """Make all runs, and tell of each that is over."""
    from roost_bench.subprocesses import in_fresh_processes

    rows: dict[int, AblationRow] = {}
    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    for number, row in in_fresh_processes(_measure, cases, at_once=at_once):
        rows[number] = row
        click.echo(
            f"[{len(rows)}/{len(cases)}] {row.variant}, seed {row.seed}: "
            f"mean JCT {row.mean_jct_s:.0f} s, {row.allocated_pct:.1f} % given away",
            err=True,
        )
    return [rows[number] for number in range(len(cases))]


def _print(rows: Sequence[AblationRow], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table

    plain = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
    elif output == "csv":
        print_csv(plain)
    else:
        groups: dict[str, list[AblationRow]] = {}
        for row in rows:
            groups.setdefault(row.variant, []).append(row)
        first = next(iter(groups.values()))
        print_table([_cells(group, first) for group in groups.values()])


def _cells(group: Sequence[AblationRow], first: Sequence[AblationRow]) -> dict[str, str]:
    from roost.sim.metrics import estimate

    def figure(name: str, digits: int = 0) -> str:
        return _text(estimate([getattr(row, name) for row in group]), digits)

    pairs = zip(group, first, strict=True)
    change = estimate([100 * (row.mean_jct_s / other.mean_jct_s - 1) for row, other in pairs])
    return {
        "on": group[0].variant,
        "placer": group[0].placer,
        "mean jct s": figure("mean_jct_s"),
        "change %": "" if group is first else _text(change, 1),
        "p99 s": figure("p99_jct_s"),
        "shares s": figure("shares_jct_s"),
        "they wait s": figure("shares_wait_s"),
        "whole s": figure("whole_jct_s"),
        "elastic s": figure("elastic_jct_s"),
        "promised wait s": figure("promised_wait_s"),
        "others wait s": figure("others_wait_s"),
        "allocated %": figure("allocated_pct", 1),
        "unfinished": str(sum(row.unfinished for row in group)),
    }


def _text(found: Estimate, digits: int) -> str:
    if found.mean is None:
        raise InvalidSpec("no job was over: nothing can be compared")
    width = "" if found.half_width is None else f" ± {found.half_width:.{digits}f}"
    return f"{found.mean:.{digits}f}{width}"
