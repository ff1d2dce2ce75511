"""``roost bench optimus``: parameter-server jobs under policies. ``blocks``: their parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import output_option
from roost.cli.output import print_csv, print_json, print_table
from roost.cli.parameter_types import Number
from roost.errors import InvalidSpec, unknown

if TYPE_CHECKING:
    from roost.sim.metrics import Estimate
    from roost_bench.optimus.benchmark import OptimusBench, OptimusOutcome, OptimusRow

#: Names that a sweep can vary though they belong to a policy, and to which policies.
_OF_POLICIES = {
    "speed_error": ("optimus",),
    "epochs_error": ("optimus",),
    "slot_s": ("optimus", "bundles"),
    "per_hour": ("optimus", "bundles"),
}
_OF_BENCH = ("load", "restart", "bandwidth", "nodes", "jobs", "mode", "arrivals")


@click.command(
    epilog="""\b
Examples:
  roost bench optimus --seeds 5
  roost bench optimus --policies optimus,drf,fifo,tetris,roost --mode sync -o json
  roost bench optimus --policies optimus --sweep speed_error=0/0.1/0.2/0.3/0.4/0.5
  roost bench optimus --policies optimus,drf --sweep load=0.3/0.5/0.8/1.2 --told"""
)
@click.option("--jobs", type=click.IntRange(1), default=100, show_default=True)
@click.option("--nodes", type=click.IntRange(1), default=32, show_default=True)
@click.option("--gpus-per-node", type=click.IntRange(1), default=2, show_default=True, metavar="N")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--policies",
    default="optimus,drf,fifo,tetris",
    show_default=True,
    help="The first is what the others are compared with.",
)
@click.option("--mode", type=click.Choice(["sync", "async", "mixed"]), default="mixed")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "uniform", "diurnal", "bursty"]),
    default="poisson",
    show_default=True,
)
@click.option("--load", type=Number(), default=0.5, show_default=True)
@click.option("--restart", type=Number(), default=1.0, help="Times what a restart takes.")
@click.option("--bandwidth", type=Number(), default=10e9, help="Of a node, in bits per second.")
@click.option("--placer", default="even", show_default=True)
@click.option(
    "--told", is_flag=True, help="Tell policies that do not size jobs how long they take."
)
@click.option("--sweep", metavar="NAME=A/B/...", help="Do it for each of several values.")
@click.option("-j", "--processes", type=click.IntRange(1), default=1, show_default=True)
@output_option
def optimus(policies: str, seeds: int, sweep: str | None, processes: int, **asked: Any) -> None:
    """Compare policies on parameter-server jobs that train until they converge."""
    from roost.cli.compare import split_policies
    from roost.policies import policy
    from roost_bench.optimus.benchmark import OptimusBench, compare, run_all

    output = asked.pop("output")
    names = split_policies(policies)
    for name in names:
        policy(name)
    rows: list[dict[str, Any]] = []
    tables: list[tuple[str, list[OptimusRow]]] = []
    for value, bench, texts in _settings(OptimusBench(**asked), names, sweep):
        cases = [(bench, text, seed) for text in texts for seed in range(seeds)]
        found = run_all(cases, processes, _say if output == "table" else None)
        table = compare(found)
        tables.append((value, table))
        rows += [_figures(row, bench, seeds, sweep, value) for row in table]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table([_cells(row, sweep, value) for value, table in tables for row in table])


def _settings(
    bench: OptimusBench, names: Sequence[str], sweep: str | None
) -> Iterator[tuple[str, OptimusBench, list[str]]]:
    """The benchmark, or one for each value of what is swept, and the policies in it."""
    if sweep is None:
        yield "", bench, list(names)
        return
    name, equals, values = sweep.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not values:
        raise InvalidSpec(f"--sweep takes NAME=A/B/..., such as load=0.3/0.5, not {sweep!r}")
    for value in values.split("/"):
        if name in _OF_POLICIES:
            yield value, bench, [_with(text, name, value) for text in names]
        elif name in _OF_BENCH:
            yield value, dataclasses.replace(bench, **{name: _value(bench, name, value)}), [*names]
        else:
            raise unknown("thing to sweep", name, [*_OF_BENCH, *_OF_POLICIES])


def _with(text: str, name: str, value: str) -> str:
    """A policy with one more parameter, if it is one of its own."""
    if text.partition(":")[0] not in _OF_POLICIES[name]:
        return text
    return f"{text}{',' if ':' in text else ':'}{name}={value}"


def _value(bench: OptimusBench, name: str, text: str) -> Any:
    kind = type(getattr(bench, name))
    try:
        return kind(text)
    except ValueError:
        raise InvalidSpec(f"--sweep {name}: {text!r} is not a number") from None


def _say(outcome: OptimusOutcome) -> None:
    click.echo(
        f"{outcome.policy}, seed {outcome.seed}: {outcome.mean_jct_h:.2f} h, "
        f"{outcome.wall_s:.1f} s of work",
        err=True,
    )


def _figures(
    row: OptimusRow, bench: OptimusBench, seeds: int, sweep: str | None, value: str
) -> dict[str, Any]:
    """A row as plain figures."""
    found: dict[str, Any] = {
        "policy": row.policy,
        "workload": f"{bench.mode}, {bench.arrivals}",
        "jobs": bench.jobs,
        "nodes": bench.nodes,
        "load": bench.load,
        "seeds": seeds,
    }
    if sweep is not None:
        found |= {"swept": sweep.partition("=")[0], "value": value}
    for name in ("mean_jct_h", "p99_jct_h", "makespan_h", "jct_ratio", "makespan_ratio"):
        estimate: Estimate = getattr(row, name)
        found |= {name: estimate.mean, f"{name}_ci": estimate.half_width}
    for name in ("gpu_use", "resizes_per_job", "wall_s", "decision_ms_p50", "decision_ms_max"):
        found[name] = getattr(row, name)
    return found


def _cells(row: OptimusRow, sweep: str | None, value: str) -> dict[str, str]:
    """A row as people read it."""
    found = {"policy": row.policy.partition(":")[0] if sweep else row.policy}
    if sweep is not None:
        found[sweep.partition("=")[0]] = value
    return found | {
        "mean jct h": _with_spread(row.mean_jct_h),
        "p99 h": _with_spread(row.p99_jct_h),
        "makespan h": _with_spread(row.makespan_h),
        "jct x": _with_spread(row.jct_ratio),
        "makespan x": _with_spread(row.makespan_ratio),
        "gpus held": f"{100 * row.gpu_use:.0f} %",
        "resizes/job": f"{row.resizes_per_job:.1f}",
        "ms p50": f"{row.decision_ms_p50:.2f}",
        "ms max": f"{row.decision_ms_max:.0f}",
    }


def _with_spread(estimate: Estimate) -> str:
    if estimate.mean is None:
        return "-"
    wide = "" if estimate.half_width is None else f" ± {estimate.half_width:.2f}"
    return f"{estimate.mean:.2f}{wide}"


@click.command(
    epilog="""\b
Example:
  roost bench blocks --servers 2,4,8,16"""
)
@click.option("--servers", default="2,4,8,16", show_default=True)
@click.option("--draws", type=click.IntRange(1), default=20, show_default=True)
@output_option
def blocks(servers: str, draws: int, output: str) -> None:
    """How evenly parameter blocks are spread over servers: ours, and MXNet's default rule."""
    from roost_bench.command import whole_numbers
    from roost_bench.optimus.networks import spread_of

    rows = [
        dataclasses.asdict(row)
        for count in whole_numbers("--servers", servers)
        for row in spread_of(count, draws)
    ]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table(
            [
                {
                    name: f"{value:.3f}" if isinstance(value, float) else str(value)
                    for name, value in row.items()
                }
                for row in rows
            ]
        )
