"""Where a gang goes: placers, chosen apart from the policy, which says which job goes next."""

from __future__ import annotations

from roost.core.plan import Placer
from roost.errors import unknown
from roost.placement.even import Even
from roost.placement.placers import Anywhere, Consolidate, FirstFit, Pack, Spread, Topology

__all__ = ["PLACERS", "placer"]

#: Name → placer; the first line of each docstring is its help text.
PLACERS: dict[str, Placer] = {
    "first-fit": FirstFit(),
    "consolidate": Consolidate(),
    "pack": Pack(),
    "spread": Spread(),
    "topology": Topology(),
    "anywhere": Anywhere(),
    "even": Even(),
}


def placer(name: str) -> Placer:
    """The placer of that name."""
    try:
        return PLACERS[name]
    except KeyError:
        raise unknown("placer", name, PLACERS) from None
