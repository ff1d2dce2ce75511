"""Where a gang goes: placers, chosen apart from the policy, which says which job goes next."""

from __future__ import annotations

from roost.core.demand import Counts
from roost.core.plan import Placer
from roost.errors import InvalidSpec, unknown
from roost.placement.even import Even
from roost.placement.fragment_placers import Compact, Fgd, FragmentPlacer, Usable
from roost.placement.placers import Anywhere, Cells, Consolidate, FirstFit, Pack, Spread, Topology

__all__ = ["PLACERS", "SUMMARIES", "placer"]

#: Name → placer.
PLACERS: dict[str, Placer] = {
    "first-fit": FirstFit(),
    "consolidate": Consolidate(),
    "pack": Pack(),
    "spread": Spread(),
    "topology": Topology(),
    "anywhere": Anywhere(),
    "even": Even(),
    "fgd": Fgd(),
    "usable": Usable(),
    "compact": Compact(),
    "cells": Cells(),
}

#: Name → what it does. The docstrings say the same, but compiled classes have none.
SUMMARIES: dict[str, str] = {
    "first-fit": "First fit, consolidated: one node if a node can hold the gang, "
    "else only whole free nodes.",
    "consolidate": "Best fit on as few nodes as the gang can possibly use; "
    "rather waits than spreads further.",
    "pack": "Best fit: the tightest node that holds the gang, else as few nodes as possible.",
    "spread": "Worst fit: workers one by one on the emptiest nodes, so that neighbours are few.",
    "topology": "The smallest cell that holds the gang: a socket, node, switch, block, zone, "
    "then anywhere.",
    "anywhere": "First fit without regard to locality: any free device will do, in node order.",
    "even": "Evenly on the fewest nodes, servers beside workers, as Optimus does; else best fit.",
    "fgd": "Fragmentation gradient descent: where the least becomes useless to what usually comes.",
    "usable": "Where what is left keeps the most value: for shares, with CPUs, of kinds in demand.",
    "compact": "As usable where fragments matter, and gangs that a node could hold stay together.",
    "cells": "First fit by cells: on a node, the devices of the smallest cell "
    "that has enough left.",
}


def placer(name: str, known: Counts = ()) -> Placer:
    """The placer of that name; ``known`` is what usually comes, for those that go by that."""
    try:
        found = PLACERS[name]
    except KeyError:
        raise unknown("placer", name, PLACERS) from None
    if not known:
        return found
    if isinstance(found, FragmentPlacer):
        return type(found)(known)
    able = [other for other, one in PLACERS.items() if isinstance(one, FragmentPlacer)]
    raise InvalidSpec(
        f"placer {name!r} does not go by what usually comes: known shapes are for {', '.join(able)}"
    )
