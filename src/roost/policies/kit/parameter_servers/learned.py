"""What a learnt policy sees of jobs, and what its scores mean: for ``dl2`` and for its training.

There are two sets of inputs. With ``estimates`` the network sees, once for each job, what models of
speed make of it, and says how much more or less it counts than under the rule of ``lookahead``;
``leaps`` then deals out all there is. With ``own`` it sees what DL2 (Peng et al., 2021) shows its
network: the sort of job, its age, the part of it that is left, its share, its workers and servers.
No model of speed is needed. The network scores three steps of a job, one worker, one server or
both, and the best one above 0 is taken: a job *walks* from its least to the size it wishes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from roost.perf.arrays import Integers, Reals
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.gains import (
    Gains,
    Increment,
    Size,
    Vector,
    add,
    times,
)
from roost.policies.kit.parameter_servers.leaps import ranks


class Inputs(StrEnum):
    """What a network sees."""

    ESTIMATES = "estimates"
    OWN = "own"


#: The names of inputs, in their order; those of sorts come after them.
NAMES: Final[dict[Inputs, tuple[str, ...]]] = {
    Inputs.ESTIMATES: (
        "log slots left at its best size",
        "rank by that",
        "age over age and time left",
        "log of its best speed over that at its least",
        "part of the cluster at its best size",
        "log of the number of jobs",
        "log of what all would take over what there is",
    ),
    Inputs.OWN: (
        "log age in slots",
        "part left",
        "dominant share",
        "workers",
        "servers",
        "log workers",
        "log servers",
        "log of the number of jobs over what there is",
        "a worker more",
        "a server more",
    ),
}
#: Steps of a walk: servers and workers more.
WALK: Final = (Size(1, 1), Size(0, 1), Size(1, 0))
#: A job counts at most so many times more or less than under the rule, as a logarithm.
_MOST_LOG = 3.0
_FULL = 16.0
_NOTHING = Size(0, 0)
_MOST_SCORE = 50.0


class Outlooks(NamedTuple):
    """Jobs as models of speed see them: an entry for each in every array.

    ``left`` is in slots at the best size, ``age`` in slots, ``gain`` the best speed over that at
    the least, ``part`` the dominant part of the cluster that the best size takes.
    """

    left: Reals
    age: Reals
    gain: Reals
    part: Reals


def weights(network: Network, jobs: Outlooks, power: float) -> Reals:
    """How much each job counts: as much as under the rule, corrected by the network."""
    if not len(jobs.left):
        return np.zeros(0)
    rank = ranks(jobs.left)
    return weights_of_rows(network, outlook_rows(jobs, rank), rank, power)


def weights_of_rows(network: Network, rows: Reals, rank: Reals, power: float) -> Reals:
    """The same for rows of inputs that are known already."""
    corrected: Reals = rank**power * np.exp(np.clip(network.score(rows), -_MOST_LOG, _MOST_LOG))
    return corrected


def outlook_rows(jobs: Outlooks, rank: Reals) -> Reals:
    """A row of inputs for each job of one cluster."""
    count = len(rank)
    left, age = np.maximum(jobs.left, 0.0), np.maximum(jobs.age, 0.0)
    return np.stack(
        (
            np.log1p(left) / 4,
            rank,
            age / (age + left + 1e-9),
            np.log(np.maximum(jobs.gain, 1.0)) / 2,
            np.minimum(jobs.part, 1.0),
            np.full(count, np.log(count) / 4),
            np.full(count, np.clip(np.log(jobs.part.sum() + 1e-9), -4, 4) / 4),
        ),
        axis=-1,
    )


# -- walks -----------------------------------------------------------------------------------------


class Walkers(NamedTuple):
    """Jobs as DL2 sees them: an entry for each in every array.

    ``sort`` is the index of the job's sort among those that the network knows, -1: of none. What a
    worker and a server take are parts of the dominant resource; ``crowd`` is the number of jobs
    times what the least of one takes.
    """

    sort: Integers
    age: Reals
    part_left: Reals
    worker: Reals
    server: Reals
    crowd: Reals


class Walks(NamedTuple):
    """Where each job would walk: sizes after each step, and the score of each step; 0: it stood."""

    servers: Integers
    workers: Integers
    scores: Reals


def walk(network: Network, jobs: Walkers, least: Integers, most: Integers, steps: int) -> Walks:
    """Every job's steps from its least (rows of servers, workers), as long as one scores above 0.

    All jobs walk at the same time, so that a step costs one evaluation of the network.
    """
    count = len(jobs.sort)
    fixed = _fixed_part(network, jobs)
    size = least.copy()
    going = np.arange(count)
    servers: list[Integers] = []
    workers: list[Integers] = []
    scores: list[Reals] = []
    while len(going) and len(scores) < steps:
        found = _step_scores(network, jobs, fixed, size, going)
        after = size[going, None, :] + np.array(WALK)[None]
        found[(after > most[going, None, :]).any(axis=2)] = -np.inf
        best = found.argmax(axis=1)
        value = found[np.arange(len(going)), best]
        on = value > 0
        going, best, value = going[on], best[on], value[on]
        size[going] += np.array(WALK)[best]
        scored = np.zeros(count)
        scored[going] = value
        servers.append(size[:, 0].copy())
        workers.append(size[:, 1].copy())
        scores.append(scored)
    if not scores:
        empty = np.zeros((0, count), dtype=np.int64)
        return Walks(empty, empty, np.zeros((0, count)))
    return Walks(np.array(servers), np.array(workers), np.array(scores))


def _fixed_part(network: Network, jobs: Walkers) -> Reals:
    """What the inputs that stay the same on a walk bring to the hidden layer."""
    rows = np.stack(
        (
            np.log1p(np.maximum(jobs.age, 0.0)) / 4,
            jobs.part_left,
            np.log(np.maximum(jobs.crowd, 1e-6)) / 4,
        ),
        axis=-1,
    )
    found: Reals = rows @ network.hidden[[0, 1, 7]] + network.biases
    known = jobs.sort >= 0
    found[known] += network.hidden[len(network.inputs) + jobs.sort[known]]
    return found


def _step_scores(
    network: Network, jobs: Walkers, fixed: Reals, size: Integers, going: Integers
) -> Reals:
    """The score of each step of ``WALK`` for the jobs that still go."""
    p, w = size[going, 0].astype(float), size[going, 1].astype(float)
    share = w * jobs.worker[going] + p * jobs.server[going]
    rows = np.stack((share, w / _FULL, p / _FULL, np.log2(w + 1) / 4, np.log2(p + 1) / 4), axis=-1)
    now = fixed[going] + rows @ network.hidden[2:7]
    steps = np.array([(step.workers, step.servers) for step in WALK]) @ network.hidden[8:10]
    found: Reals = np.tanh(now[:, None, :] + steps[None]) @ network.out + network.offset
    return found


def step_rows(network: Network, jobs: Walkers, size: Integers, step: Size) -> Reals:
    """Whole rows of inputs for one step of each job from a size, as training needs them."""
    p, w = size[:, 0].astype(float), size[:, 1].astype(float)
    ones = np.ones(len(p))
    share = w * jobs.worker + p * jobs.server
    rows = (
        np.log1p(np.maximum(jobs.age, 0.0)) / 4,
        jobs.part_left,
        share,
        w / _FULL,
        p / _FULL,
        np.log2(w + 1) / 4,
        np.log2(p + 1) / 4,
        np.log(np.maximum(jobs.crowd, 1e-6)) / 4,
        step.workers * ones,
        step.servers * ones,
    )
    sorts = np.zeros((len(p), len(network.sorts)))
    known = jobs.sort >= 0
    sorts[np.flatnonzero(known), jobs.sort[known]] = 1.0
    return np.concatenate((np.stack(rows, axis=-1), sorts), axis=1)


@dataclass(slots=True, eq=False)
class Walked(Gains):
    """The steps of one job's walk in place of gains: from each size the next one, with its score.

    Scores are turned into gains above 0 by exp, which keeps their order.
    """

    walks: Walks | None = None
    job: int = 0
    least: Size = _NOTHING
    #: How many steps lead to a size; sizes that are asked for follow one another.
    _reached: dict[Size, int] = field(default_factory=lambda: {_NOTHING: 0})

    def steps(
        self, more: Size, worker: Vector, server: Vector, capacity: Vector
    ) -> list[Increment]:
        """The next step of the walk, if there is one."""
        del capacity
        walks, at = self.walks, self._reached.get(more)
        if walks is None or at is None or at >= len(walks.scores):
            return []
        score = float(walks.scores[at, self.job])
        if score <= 0:
            return []
        size = Size(
            int(walks.servers[at, self.job]) - self.least.servers,
            int(walks.workers[at, self.job]) - self.least.workers,
        )
        self._reached[size] = at + 1
        step = Size(size.servers - more.servers, size.workers - more.workers)
        takes = add(times(worker, step.workers), times(server, step.servers))
        return [Increment(math.exp(min(score, _MOST_SCORE)), step, takes)]


def places(names: Sequence[str], network: Network) -> Integers:
    """The index of each sort among those that the network knows, -1 for others."""
    known = {name: at for at, name in enumerate(network.sorts)}
    return np.array([known.get(name, -1) for name in names], dtype=np.int64)
