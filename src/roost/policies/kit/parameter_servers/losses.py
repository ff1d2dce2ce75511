"""Sizes for all jobs without the changes that lose: every change of a run costs a restart.

All is dealt out as if changes were free; then once more, with the runs fixed whose change would not
pay. What paying means is the rule's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from roost.core.state import Run
from roost.policies.kit.parameter_servers.gains import Apportioned, Demand, Size
from roost.policies.kit.parameter_servers.slots import held

#: Gives every demand a size.
Deal: TypeAlias = Callable[[Sequence[Demand]], Apportioned]
#: Whether a run (its place among the demands) should change to a size at that price of room.
Pays: TypeAlias = Callable[[int, Size, float], bool]


def without_losses(
    runs: Sequence[Run], demands: Sequence[Demand], deal: Deal, pays: Pays
) -> list[Size | None]:
    """A size for each demand; the first of them are those of the runs."""
    first = deal(demands)
    kept = list(demands)
    for at, run in enumerate(runs):
        size, now = first.sizes[at], held(run)
        if size is None or size == now or demands[at].fixed is not None:
            continue
        if not pays(at, size, first.price):
            kept[at] = replace(demands[at], fixed=now)
    second = deal(kept)
    if None in second.sizes and None not in first.sizes:
        return first.sizes  # a job would be left out for the sake of runs that stay as they are
    return second.sizes
