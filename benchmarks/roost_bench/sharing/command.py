"""``roost bench harmony`` and ``roost bench gandiva``: jobs that share GPUs, and searches."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli.options import output_option
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost_bench.sharing.benchmark import SharingRow
    from roost_bench.sharing.moving import MoveRow
    from roost_bench.sharing.prediction import PredictionRow
    from roost_bench.sharing.search import SearchRow

_POLICIES = "balance,fifo,sjf,pack,gandiva,harmony,known"
_PARTS = ("pack", "move", "search")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench harmony --data gavel
  roost bench harmony --data gavel --load 1.1,1.4 --seeds 8 --first-seed 100 -o json
  roost bench harmony --data gavel --policies balance,harmony:most_loss=1
  roost bench harmony --data gavel --only model""",
)
@option(
    "--data",
    section="Workload",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that holds Gavel's throughputs.json.",
)
@option(
    "--load",
    section="Workload",
    default="0.9,1.1,1.4",
    show_default=True,
    metavar="LOAD,...",
    help="Work that comes, alone, over what the GPUs do one job at a time; several in turn.",
)
@option("--seeds", section="Workload", type=click.IntRange(1), default=8, show_default=True)
@option("--first-seed", section="Workload", type=click.IntRange(0), default=0, show_default=True)
@option(
    "-p",
    "--policies",
    section="Policy",
    metavar="NAME,...",
    default=_POLICIES,
    show_default=True,
    help="Policies; balance and pack take any partner, known is harmony that knows all pairs.",
)
@option(
    "--only",
    section="Run",
    type=click.Choice(["runs", "model"]),
    default="runs",
    show_default=True,
    help="runs: workloads under policies; model: how well pairs are predicted that were not seen.",
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
def harmony(  # noqa: PLR0913 - a verb takes its options
    data: Path,
    load: str,
    seeds: int,
    first_seed: int,
    policies: str,
    only: str,
    jobs: int,
    output: str,
) -> None:
    """Run jobs that may share a GPU, on Gavel's measured pairs, under policies that let them.

    300 jobs of one GPU come to 16 GPUs; at most two are on one. Prints mean and 99th percentile of
    the completion times, work per GPU, and how they compare with load balancing (balance): an empty
    GPU first, else any partner. fifo and sjf leave every job alone on its GPU.
    """
    from roost_bench.sharing.benchmark import read_table

    read_table(str(data))
    chosen = range(first_seed, first_seed + seeds)
    if only == "model":
        _print_predictions(str(data), chosen, output)
    else:
        _print(_run_all(str(data), (_loads(load), chosen, policies), at_once=jobs), output)


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench gandiva --data gavel
  roost bench gandiva --only search
  roost bench gandiva --data gavel --only pack,move --load 1.4 --seeds 4 -o json""",
)
@option(
    "--data",
    section="Workload",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that holds Gavel's throughputs.json; for pack.",
)
@option(
    "--only",
    section="Run",
    default="pack,move,search",
    show_default=True,
    metavar="PART,...",
    help="pack: jobs that share GPUs; move: gangs beside single GPUs; search: many short trials.",
)
@option("--load", section="Workload", default="1.1,1.4", show_default=True, metavar="LOAD,...")
@option("--seeds", section="Workload", type=click.IntRange(1), default=8, show_default=True)
@option("--first-seed", section="Workload", type=click.IntRange(0), default=0, show_default=True)
@option(
    "-j",
    "--jobs",
    section="Run",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Runs of pack at a time, each in a process of its own.",
)
@output_option
def gandiva(  # noqa: PLR0913 - a verb takes its options
    data: Path | None,
    only: str,
    load: str,
    seeds: int,
    first_seed: int,
    jobs: int,
    output: str,
) -> None:
    """Run what Gandiva is for, part by part.

    pack is the benchmark of roost bench harmony, beside first come first served and load balancing.
    move lets gangs and jobs of one GPU share nodes, with and without moves. search tries 256 sets
    of hyper-parameters and keeps 16; it says how much sooner the best is known than one by one.
    """
    from roost.errors import unknown

    parts = [part.strip() for part in only.split(",")]
    for part in parts:
        if part not in _PARTS:
            raise unknown("part", part, _PARTS)
    chosen = range(first_seed, first_seed + seeds)
    rows: list[SharingRow | MoveRow | SearchRow] = []
    if "pack" in parts:
        if data is None:
            raise InvalidSpec("pack needs --data DIR, a folder that holds Gavel's throughputs.json")
        rows += _run_all(str(data), (_loads(load), chosen, "balance,fifo,gandiva"), at_once=jobs)
    if "move" in parts:
        from roost_bench.sharing.moving import moves

        rows += moves(("gandiva", "gandiva:move=no"), chosen)
    if "search" in parts:
        from roost_bench.sharing.search import searches

        rows += searches(("gandiva",))
    _print_parts(rows, output)


def _print_parts(rows: Sequence[SharingRow | MoveRow | SearchRow], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table

    plain = [{"part": "pack", **dataclasses.asdict(row)} for row in rows]
    if output == "json":
        print_json(plain)
    elif output == "csv":
        names = dict.fromkeys(name for row in plain for name in row)
        print_csv([{name: row.get(name, "") for name in names} for row in plain])
    else:
        for part in dict.fromkeys(row["part"] for row in plain):
            print_table(
                [
                    {
                        name.replace("_", " "): f"{v:.3f}" if isinstance(v, float) else str(v)
                        for name, v in row.items()
                    }
                    for row in plain
                    if row["part"] == part
                ]
            )


def _loads(text: str) -> list[float]:
    found = []
    for item in text.split(","):
        try:
            value = float(item)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise InvalidSpec(
                f"--load takes positive numbers such as 0.9,1.4, not {item.strip()!r}"
            )
        found.append(value)
    return found


def _run_all(
    data: str, asked: tuple[Sequence[float], Sequence[int], str], *, at_once: int
) -> list[SharingRow]:
    """Run every workload under every policy, and tell of each run that is over."""
    from roost.cli.compare import split_policies
    from roost_bench.sharing.benchmark import check_contender, measure
    from roost_bench.subprocesses import in_fresh_processes

    loads, seeds, policies = asked
    names = split_policies(policies)
    for name in names:
        check_contender(name)
    cases = [(data, name, load, seed) for load in loads for name in names for seed in seeds]
    rows: dict[int, SharingRow] = {}
    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    for number, row in in_fresh_processes(measure, cases, at_once=at_once):
        rows[number] = row
        click.echo(
            f"[{len(rows)}/{len(cases)}] load {row.load:g} seed {row.seed} {row.policy}: mean JCT "
            f"{row.mean_jct_h:.2f} h",
            err=True,
        )
    return [rows[number] for number in range(len(cases))]


def _print(rows: Sequence[SharingRow], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table

    plain = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
    elif output == "csv":
        print_csv(plain)
    else:
        groups: dict[tuple[float, str], list[SharingRow]] = {}
        for row in rows:
            groups.setdefault((row.load, row.policy), []).append(row)
        print_table([_cells(some, groups) for some in groups.values()])


def _cells(
    rows: Sequence[SharingRow], groups: dict[tuple[float, str], list[SharingRow]]
) -> dict[str, str]:
    first = rows[0]
    base = groups.get((first.load, "balance"))
    mean = statistics.fmean(row.mean_jct_h for row in rows)
    against = "-" if base is None else f"{mean / statistics.fmean(r.mean_jct_h for r in base):.3f}"
    return {
        "load": f"{first.load:g}",
        "policy": first.policy,
        "seeds": str(len(rows)),
        "mean jct h": f"{mean:.3f}",
        "vs balance": against,
        "p99 h": f"{statistics.fmean(row.p99_jct_h for row in rows):.2f}",
        "work/gpu": f"{statistics.fmean(row.work_per_gpu for row in rows):.3f}",
        "misfits": str(sum(row.misfits for row in rows)),
        "losing s": f"{max(row.worst_losing_s for row in rows):.0f}",
        "preempted": str(sum(row.preemptions for row in rows)),
        "cpu s": f"{sum(row.cpu_s for row in rows):.1f}",
    }


def _print_predictions(data: str, seeds: Sequence[int], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table
    from roost_bench.sharing.prediction import predictions

    rows: list[PredictionRow] = predictions(data, seeds)
    plain = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
    elif output == "csv":
        print_csv(plain)
    else:
        print_table(
            [
                {
                    "pairs seen": str(row.pairs_seen),
                    "seed": str(row.seed),
                    "median error": f"{row.median_error:.3f}",
                    "within one error": f"{row.within_one_error:.2f}",
                }
                for row in rows
            ]
        )
