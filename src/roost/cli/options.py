"""Options that several verbs share: where jobs come from, what the cluster is, what things cost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from roost.cli.parameter_types import Declared, Duration, Number, OutFile, option
from roost.cli.simulate_options import SimulationOptions

F = TypeVar("F", bound=Callable[..., Any])

_workload = functools.partial(option, section="Workload")
_cluster = functools.partial(option, section="Cluster")
_costs = functools.partial(option, section="Costs")
_physics = functools.partial(option, section="Physics")
_failures = functools.partial(option, section="Failures")

_COUNT: dict[str, Any] = {"type": click.IntRange(1), "metavar": "N"}
_REPAIR: dict[str, Any] = {"type": Duration(), "default": "1h", "show_default": True}
_FILE: dict[str, Any] = {"type": click.Path(path_type=Path), "metavar": "FILE"}
_WILD = 10.0


def complete_policies(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """What the shell offers for a policy, or for the last one of a list."""
    from roost.policies import names

    before, comma, start = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names() if name.startswith(start)]


def complete_placers(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """What the shell offers for a placer."""
    from roost.placement import PLACERS

    return [name for name in PLACERS if name.startswith(incomplete)]


placer_option = option(
    "--placer",
    section="Policy",
    metavar="NAME",
    default="consolidate",
    show_default=True,
    shell_complete=complete_placers,
    help="Where jobs go; see roost placers.",
)
output_option = option(
    "-o",
    "--output",
    section="Output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print the figures.",
)
report_option = option(
    "--report", section="Output", type=OutFile(), help="Write an HTML page there."
)
since_option = option(
    "--since",
    section="Run",
    type=Duration(),
    help="With --from history: jobs that were submitted in that time, such as 7d; default: all.",
)
progress_option = option(
    "--progress/--no-progress",
    section="Output",
    default=None,
    help="Show how far the runs are; by default on a terminal only.",
)

_SCENARIO = (
    click.argument("trace", required=False, type=click.Path(path_type=Path)),
    _workload(
        "--format",
        "trace_format",
        metavar="NAME",
        default="auto",
        help="Format of TRACE; see roost inspect.",
    ),
    _workload(
        "--synthetic",
        metavar="KEY=VALUE,...",
        help="Generate the jobs instead, e.g. jobs=2000,load=0.9,arrivals=diurnal; "
        "see roost generate.",
    ),
    _workload("--limit", **_COUNT, help="Only the first N jobs."),
    _workload("--skip-bad-rows", is_flag=True, help="Count malformed rows and go on."),
    _workload("--skip-impossible", is_flag=True, help="Leave out jobs that can never run."),
    _workload("--throughputs", **_FILE, help="Rates of the jobs of a Gavel trace."),
    _workload(
        "--estimate-error",
        type=Number(most=_WILD),
        help="Spread of a log-normal error of declared run times.",
    ),
    _workload(
        "--declare",
        type=Declared(most=_WILD),
        help="Let every job declare its true run time (work), or nearly (noisy:0.3).",
    ),
    _cluster("--nodes", **_COUNT, help="Number of nodes; 8 for generated jobs."),
    _cluster("--gpus-per-node", **_COUNT, default=8, show_default=True, help="GPUs per node."),
    _cluster(
        "--nodes-per-switch", **_COUNT, default=16, show_default=True, help="Nodes per switch."
    ),
    _cluster("--sockets", **_COUNT, default=2, show_default=True, help="Sockets per node."),
    _cluster("--kind", default="gpu", show_default=True, metavar="KIND", help="Kind of GPU."),
    _cluster(
        "--cluster",
        **_FILE,
        help="A csv of nodes instead of all these, or the configuration of HiveD, with its queues.",
    ),
    _cluster(
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME:KEY=VALUE,...",
        help="A queue's quota_milli, limit_milli, weight, priority or cells, "
        "e.g. vision:weight=2,cells=2xnode/1xswitch.",
    ),
    _cluster(
        "--typical",
        **_FILE,
        help="A trace of what usually comes, for the placers fgd, usable and compact.",
    ),
    _costs("--restart", type=Duration(), help="Time to start again."),
    _costs("--resize", type=Duration(), help="Time to change size."),
    _costs("--checkpoint-cost", type=Duration(), help="Time that one checkpoint takes."),
    _costs(
        "--checkpoint-every",
        type=Duration(endless=True),
        help="Time between checkpoints; 0: saved all the time, inf: never.",
    ),
    _costs("--min-run", type=Duration(endless=True), help="No preemption before that."),
    _physics(
        "--world",
        type=click.Choice(["rates", "learning"]),
        default="rates",
        show_default=True,
        help="rates: jobs move at a speed; learning: they learn, with batches and epochs.",
    ),
    _physics(
        "--profiles",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Profile tables of the applications that learn, instead of those built in.",
    ),
    _physics(
        "--speed", metavar="KIND=FACTOR,...", help="Speed by kind of GPU, e.g. V100=1,K80=0.25."
    ),
    _physics(
        "--spread",
        metavar="LEVEL=FACTOR,...",
        help="Speed by distance, e.g. node=0.95,switch=0.8,cluster=0.6.",
    ),
    _physics(
        "--scaling",
        type=Number(most=_WILD),
        default=1.0,
        show_default=True,
        help="Exponent of speed in the number of workers.",
    ),
    _physics(
        "--interference",
        type=Number(most=1.0),
        default=0.0,
        show_default=True,
        help="Part of the speed that is lost to each neighbour on a GPU.",
    ),
    _physics(
        "--pairs",
        **_FILE,
        help="What applications lose to each other on a GPU: throughputs.json of Gavel, or "
        "colocate.csv of Lucid.",
    ),
    _physics(
        "--packable",
        is_flag=True,
        help="Jobs of one GPU ask for half of it, best-effort: two may share it.",
    ),
    _failures("--node-mtbf", type=Duration(), help="Mean time between failures of a node."),
    _failures("--node-mttr", **_REPAIR, help="Mean time to repair a node."),
    _failures("--gpu-mtbf", type=Duration(), help="Mean time between failures of a GPU."),
    _failures("--gpu-mttr", **_REPAIR, help="Mean time to repair a GPU."),
)


def scenario_options(command: F) -> F:
    """Everything a simulation needs to know except the policy and the seed."""
    names = [field.name for field in fields(SimulationOptions) if field.name != "typed"]

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        asked = SimulationOptions(typed=_typed(), **{name: given.pop(name) for name in names})
        return command(asked=asked, **given)

    for decorate in reversed(_SCENARIO):
        wrapped = decorate(wrapped)
    return wrapped  # type: ignore[return-value]


def _typed() -> dict[str, str]:
    """The options that were typed, as they are written."""
    context = click.get_current_context()
    return {
        param.name: param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
        for param in context.command.params
        if context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }
