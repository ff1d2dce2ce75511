"""Pods of Alibaba's openb trace, placed one by one until all GPUs were asked for.

The protocol is that of FGD (Weng et al., USENIX ATC 2023, and its simulator): the nodes that have
GPUs, in an order that chance chooses; the pods of the trace in an order that chance chooses,
followed by pods drawn from the trace, until they ask for 1.3 times as many GPUs as there are. None
ever leaves, none is stopped, and one that finds no room is dropped. Placers know how often the
trace has which needs, and nothing of the order. What counts is how much is given away when pods
have come that ask for 100 % of the GPUs: the mean over all moments at which they are, rounded, that
much.

With departures the same pods come and go for ever, drawn from the trace. How long one stays is
exponentially distributed, and they come as often as makes them ask for ``load`` times all GPUs on
average. What counts then is how much is given away on average over time, once as many have come as
fill the cluster three times.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

from roost.core.allocation import Part
from roost.core.ledger import Ledger
from roost.core.spec import NodeSpec, Resources, Shape
from roost.errors import InvalidSpec, NotFound
from roost.placement import placer as find_placer
from roost.placement.fragments import fragmented_milli
from roost.traces.openb import read_openb, read_openb_nodes

#: How much more is asked for than there is, and at which part of it is measured, in percent.
_ASKED, _MEASURED = 1.3, 100
#: With departures: how often the cluster is filled before and while it is measured.
_FILLED_BEFORE, _FILLED = 3.0, 5.0


@dataclass(frozen=True, slots=True)
class OpenbRow:
    """What a placer came to."""

    variant: str
    placer: str
    seed: int
    allocated_pct: float
    frag_pct: float
    us_per_pod: float
    load: float | None = None


@dataclass(frozen=True, slots=True)
class OpenbBench:
    """A folder with openb's files; ``load`` if pods leave again."""

    data: str
    load: float | None = None

    def variants(self) -> list[str]:
        """The variants of the trace that are there, the default first."""
        found = [path.stem.removeprefix("pods-") for path in Path(self.data).glob("pods-*.csv")]
        if not found or not (Path(self.data) / "nodes.csv").is_file():
            raise NotFound(f"no nodes.csv and pods-*.csv of the openb trace in {self.data}")
        return sorted(found, key=lambda name: (name != "default", name))

    def measure(self, variant: str, placer: str, seed: int) -> OpenbRow:
        """Place the pods of a variant; the same for the same seed, but for the time."""
        pods = _pods(Path(self.data) / f"pods-{variant}.csv")
        chance = Random(seed)  # noqa: S311 - no secret
        cluster = _Cluster(_nodes(Path(self.data) / "nodes.csv", chance), placer)
        for pod in pods:
            cluster.ledger.demand.note(pod)
        if self.load is None:
            allocated, fragmented = _filled(cluster, pods, chance)
        else:
            with cluster.timed():
                allocated = _under_load(cluster, pods, self.load, chance)
            fragmented = cluster.fragmented_pct
        us = round(1e6 * cluster.cpu_s / cluster.pods, 1)
        return OpenbRow(
            variant, placer, seed, round(allocated, 3), round(fragmented, 3), us, self.load
        )


class _Cluster:
    """The books of all nodes, and what it cost to find places on them."""

    def __init__(self, nodes: Sequence[NodeSpec], placer: str) -> None:
        self.ledger = Ledger()
        for node in nodes:
            self.ledger.join(node)
        self._placer = find_placer(placer)
        self.used_milli = 0
        self.pods = 0
        self.cpu_s = 0.0

    @contextmanager
    def timed(self, times: int = 1) -> Iterator[None]:
        """Count the CPU time of what is done meanwhile; -1: do not count it after all.

        Of many pods at once: to ask for the time of each can cost more than to place it.
        """
        begun = time.process_time()
        yield
        self.cpu_s += times * (time.process_time() - begun)

    def place(self, need: Resources) -> tuple[Part, ...] | None:
        """Give a pod a place, if there is one."""
        parts = self._placer(self.ledger, Shape(1, need))
        for part in parts or ():
            self.ledger.take(part, need)
        self.pods += 1
        self.used_milli += need.gpu_milli if parts else 0
        return parts

    def end(self, parts: Sequence[Part], need: Resources) -> None:
        """A pod leaves."""
        for part in parts:
            self.ledger.release(part, need)
        self.used_milli -= need.gpu_milli

    @property
    def allocated_pct(self) -> float:
        """Of all GPUs, how much is given away."""
        return 100 * self.used_milli / self.ledger.capacity_milli

    @property
    def fragmented_pct(self) -> float:
        """Of all GPUs, how much is free and of no use to typical needs."""
        ledger = self.ledger
        return 100 * fragmented_milli(ledger, ledger.demand.typical()) / ledger.capacity_milli


def _nodes(file: Path, chance: Random) -> list[NodeSpec]:
    """Those with GPUs, in an order that chance chooses: of equal ones the first is taken."""
    nodes = [node for node in read_openb_nodes(file) if node.gpus]
    chance.shuffle(nodes)
    return nodes


def _pods(file: Path) -> list[Resources]:
    jobs = sorted(read_openb(file).jobs, key=lambda job: job.id)
    return [job.spec.resources for job in jobs]


def _filled(cluster: _Cluster, pods: Sequence[Resources], chance: Random) -> tuple[float, float]:
    """Allocated and fragmented GPUs in percent, when as many were asked for as there are."""
    capacity = cluster.ledger.capacity_milli
    asked = 0
    allocated: list[float] = []
    fragmented = 0.0
    stream = _stream(pods, capacity * _ASKED, chance)
    with cluster.timed():
        for pod in stream:
            asked += pod.gpu_milli
            cluster.place(pod)
            percent = round(100 * asked / capacity)
            if percent == _MEASURED:
                if not allocated:
                    with cluster.timed(-1):
                        fragmented = cluster.fragmented_pct
                allocated.append(round(cluster.allocated_pct, 2))
            elif percent > _MEASURED:
                break
    if not allocated:
        raise InvalidSpec("the pods of the trace are too large for these nodes")
    return fmean(allocated), fragmented


def _stream(pods: Sequence[Resources], most_milli: float, chance: Random) -> list[Resources]:
    """The pods in some order, and more of them, or fewer, until they ask for that much."""
    stream = list(pods)
    chance.shuffle(stream)
    asked = sum(pod.gpu_milli for pod in stream)
    while asked > most_milli:
        asked -= stream.pop(chance.randrange(len(stream))).gpu_milli
    while True:
        pod = chance.choice(pods)
        asked += pod.gpu_milli
        if asked > most_milli:
            return stream
        stream.append(pod)


def _under_load(cluster: _Cluster, pods: Sequence[Resources], load: float, chance: Random) -> float:
    """Allocated GPUs in percent, on average over time, while pods come and go."""
    capacity = cluster.ledger.capacity_milli
    rate = load * capacity / fmean(pod.gpu_milli for pod in pods)  # the mean stay is 1
    begins, ends = _FILLED_BEFORE * capacity, (_FILLED_BEFORE + _FILLED) * capacity
    leaving: list[tuple[float, int, Sequence[Part], Resources]] = []
    asked, since, now, number = 0, 0.0, 0.0, 0
    area = 0.0
    while asked < ends:
        pod = chance.choice(pods)
        at = now + chance.expovariate(rate)
        measured = asked >= begins
        while leaving and leaving[0][0] <= at:
            then, _, parts, need = heapq.heappop(leaving)
            area += measured * cluster.allocated_pct * (then - now)
            now = then
            cluster.end(parts, need)
        area += measured * cluster.allocated_pct * (at - now)
        now = at
        asked += pod.gpu_milli
        number += 1
        parts_of = cluster.place(pod)
        if parts_of:
            heapq.heappush(leaving, (now + chance.expovariate(1.0), number, parts_of, pod))
        if not measured and asked >= begins:
            since = now
    return area / (now - since)
