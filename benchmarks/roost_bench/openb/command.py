"""``roost bench openb``: FGD's benchmark for any placers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import output_option
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost_bench.openb.benchmark import OpenbBench, OpenbRow

_PLACERS = "pack,fgd,usable"


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench openb --data openb
  roost bench openb --data openb --variants default,gpuspec33 --placers fgd,usable --seeds 101-105
  roost bench openb --data openb --variants default --load 1.1 -o json""",
)
@option(
    "--data",
    section="Workload",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that holds openb's nodes.csv and pods-VARIANT.csv.",
)
@option(
    "--variants",
    section="Workload",
    metavar="NAME,...",
    help="Default: all that are there.",
)
@option(
    "--seeds",
    section="Workload",
    default="42-46",
    show_default=True,
    metavar="N,...",
    help="Orders of nodes and pods: numbers, or ranges such as 42-51.",
)
@option(
    "--load",
    section="Workload",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Pods leave again, and come as often as asks for X times all GPUs; default: none leaves.",
)
@option(
    "--placers",
    section="Policy",
    default=_PLACERS,
    show_default=True,
    metavar="NAME,...",
)
@option(
    "-j",
    "--jobs",
    section="Run",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Runs at a time, each in a process of its own; with 1 their times are the truest.",
)
@output_option
def openb(  # noqa: PLR0913 - a verb takes its options
    data: Path,
    variants: str | None,
    seeds: str,
    load: float | None,
    placers: str,
    jobs: int,
    output: str,
) -> None:
    """Fill a cluster with pods that take shares of GPUs, as FGD's authors (ATC'23) did.

    Prints how much of all GPUs is given away when pods have come that ask for all of them, how
    much is free and of no use to what usually comes, and the CPU time for each pod. Beside fgd
    stands what its authors published.
    """
    from roost.placement import placer as find_placer
    from roost_bench.openb.benchmark import OpenbBench

    names = [name.strip() for name in placers.split(",") if name.strip()]
    for name in names:
        find_placer(name)
    bench = OpenbBench(str(data), load)
    there = bench.variants()
    chosen = [name.strip() for name in variants.split(",")] if variants else there
    if missing := [name for name in chosen if name not in there]:
        raise InvalidSpec(f"there is no variant {missing[0]!r}; there are {', '.join(there)}")
    cases = [
        (bench, variant, name, seed)
        for variant in chosen
        for name in names
        for seed in _seeds(seeds)
    ]
    _print(_run_all(cases, at_once=jobs), output)


def _seeds(text: str) -> list[int]:
    """Seeds from a list such as 1,2,42-51."""
    found: list[int] = []
    for item in map(str.strip, text.split(",")):
        first, _, last = item.partition("-")
        ends = [first, last or first]
        if not all(end.isdecimal() for end in ends) or int(ends[1]) < int(ends[0]):
            raise InvalidSpec(f"--seeds takes numbers and ranges such as 42-51, not {item!r}")
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found


def _measure(bench: OpenbBench, variant: str, placer: str, seed: int) -> OpenbRow:
    return bench.measure(variant, placer, seed)


def _run_all(cases: Sequence[tuple[OpenbBench, str, str, int]], *, at_once: int) -> list[OpenbRow]:
    """Make all runs, and tell of each that is over."""
    from roost_bench.subprocesses import in_fresh_processes

    rows: dict[int, OpenbRow] = {}
    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    for number, row in in_fresh_processes(_measure, cases, at_once=at_once):
        rows[number] = row
        click.echo(
            f"[{len(rows)}/{len(cases)}] {row.variant} {row.placer} seed {row.seed}: "
            f"{row.allocated_pct:.2f} % given away, {row.us_per_pod:.0f} us a pod",
            err=True,
        )
    return [rows[number] for number in range(len(cases))]


def _print(rows: Sequence[OpenbRow], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table

    plain: list[dict[str, Any]] = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
    elif output == "csv":
        print_csv(plain)
    else:
        groups: dict[tuple[str, str], list[OpenbRow]] = {}
        for row in rows:
            groups.setdefault((row.variant, row.placer), []).append(row)
        print_table([_cells(group) for group in groups.values()])


def _cells(group: Sequence[OpenbRow]) -> dict[str, str]:
    from roost_bench.openb.published import FGD

    first = group[0]
    allocated = [row.allocated_pct for row in group]
    spread = f" ± {stdev(allocated):.2f}" if len(group) > 1 else ""
    known = FGD.get(first.variant) if first.placer == "fgd" and first.load is None else None
    return {
        "variant": first.variant,
        "placer": first.placer,
        "seeds": str(len(group)),
        "allocated %": f"{fmean(allocated):.2f}{spread}",
        "published": f"{known[0]:.2f} ± {known[1]:.2f}" if known else "",
        "frag %": f"{fmean(row.frag_pct for row in group):.2f}",
        "us/pod": f"{fmean(row.us_per_pod for row in group):.0f}",
    }
