"""``roost bench sensitivity``: how much a comparison depends on what it was made with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import complete_policies, output_option
from roost.cli.parameter_types import OutFile, Verb, option

if TYPE_CHECKING:
    from roost.sim.metrics import Estimate
    from roost_bench.sensitivity.studies import (
        Case,
        Figures,
        LearningJobs,
        ParameterServerJobs,
        SensitivityRow,
    )

#: What can be varied, as ``roost_bench.sensitivity.studies`` knows it.
STUDIES = (
    *("speed-error", "epochs-error", "mode", "arrivals"),
    *("load", "restart-cost", "rigid", "failures"),
)
_LEARNING = "roost,sia,gavel"
_SERVERS = "roost,optimus,drf"
_ESTIMATES = ("mean_jct_h", "change", "ratio", "p99_jct_h", "makespan_h")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench sensitivity speed-error --data sia
  roost bench sensitivity mode --policies optimus,drf,fifo --seeds 5
  roost bench sensitivity restart-cost --data sia --values 0s,1m,5m --plot restarts.svg
  roost bench sensitivity load --jobs 160 --policies optimus,drf -o json""",
)
@click.argument("what", type=click.Choice(STUDIES))
@option(
    "--data",
    section="Workload",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that holds profiles/ and workloads/ of Sia's benchmark: its adaptive jobs then "
    "take part, else jobs with parameter servers do.",
)
@option(
    "--workloads",
    section="Workload",
    metavar="NAME,...",
    default="philly",
    show_default=True,
    help="Workloads of DIR from which jobs are drawn, or the beginnings of their names.",
)
@option(
    "--jobs",
    section="Workload",
    type=click.IntRange(2),
    default=60,
    show_default=True,
    metavar="N",
    help="Jobs of each run.",
)
@option(
    "--values",
    section="Workload",
    metavar="A,B,...",
    help="Instead of the usual ones; the first is what the others are compared with.",
)
@option(
    "-p",
    "--policies",
    section="Policy",
    metavar="NAME,...",
    shell_complete=complete_policies,
    help=f"Policies with their parameters; default: {_LEARNING}, or {_SERVERS} without --data.",
)
@option(
    "--seeds",
    section="Run",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="Workloads to draw; intervals need two at least.",
)
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
@option(
    "--plot", section="Output", type=OutFile(), metavar="FILE", help="Draw mean JCTs there, as SVG."
)
@output_option
def sensitivity(  # noqa: PLR0913 - a verb takes its options
    what: str,
    data: Path | None,
    workloads: str,
    jobs: int,
    values: str | None,
    policies: str | None,
    seeds: int,
    processes: int,
    plot: Path | None,
    output: str,
) -> None:
    """Vary one thing, and see what it does to the mean completion time under each policy.

    \b
    speed-error   step times are measured wrongly, by up to so many per cent
    epochs-error  users declare a number of epochs that is wrong by up to so many per cent
    mode          parameter-server jobs are synchronous, asynchronous or both
    arrivals      submissions are random, go by the hour of the day, come in bursts, or as recorded
    load          so many times as many jobs come in the same time
    restart-cost  every start and restart takes so long
    rigid         so many per cent of the jobs keep their size
    failures      nodes fail once in so long, and take an hour to be repaired

    Each value is run under each policy with the same workloads, one for each seed. What follows
    ± is half of a 95 % confidence interval (Student's t). Changes are those of each workload.
    """  # noqa: D301 - \b is click's, not ours
    from roost.cli.compare import split_policies
    from roost.policies import policy as find_policy
    from roost_bench.sensitivity.studies import cases
    from roost_bench.sia.benchmark import ALIASES

    names = split_policies(policies or (_SERVERS if data is None else _LEARNING))
    for name in names:
        find_policy(ALIASES.get(name, name) if data is not None else name)
    wanted = [text.strip() for text in (values or "").split(",") if text.strip()]
    all_of_them = cases(what, _place(data, workloads, jobs), names, seeds, wanted)
    outcomes: dict[int, Figures] = {}
    try:
        _run_all(all_of_them, outcomes, processes)
    finally:  # also if a run fails or is interrupted: the others may have taken long
        over = [(all_of_them[number], outcomes[number]) for number in sorted(outcomes)]
        if over:
            _show(over, output)
            if plot is not None:
                _draw(plot, over)


def _place(data: Path | None, workloads: str, jobs: int) -> LearningJobs | ParameterServerJobs:
    from roost_bench.optimus.benchmark import OptimusBench
    from roost_bench.sensitivity.studies import LearningJobs, ParameterServerJobs

    if data is None:
        return ParameterServerJobs(OptimusBench(jobs=jobs))
    from roost_bench.sia.command import find_workloads

    return LearningJobs(data, tuple(find_workloads(data, workloads)), jobs)


def _run_all(cases: Sequence[Case], outcomes: dict[int, Figures], at_once: int) -> None:
    """Run every case in a process of its own, and tell of each that is over."""
    from roost_bench.sensitivity.studies import run
    from roost_bench.subprocesses import in_fresh_processes

    click.echo(f"{len(cases)} runs, {min(at_once, len(cases))} at a time", err=True)
    alone = [(case,) for case in cases]
    for number, figures in in_fresh_processes(run, alone, at_once=at_once):
        outcomes[number] = figures
        click.echo(
            f"[{len(outcomes)}/{len(cases)}] {cases[number]}: mean JCT {figures.mean_jct_h:.3f} h",
            err=True,
        )


def _show(outcomes: Sequence[tuple[Case, Figures]], output: str) -> None:
    from roost.cli.output import print_csv, print_json, print_table
    from roost_bench.sensitivity.studies import compare, find

    rows = compare(outcomes)
    if output == "json":
        print_json([_figures(row) for row in rows])
    elif output == "csv":
        print_csv([_figures(row) for row in rows])
    else:
        study = find(rows[0].what)
        click.echo(f"{study.title}: mean JCT in hours, {rows[0].jobs} jobs")
        print_table(_cells(rows, study.heading, "mean_jct_h"))
        click.echo()
        click.echo(f"Change from {study.heading} {rows[0].value}")
        print_table(_cells(rows, study.heading, "change"))


def _figures(row: SensitivityRow) -> dict[str, Any]:
    """A row as plain figures."""
    found: dict[str, Any] = {
        "what": row.what,
        "value": row.value,
        "policy": row.policy,
        "jobs": row.jobs,
        "seeds": row.seeds,
    }
    for name in _ESTIMATES:
        estimate: Estimate = getattr(row, name)
        found |= {name: estimate.mean, f"{name}_ci": estimate.half_width}
    return found | {"restarts_per_job": row.restarts_per_job}


def _cells(rows: Sequence[SensitivityRow], heading: str, name: str) -> list[dict[str, str]]:
    """A line per value, a column per policy."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    found = {(row.value, row.policy): getattr(row, name) for row in rows}
    return [
        {heading: value}
        | {policy: _with_spread(found.get((value, policy)), name) for policy in policies}
        for value in dict.fromkeys(row.value for row in rows)
    ]


def _with_spread(estimate: Estimate | None, name: str) -> str:
    """A figure with half of its interval; a change in per cent, the others in hours."""
    if estimate is None or estimate.mean is None:
        return "-"
    if name == "change":
        wide = "" if estimate.half_width is None else f" ± {100 * estimate.half_width:.1f}"
        return f"{100 * estimate.mean:+.1f}{wide} %"
    wide = "" if estimate.half_width is None else f" ± {estimate.half_width:.3f}"
    return f"{estimate.mean:.3f}{wide}"


def _draw(file: Path, outcomes: Sequence[tuple[Case, Figures]]) -> None:
    from roost.files import save
    from roost_bench.sensitivity.studies import compare, plot

    save(file, plot(compare(outcomes)))
    click.echo(f"plot: {file}", err=True)
