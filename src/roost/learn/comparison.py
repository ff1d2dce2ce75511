"""Learnt networks beside the rules they are compared with, on traces that no training saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from roost.learn.deciders import Leaper
from roost.learn.rules import Drf, Floor, OptimusRule
from roost.learn.slots import Decider, SlotWorld, Trace

#: Traces of tests have seeds that begin with these, those of training do not.
_TEST = 4
#: Under what names rows are shown.
DRF, OPTIMUS, BEST_FIT, RULE, FLOOR = "drf", "optimus", "optimus-best-fit", "lookahead", "floor"


class Compared(NamedTuple):
    """One policy over all traces, in slots; ratios are those of mean completion times."""

    policy: str
    nodes: int
    mean_jct: float
    makespan: float
    to_optimus: float
    to_best_fit: float
    to_drf: float
    to_lookahead: float
    to_floor: float


def draw_tests(world: SlotWorld, seed: int, count: int = 10, jobs: int = 60) -> list[Trace]:
    """Traces of the test."""
    return [world.draw((seed, _TEST, at), jobs) for at in range(count)]


def compare(
    world: SlotWorld, tests: Sequence[Trace], learnt: Mapping[str, Decider]
) -> list[Compared]:
    """The rules, what was learnt, and the floor."""
    deciders: dict[str, Decider] = {
        DRF: Drf(world),
        OPTIMUS: OptimusRule(world),
        BEST_FIT: OptimusRule(world, best_fit=True),
        RULE: Leaper(world),
        **learnt,
        FLOOR: Floor(world),
    }
    played = {name: world.play(tests, decide) for name, decide in deciders.items()}
    mean = {name: float(np.mean([one.mean for one in each])) for name, each in played.items()}
    return [
        Compared(
            name,
            world.nodes,
            mean[name],
            float(np.mean([one.makespan for one in each])),
            *(mean[name] / mean[other] for other in (OPTIMUS, BEST_FIT, DRF, RULE, FLOOR)),
        )
        for name, each in played.items()
    ]
