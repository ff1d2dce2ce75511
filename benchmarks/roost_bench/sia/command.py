"""``roost bench sia``: Sia's benchmark under any policies, beside what was published of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import complete_policies, output_option
from roost.cli.parameter_types import OutFile, Verb, option
from roost.errors import InvalidSpec, NotFound, unknown

if TYPE_CHECKING:
    from roost_bench.sia.benchmark import SiaOutcome, SiaRow

_ALL = "all"
#: What the other policies are compared with, if it is among them.
_BASE = "sia"
_SUFFIX = ".csv"


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench sia --data sia --workloads philly-1,saturn-2
  roost bench sia --data sia --policies sia,roost,roost-blind -o json
  roost bench sia --data sia --workloads philly --homogeneous --plot jct.svg""",
)
@option(
    "--data",
    section="Workload",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that holds profiles/ and workloads/.",
)
@option(
    "--workloads",
    section="Workload",
    metavar="NAME,...",
    help="Files of DIR/workloads without .csv, or their beginnings, such as philly; default: all.",
)
@option(
    "-p",
    "--policies",
    section="Policy",
    metavar="NAME,...",
    default="sia,pollux,gavel,roost,roost-blind",
    show_default=True,
    shell_complete=complete_policies,
    help="Policies with their parameters; gavel gives out the most work in all, as the authors of "
    "Sia ran it, roost-blind is roost without the library of what other jobs have shown.",
)
@option(
    "--homogeneous",
    section="Cluster",
    is_flag=True,
    help="16 nodes of 4 T4, instead of three kinds.",
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
@option(
    "--pooled",
    section="Output",
    is_flag=True,
    help="Add rows of all workloads of a trace together to json and csv.",
)
@option(
    "--plot", section="Output", type=OutFile(), metavar="FILE", help="Draw mean JCTs there, as SVG."
)
@output_option
def sia(  # noqa: PLR0913 - a verb takes its options
    data: Path,
    workloads: str | None,
    policies: str,
    jobs: int,
    *,
    homogeneous: bool,
    pooled: bool,
    plot: Path | None,
    output: str,
) -> None:
    """Run adaptive training jobs on 64 GPUs of three kinds, as Sia's authors (SOSP'23) did.

    The tables of DIR say how fast each application trains on each kind and number of GPUs, and
    what a batch size is worth in each epoch; policies see only what their jobs have shown. Prints
    mean and 99th percentile of the completion times, makespan, GPU hours and restarts per job,
    the wall time of the run, and the median time of a decision.
    """
    from roost.cli.compare import split_policies
    from roost.policies import policy as find_policy
    from roost_bench.sia.benchmark import ALIASES

    names = split_policies(policies)
    for name in names:
        find_policy(ALIASES.get(name, name))
    files = find_workloads(data, workloads)
    cases = [(data, file, name, homogeneous) for file in files for name in names]
    outcomes: dict[int, SiaOutcome] = {}
    try:
        _run_all(cases, outcomes, at_once=jobs)
    finally:  # also if a run fails or is interrupted: the others may have taken long
        if outcomes:
            over = [outcomes[number] for number in sorted(outcomes)]
            _print(over, output, homogeneous=homogeneous, with_pooled=pooled)
            if plot is not None:
                _draw(plot, over, homogeneous=homogeneous)


def find_workloads(data: Path, wanted: str | None) -> list[Path]:
    """The files of the workloads that were asked for: by name, or by the beginning of one."""
    folder = data / "workloads"
    for needed in (data, folder, data / "profiles"):
        if not needed.is_dir():
            raise NotFound(
                f"no such folder: {needed}; --data takes one with profiles/ and workloads/"
            )
    files = {path.stem: path for path in sorted(folder.glob(f"*{_SUFFIX}"), key=_in_order)}
    if not files:
        raise NotFound(f"{folder} holds no workloads, files that end in {_SUFFIX}")
    if wanted is None:
        return list(files.values())
    found: dict[str, Path] = {}
    for name in filter(None, (item.strip().removesuffix(_SUFFIX) for item in wanted.split(","))):
        matching = [stem for stem in files if stem == name or family(stem) == name]
        if not matching:
            raise NotFound(f"{unknown('workload', name, files)}; {folder} has {', '.join(files)}")
        found.update((stem, files[stem]) for stem in matching)
    if not found:
        raise InvalidSpec("name at least one workload, such as philly-1")
    return list(found.values())


def _in_order(path: Path) -> tuple[str, int, str]:
    """Workload 2 comes before workload 10."""
    number = path.stem.rpartition("-")[2]
    return family(path.stem), int(number) if number.isdecimal() else 0, path.stem


def family(workload: str) -> str:
    """The trace from which a workload was drawn: philly for philly-1."""
    return workload.rpartition("-")[0] or workload


def _run_all(
    cases: Sequence[tuple[Path, Path, str, bool]], outcomes: dict[int, SiaOutcome], *, at_once: int
) -> None:
    """Run every workload under every policy, and tell of each run that is over."""
    from roost_bench.subprocesses import in_fresh_processes

    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    for number, outcome in in_fresh_processes(run_one, cases, at_once=at_once):
        outcomes[number] = outcome
        row = outcome.row
        click.echo(
            f"[{len(outcomes)}/{len(cases)}] {row.workload} {row.policy}: mean JCT "
            f"{row.mean_jct_h:.3f} h, in {row.wall_s:.1f} s",
            err=True,
        )


def run_one(data: Path, file: Path, name: str, homogeneous: bool) -> SiaOutcome:  # noqa: FBT001
    """One run, in a process of its own."""
    from roost.traces.profiles import read_profiles
    from roost_bench.sia.benchmark import run

    return run(read_profiles(data / "profiles"), file, name, homogeneous=homogeneous)


# -- showing -----------------------------------------------------------------------------------


def _by_family(outcomes: Sequence[SiaOutcome]) -> dict[str, dict[str, list[SiaOutcome]]]:
    """Runs by trace and policy; all of them together last, where there are several traces."""
    groups: dict[str, dict[str, list[SiaOutcome]]] = {}
    for outcome in outcomes:
        for name in (family(outcome.row.workload), _ALL):
            groups.setdefault(name, {}).setdefault(outcome.row.policy, []).append(outcome)
    together = groups.pop(_ALL)
    if len(groups) > 1:
        groups[_ALL] = together
    return groups


def _print(
    outcomes: Sequence[SiaOutcome], output: str, *, homogeneous: bool, with_pooled: bool
) -> None:
    from roost.cli.output import print_csv, print_json, print_table
    from roost_bench.sia.benchmark import pooled

    rows = [outcome.row for outcome in outcomes]
    groups = _by_family(outcomes)
    if output == "table":
        print_table([_cells(row) for row in rows])
        click.echo()
        click.echo("pooled; published: means over all workloads of a trace, Sia (SOSP'23)")
        print_table(_pooled_cells(groups, homogeneous=homogeneous))
        click.echo()
        print_table(_application_cells(groups))
        return
    if with_pooled:
        rows += [pooled(runs, name) for name, by in groups.items() for runs in by.values()]
    plain = [dataclasses.asdict(row) for row in rows]
    if output == "json":
        print_json(plain)
    else:
        print_csv(plain)


def _cells(row: SiaRow) -> dict[str, str]:
    return {
        "workload": row.workload,
        "policy": row.policy,
        "jobs": str(row.jobs),
        "mean jct h": f"{row.mean_jct_h:.3f}",
        "p99 h": f"{row.p99_jct_h:.2f}",
        "makespan h": f"{row.makespan_h:.2f}",
        "gpu h/job": f"{row.gpu_hours_per_job:.2f}",
        "restarts/job": f"{row.restarts_per_job:.2f}",
        "wall s": f"{row.wall_s:.1f}",
        "decision ms": f"{row.decision_ms_p50:.2f}",
    }


def _pooled_cells(
    groups: Mapping[str, Mapping[str, Sequence[SiaOutcome]]], *, homogeneous: bool
) -> list[dict[str, str]]:
    """A line per trace and policy: what it is here, and what was published of it."""
    from roost_bench.sia import published
    from roost_bench.sia.benchmark import pooled, spread_h

    known = published.HOMOGENEOUS if homogeneous else published.HETEROGENEOUS
    cells = []
    for name, by_policy in groups.items():
        base = pooled(by_policy[_BASE], name) if _BASE in by_policy else None
        for policy, runs in by_policy.items():
            row, there = pooled(runs, name), known.get((name, policy))
            cells.append(
                {
                    "trace": name,
                    "policy": policy,
                    "runs": str(len(runs)),
                    "mean jct h": f"{row.mean_jct_h:.3f} ± {spread_h(runs):.3f}",
                    "vs sia": _change(row.mean_jct_h, base.mean_jct_h if base else None),
                    "published": _with_spread(there),
                    "p99 h": f"{row.p99_jct_h:.2f}",
                    "p99 publ": _figure(there and there.p99_jct_h),
                    "makespan h": f"{row.makespan_h:.2f}",
                    "mksp publ": _figure(there and there.makespan_h),
                    "gpu h/job": f"{row.gpu_hours_per_job:.2f}",
                    "gpu publ": _figure(there and there.gpu_hours_per_job),
                    "restarts/job": f"{row.restarts_per_job:.2f}",
                    "wall s": f"{row.wall_s:.1f}",
                }
            )
    return cells


def _application_cells(
    groups: Mapping[str, Mapping[str, Sequence[SiaOutcome]]],
) -> list[dict[str, str]]:
    """Mean JCT in hours and restarts per job of each application, over all workloads."""
    from roost_bench.sia.benchmark import by_application

    cells = []
    for policy, runs in list(groups.values())[-1].items():
        found = by_application(job for run in runs for job in run.ended)
        line = {"policy": policy}
        for name, (_, hours, restarts) in found.items():
            line[f"{name} h / restarts"] = f"{hours:.3f} / {restarts:.1f}"
        cells.append(line)
    return cells


def _change(value: float, base: float | None) -> str:
    return "-" if not base else f"{100 * (value / base - 1):+.1f} %"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _with_spread(there: Any) -> str:
    if there is None:
        return "-"
    return f"{there.mean_jct_h:g}" + (f" ± {there.spread_h:g}" if there.spread_h else "")


def _draw(file: Path, outcomes: Sequence[SiaOutcome], *, homogeneous: bool) -> None:
    from roost.files import save

    save(file, _plot(outcomes, homogeneous=homogeneous))
    click.echo(f"plot: {file}", err=True)


def _plot(outcomes: Sequence[SiaOutcome], *, homogeneous: bool) -> str:
    """Mean JCTs by trace and policy, with their spread and what was published."""
    from roost_bench.plots import Bar, bars
    from roost_bench.sia import published
    from roost_bench.sia.benchmark import pooled, spread_h

    known = published.HOMOGENEOUS if homogeneous else published.HETEROGENEOUS
    groups = {
        name: {
            policy: Bar(
                pooled(runs, name).mean_jct_h,
                spread_h(runs),
                known[name, policy].mean_jct_h if (name, policy) in known else None,
            )
            for policy, runs in by_policy.items()
        }
        for name, by_policy in _by_family(outcomes).items()
    }
    cluster = "64 T4" if homogeneous else "64 GPUs of three kinds"
    return bars(f"Sia's benchmark, {cluster}", "mean JCT, hours", groups, mark="published")
