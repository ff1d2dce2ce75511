"""DL2's comparison: slots of 20 minutes, 60 jobs, and networks trained before each test.

With DL2's table the sorts of jobs are its own (``roost.learn.sorts``); without, they are those of
``roost bench optimus``, as fast as its physics says on empty nodes. Networks are trained for a size
of cluster with the same sorts, on other traces than those of the test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from roost.errors import InvalidSpec
from roost.learn.comparison import Compared, compare, draw_tests
from roost.learn.slots import Played, SlotWorld, Trace
from roost.learn.sorts import MOST, Sort, read_sorts
from roost.learn.training import Recipe, decider, played_by, train
from roost.perf.arrays import Reals
from roost.perf.servers import Mode
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.learned import Inputs
from roost_bench.optimus.benchmark import SORTS, OptimusBench, desks

_SLOT_S = 1200.0
#: How long jobs of the first sort and of the last take at their best size, in slots.
_SHORTEST, _LONGEST = 2.0, 40.0
#: Under what names networks are shown.
NAMES = {Inputs.ESTIMATES: "dl2", Inputs.OWN: "dl2:inputs=own"}
_LEFT_OUT = 2

#: Told of every training that is over.
Said: TypeAlias = Callable[[str], None]


class Dl2Row(NamedTuple):
    """One policy on one size of cluster; times in slots, ratios those of mean completion times.

    ``train_cpu_s`` is what its training took. ``unknown_ratio``: jobs of two sorts that a second
    network never saw took it so many times as long as they took the one that knows them.
    """

    seed: int
    compared: Compared
    train_cpu_s: float = 0.0
    generations: int = 0
    unknown_sorts: str = ""
    unknown_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Dl2Bench:
    """What is compared; ``seconds`` of a CPU, or ``generations``, are what each training takes."""

    data: Path | None = None
    nodes: int = 96
    seconds: float = 60.0
    generations: int | None = None
    traces: int = 10
    jobs: int = 60

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if min(self.nodes, self.traces, self.jobs) < 1:
            raise InvalidSpec("the benchmark needs nodes, traces and jobs")

    def world(self) -> SlotWorld:
        """The cluster, and what comes to it."""
        return SlotWorld(own_sorts() if self.data is None else read_sorts(self.data), self.nodes)

    def recipe(self, inputs: Inputs, seed: int) -> Recipe:
        """How networks are trained."""
        return Recipe(inputs, seed, self.seconds, self.generations, jobs=self.jobs)


def own_sorts() -> list[Sort]:
    """The sorts of ``roost bench optimus``, every second of them asynchronous."""
    lengths = np.geomspace(_SHORTEST, _LONGEST, len(SORTS)).tolist()
    found = []
    for at, (sort, slots) in enumerate(zip(SORTS, lengths, strict=True)):
        network = sort.network(Mode.ASYNC if at % 2 else Mode.SYNC)
        speeds = np.array(
            [
                [network.rate(desks(w, p, OptimusBench())) for w in range(1, MOST + 1)]
                for p in range(1, MOST + 1)
            ]
        )
        found.append(Sort(sort.name, speeds * _SLOT_S, slots * float(speeds.max()) * _SLOT_S))
    return found


def run(bench: Dl2Bench, seed: int, said: Said = lambda _: None) -> Iterator[Dl2Row]:
    """Train with one seed, and compare on traces of the test."""
    world = bench.world()
    tests = draw_tests(world, seed, bench.traces, bench.jobs)
    networks: dict[str, Network] = {}
    costs: dict[str, tuple[float, int]] = {}
    for inputs, name in NAMES.items():
        began = time.process_time()
        trained = train([world], bench.recipe(inputs, seed))
        networks[name] = trained.network
        costs[name] = time.process_time() - began, trained.curve[-1].number
        said(f"{bench.nodes} nodes, seed {seed}: {name} trained, {costs[name][0]:.0f} CPU s")
    learnt = {name: decider(world, [one], len(tests)) for name, one in networks.items()}
    unknown = _unknown(bench, world, tests, networks[NAMES[Inputs.ESTIMATES]], seed)
    for one in compare(world, tests, learnt):
        row = Dl2Row(seed, one, *costs.get(one.policy, (0.0, 0)))
        if one.policy == NAMES[Inputs.ESTIMATES]:
            row = row._replace(unknown_sorts=unknown[0], unknown_ratio=unknown[1])
        yield row


def _unknown(
    bench: Dl2Bench, world: SlotWorld, tests: Sequence[Trace], knowing: Network, seed: int
) -> tuple[str, float]:
    """Two sorts, and the times of their jobs with a network that never saw them, over the other."""
    chance = np.random.Generator(np.random.PCG64([seed, 22]))
    left_out = chance.choice(len(world.sorts), size=_LEFT_OUT, replace=False).tolist()
    kept = [sort for at, sort in enumerate(world.sorts) if at not in left_out]
    smaller = SlotWorld(kept, world.nodes)
    unknowing = train([smaller], bench.recipe(Inputs.ESTIMATES, seed)).network
    means = [
        _mean_of_sorts(played, tests, left_out)
        for played in played_by([world], [unknowing, knowing], tests)
    ]
    names = " and ".join(world.sorts[at].name for at in left_out)
    return names, means[0] / means[1]


def _mean_of_sorts(played: Sequence[Played], tests: Sequence[Trace], sorts: list[int]) -> float:
    times: list[Reals] = [
        one.times[np.isin(trace.sorts, sorts)] for one, trace in zip(played, tests, strict=True)
    ]
    return float(np.concatenate(times).mean())


def run_all(
    bench: Dl2Bench, nodes: Sequence[int], seeds: Sequence[int], said: Said = lambda _: None
) -> list[Dl2Row]:
    """All sizes of clusters and all seeds, one after the other."""
    return [
        row
        for count in nodes
        for seed in seeds
        for row in run(replace(bench, nodes=count), seed, said)
    ]
