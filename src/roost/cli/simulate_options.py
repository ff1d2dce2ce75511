"""What a user typed about a simulation, made into a scenario; what does not go together is refused.

How it is typed, and the help on it, is in ``options``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli.queue_settings import read_queues
from roost.cli.typical import read_typical
from roost.errors import InvalidSpec, unknown

if TYPE_CHECKING:
    from roost.core.spec import Level, NodeSpec
    from roost.hived import HivedCluster
    from roost.sim.learning import Learning
    from roost.sim.scenario import Scenario
    from roost.traces.generate import Synthetic
    from roost.traces.workload import Workload

#: Options that say something about a trace file, and those about nodes that are all alike.
_OF_TRACES = ("trace_format", "limit", "skip_bad_rows", "throughputs")
_OF_NODES = ("nodes", "gpus_per_node", "nodes_per_switch", "sockets", "kind")
#: Options about the world of rates, which the world of learning has not.
_OF_RATES = (
    *(
        "spread",
        "scaling",
        "interference",
        "pairs",
        "packable",
        "resize",
        "checkpoint_cost",
        "checkpoint_every",
    ),
    *("estimate_error", "declare", "save"),
)
_LEARNING = "learning"
_SYNTHETIC_NODES = 8


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Every option about a scenario, and which of all options were ``typed``, as written."""

    typed: Mapping[str, str]
    trace: Path | None
    trace_format: str
    synthetic: str | None
    limit: int | None
    skip_bad_rows: bool
    skip_impossible: bool
    throughputs: Path | None
    estimate_error: float | None
    declare: float | None
    nodes: int | None
    gpus_per_node: int
    nodes_per_switch: int
    sockets: int
    kind: str
    cluster: Path | None
    queues: tuple[str, ...]
    typical: Path | None
    restart: float | None
    resize: float | None
    checkpoint_cost: float | None
    checkpoint_every: float | None
    min_run: float | None
    world: str
    profiles: Path | None
    speed: str | None
    spread: str | None
    scaling: float
    interference: float
    pairs: Path | None
    packable: bool
    node_mtbf: float | None
    node_mttr: float
    gpu_mtbf: float | None
    gpu_mttr: float

    def refuse(self, options: Collection[str], why: str) -> None:
        """Refuse those of these options that were typed, in the words ``--this why``."""
        for name, flag in self.typed.items():
            if name in options:
                raise InvalidSpec(f"{flag} {why}")

    def scenario(self, *, timeline: bool = False, recorded: Workload | None = None) -> Scenario:
        """The scenario that was asked for, of jobs that were ``recorded`` elsewhere if given."""
        from roost.perf.speed import Speed
        from roost.sim.failures import Failures
        from roost.sim.scenario import Scenario
        from roost.traces.pairs import read_pairs

        given = [self.trace, self.synthetic, recorded]
        if sum(source is not None for source in given) != 1:
            raise InvalidSpec(
                "give a trace file, --synthetic jobs=1000,... to generate one, or --from history"
            )
        hived = self._hived()
        nodes = self._nodes() if hived is None else list(hived.nodes)
        workload: Workload | Synthetic
        if recorded is not None:
            self.refuse(_OF_TRACES[:1] + _OF_TRACES[2:], "is about trace files")
            workload = recorded
            workload.jobs = workload.jobs[: self.limit]
            nodes = nodes or list(workload.nodes)
        elif self.trace is not None:
            workload = self._read(self.trace)
            nodes = nodes or list(workload.nodes)
        else:
            workload = self._generated(nodes)
        if not nodes:
            raise InvalidSpec("the trace tells no cluster: give --nodes N or --cluster nodes.csv")
        return Scenario(
            workload=workload,
            nodes=nodes,
            queues=read_queues(self.queues, () if hived is None else hived.queues),
            speed=Speed(
                factors("--speed", self.speed),
                self._levels(),
                self.scaling,
                self.interference,
                None if self.pairs is None else read_pairs(self.pairs),
            ),
            packable=self.packable,
            failures=Failures(self.node_mtbf, self.node_mttr, self.gpu_mtbf, self.gpu_mttr),
            costs=self._costs(),
            min_run_s=self.min_run,
            estimate_error=self.estimate_error,
            declared_error=self.declare,
            skip_impossible=self.skip_impossible,
            timeline=timeline,
            learning=self._learning(workload, nodes),
            typical=() if self.typical is None else read_typical(self.typical),
        )

    def _learning(
        self, workload: Workload | Synthetic, nodes: Collection[NodeSpec]
    ) -> Learning | None:
        """What the jobs learn with, in the world in which they do."""
        from roost.sim.learning import Learning
        from roost.traces import recognise
        from roost.traces.applications import built_in
        from roost.traces.generate import Synthetic
        from roost.traces.profiles import read_profiles
        from roost.traces.sia import read_rows

        if self.world != _LEARNING:
            self.refuse(("profiles",), f"goes with --world {_LEARNING} only")
            return None
        self.refuse(_OF_RATES, f"does not go with --world {_LEARNING}")
        if self.profiles is not None:
            self.refuse(("speed",), "does not go with --profiles, which tell the speed")
            folder = self.profiles
            found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
            tables = read_profiles(folder, [name for name in found if (folder / name).is_dir()])
        else:
            speeds = factors("--speed", self.speed)
            tables = built_in(dict.fromkeys(node.kind for node in nodes), speeds)
        rows = {}
        if self.trace is not None and not isinstance(workload, Synthetic):
            written = self.trace_format if self.trace_format != "auto" else recognise(self.trace)
            rows = {row.id: row for row in read_rows(self.trace)} if written == "sia" else {}
        return Learning(tables, rows, self.profiles is None, self.restart)

    def _read(self, trace: Path) -> Workload:
        from roost import traces

        workload = traces.read(
            trace,
            format=self.trace_format,
            skip_bad_rows=self.skip_bad_rows,
            **({} if self.throughputs is None else {"throughputs": self.throughputs}),
        )
        if workload.skipped:
            first = workload.skipped[0]
            click.echo(
                f"skipped {len(workload.skipped)} rows of {trace}; "
                f"the first is line {first.line}, column {first.column!r}: {first.why}",
                err=True,
            )
        workload.jobs = workload.jobs[: self.limit]
        return workload

    def _generated(self, nodes: Collection[NodeSpec]) -> Synthetic:
        from roost.settings import build
        from roost.traces.generate import Synthetic

        self.refuse(_OF_TRACES, "is about trace files, not about --synthetic jobs")
        text = str(self.synthetic)
        keys = {item.partition("=")[0].strip() for item in text.split(",")}
        gpus = {} if "gpus" in keys else {"gpus": sum(node.gpus for node in nodes)}
        return build(Synthetic, "--synthetic", text, **gpus)

    def _nodes(self) -> list[NodeSpec]:
        from roost.sim.scenario import uniform_cluster
        from roost.traces import read_cluster

        if self.cluster is not None:
            return list(read_cluster(self.cluster))
        nodes = self.nodes
        if nodes is None and self.synthetic is not None:
            nodes = _SYNTHETIC_NODES
        if nodes is None:
            self.refuse(_OF_NODES, "needs --nodes, the number of such nodes")
            return []
        return uniform_cluster(
            nodes,
            self.gpus_per_node,
            kind=self.kind,
            sockets=min(self.sockets, self.gpus_per_node),
            nodes_per_switch=self.nodes_per_switch,
        )

    def _hived(self) -> HivedCluster | None:
        """The cluster in a configuration of HiveD, if --cluster names one."""
        from roost.files import load
        from roost.hived import looks_like_hived, read_hived

        if self.cluster is None:
            return None
        self.refuse(_OF_NODES, "does not go with --cluster, which tells the nodes")
        text = load(self.cluster)
        if not looks_like_hived(text.text):
            return None
        found = read_hived(text)
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
        return found

    def _costs(self) -> dict[str, float]:
        asked = {
            "restart_s": self.restart,
            "resize_s": self.resize,
            "checkpoint_every_s": self.checkpoint_every,
            "checkpoint_s": self.checkpoint_cost,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _levels(self) -> dict[Level, float]:
        from roost.core.spec import Level

        levels = {level.name.lower(): level for level in Level}
        found = {}
        for name, factor in factors("--spread", self.spread).items():
            if name.lower() not in levels:
                raise unknown("level", name, levels)
            found[levels[name.lower()]] = factor
        return found


def factors(option: str, text: str | None) -> dict[str, float]:
    """Factors from ``name=number,...``."""
    found: dict[str, float] = {}
    for item in filter(None, (text or "").split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        if name in found:
            raise InvalidSpec(f"{option} names {name!r} twice")
        try:
            found[name] = float(value)
        except ValueError:
            raise InvalidSpec(f"{option} takes name=number,..., not {item!r}") from None
    return found
