"""Options that several verbs share: where jobs come from, what the cluster is, what things cost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.errors import InvalidSpec
from roost.settings import seconds

if TYPE_CHECKING:
    from roost.core.spec import NodeSpec, QueueSpec
    from roost.sim.scenario import Scenario
    from roost.traces.workload import Workload

F = TypeVar("F", bound=Callable[..., Any])

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print the figures.",
)
report_option = click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page here."
)
placer_option = click.option(
    "--placer", default="consolidate", show_default=True, help="Where jobs go; see roost placers."
)


class Duration(click.ParamType[float]):
    """Seconds, or a number with s, m, h, d or w."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds from a text such as 15m."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return seconds(value)
        except ValueError:
            self.fail(f"{value!r} is not a duration such as 90s, 15m, 2h or 1d", param, ctx)


def scenario_options(command: F) -> F:
    """Everything a simulation needs to know except the policy and the seed."""
    options = [
        click.argument("trace", required=False, type=click.Path(path_type=Path)),
        click.option("--format", "trace_format", default="auto", help="Format of TRACE."),
        click.option(
            "--synthetic",
            metavar="KEY=VALUE,...",
            help="Generate the jobs instead, e.g. jobs=2000,load=0.9,arrivals=diurnal.",
        ),
        click.option("--skip-bad-rows", is_flag=True, help="Count malformed rows, go on."),
        click.option("--skip-impossible", is_flag=True, help="Leave out jobs that can never run."),
        click.option("--limit", type=click.IntRange(1), help="Only the first so many jobs."),
        click.option("--throughputs", type=click.Path(path_type=Path), help="For Gavel traces."),
        click.option("--nodes", type=click.IntRange(1), help="Number of nodes."),
        click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True),
        click.option("--nodes-per-switch", type=click.IntRange(1), default=16, show_default=True),
        click.option("--sockets", type=click.IntRange(1), default=2, show_default=True),
        click.option("--kind", default="gpu", help="GPU kind of those nodes."),
        click.option(
            "--cluster", type=click.Path(path_type=Path), help="A csv of nodes instead of --nodes."
        ),
        click.option(
            "--queue",
            "queues",
            multiple=True,
            metavar="NAME:KEY=VALUE,...",
            help="A queue's quota_milli, limit_milli, weight, priority, e.g. vision:weight=2.",
        ),
        click.option("--restart", type=Duration(), help="Cost of a restart."),
        click.option("--resize", type=Duration(), help="Cost of a change of size."),
        click.option("--suspend", type=Duration(), help="Cost of a suspend."),
        click.option("--checkpoint-every", type=Duration(), help="0: all the time; inf: never."),
        click.option("--checkpoint-cost", type=Duration(), help="Cost of one checkpoint."),
        click.option("--min-run", type=Duration(), help="No preemption before that."),
        click.option(
            "--speed",
            metavar="KIND=FACTOR,...",
            help="Speed of GPU kinds, e.g. V100=1,K80=0.25.",
        ),
        click.option(
            "--spread",
            metavar="LEVEL=FACTOR,...",
            help="Speed by distance, e.g. node=0.95,switch=0.8,cluster=0.6.",
        ),
        click.option("--scaling", type=float, default=1.0, help="Exponent of speed in workers."),
        click.option("--interference", type=float, default=0.0, help="Lost per GPU neighbour."),
        click.option("--node-mtbf", type=Duration(), help="Mean time between node failures."),
        click.option("--node-mttr", type=Duration(), default="1h", help="Mean time to repair."),
        click.option("--gpu-mtbf", type=Duration(), help="Mean time between GPU failures."),
        click.option("--gpu-mttr", type=Duration(), default="1h", help="Mean time to repair."),
        click.option("--estimate-error", type=float, help="Spread of errors in run times."),
    ]
    names = [option(lambda: None).__click_params__[0].name for option in options]  # type: ignore[attr-defined]

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        return command(asked=Asked(**{n: given.pop(n) for n in names}), **given)

    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user typed about a scenario."""

    trace: Path | None
    trace_format: str
    synthetic: str | None
    skip_bad_rows: bool
    skip_impossible: bool
    limit: int | None
    throughputs: Path | None
    nodes: int | None
    gpus_per_node: int
    nodes_per_switch: int
    sockets: int
    kind: str
    cluster: Path | None
    queues: tuple[str, ...]
    restart: float | None
    resize: float | None
    suspend: float | None
    checkpoint_every: float | None
    checkpoint_cost: float | None
    min_run: float | None
    speed: str | None
    spread: str | None
    scaling: float
    interference: float
    node_mtbf: float | None
    node_mttr: float
    gpu_mtbf: float | None
    gpu_mttr: float
    estimate_error: float | None

    def scenario(self, *, timeline: bool = False) -> Scenario:
        """The scenario that was asked for."""
        from roost.perf.speed import Speed
        from roost.sim.failures import Failures
        from roost.sim.scenario import Scenario
        from roost.traces.generate import Synthetic

        if (self.trace is None) == (self.synthetic is None):
            raise InvalidSpec("give a trace file, or --synthetic jobs=1000,... to generate one")
        nodes = self._nodes()
        workload: Workload | Synthetic
        if self.synthetic is None:
            workload = self._read()
            nodes = nodes or list(workload.nodes)
        else:
            from roost.settings import build

            gpus = {} if "gpus=" in self.synthetic else {"gpus": sum(n.gpus for n in nodes) or 64}
            workload = build(Synthetic, "--synthetic", self.synthetic, **gpus)
        if not nodes:
            raise InvalidSpec("the trace tells no cluster: give --nodes N or --cluster nodes.csv")
        return Scenario(
            workload=workload,
            nodes=nodes,
            queues=self._queues(),
            speed=Speed(
                factors("--speed", self.speed), self._levels(), self.scaling, self.interference
            ),
            failures=Failures(self.node_mtbf, self.node_mttr, self.gpu_mtbf, self.gpu_mttr),
            costs=self._costs(),
            min_run_s=self.min_run,
            estimate_error=self.estimate_error,
            skip_impossible=self.skip_impossible,
            timeline=timeline,
        )

    def _read(self) -> Workload:
        from roost import traces

        options = {} if self.throughputs is None else {"throughputs": self.throughputs}
        workload = traces.read(
            self.trace,  # type: ignore[arg-type]
            format=self.trace_format,
            skip_bad_rows=self.skip_bad_rows,
            **options,
        )
        if workload.skipped:
            first = workload.skipped[0]
            click.echo(
                f"skipped {len(workload.skipped)} rows of {self.trace}; "
                f"the first is line {first.line}, column {first.column!r}: {first.why}",
                err=True,
            )
        if self.limit is not None:
            workload.jobs = workload.jobs[: self.limit]
        return workload

    def _nodes(self) -> list[NodeSpec]:
        from roost.sim.scenario import uniform_cluster
        from roost.traces import read_cluster

        if self.cluster is not None:
            return list(read_cluster(self.cluster))
        if self.nodes is None:
            return uniform_cluster(8, self.gpus_per_node) if self.synthetic is not None else []
        return uniform_cluster(
            self.nodes,
            self.gpus_per_node,
            kind=self.kind,
            sockets=min(self.sockets, self.gpus_per_node),
            nodes_per_switch=self.nodes_per_switch,
        )

    def _queues(self) -> list[QueueSpec]:
        from roost.core.spec import QueueId, QueueSpec
        from roost.settings import build

        found = []
        for text in self.queues:
            name, _, settings = text.partition(":")
            found.append(build(QueueSpec, f"queue {name!r}", settings, id=QueueId(name)))
        return found

    def _costs(self) -> Any:
        from roost.core.spec import Costs

        asked = {
            "restart_s": self.restart,
            "resize_s": self.resize,
            "suspend_s": self.suspend,
            "checkpoint_every_s": self.checkpoint_every,
            "checkpoint_s": self.checkpoint_cost,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return Costs(**given) if given else None

    def _levels(self) -> dict[Any, float]:
        from roost.core.spec import Level
        from roost.errors import unknown

        levels = {}
        for name, factor in factors("--spread", self.spread).items():
            if name.upper() not in Level.__members__:
                raise unknown("level", name, (level.name.lower() for level in Level))
            levels[Level[name.upper()]] = factor
        return levels


def factors(option: str, text: str | None) -> dict[str, float]:
    """Factors from ``name=number,...``."""
    found = {}
    for item in filter(None, (text or "").split(",")):
        name, _, value = item.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise InvalidSpec(f"{option} takes name=number,..., not {item!r}") from None
    return found
