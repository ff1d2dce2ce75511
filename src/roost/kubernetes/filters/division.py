"""How many pods of a gang go to which domain, where they keep apart or spread among themselves.

One pod after the other they could be placed so that the last one finds no place. So it is worked
out for all of them at once, from the room that each domain has: pods that are alike, by the domains
of one topology. It finds a way whenever there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

#: Where nodes are that are in no domain: nothing keeps pods apart there, and no spread allows it.
OUTSIDE = "\0"


class Demand(NamedTuple):
    """What pods of a gang ask of each other: to be apart (``skew`` 0), or spread.

    ``counts`` are the pods of others in each domain that count, for a spread all domains.
    """

    key: str
    counts: Mapping[str, int]
    skew: int
    min_domains: int = 1


class Demands(NamedTuple):
    """All that they ask of each other; ``whole``: they are spread in no other way."""

    each: tuple[Demand, ...]
    whole: bool


def divided(
    pods: int, rooms: Mapping[str, int], demands: Sequence[Demand]
) -> dict[str, int] | None:
    """How many of so many pods go to each domain of one topology; None: there is no way.

    ``rooms`` says for how many of them there is room; domains that are not in it take none. If
    several ways are possible, it is one that is as even as can be.

    With ``a_d`` pods of others and ``n_d`` of ours in a domain, and the least of all domains ``m =
    min(a_d + n_d)``, a spread asks for ``a_d + n_d <= m + skew`` where ``n_d > 0``. So for each m
    there is a least and a most for each domain, and what is between them is all possible.
    """
    most = {domain: min(room, pods) for domain, room in rooms.items()}
    for demand in demands:
        if not demand.skew:
            counts = demand.counts
            most |= {
                domain: min(room, max(0, 1 - counts.get(domain, 0)))
                for domain, room in most.items()
                if domain != OUTSIDE
            }
        else:
            most = {domain: room for domain, room in most.items() if domain in demand.counts}
    spreads = [demand for demand in demands if demand.skew]
    for levels in product(*(_levels(spread, pods) for spread in spreads)):
        least, highest = dict.fromkeys(most, 0), dict(most)
        for spread, level in zip(spreads, levels, strict=True):
            _narrow(least, highest, spread, level)
        found = _dealt(pods, least, highest)
        if found is not None:
            return found
    return None


def keeps(demand: Demand, found: Mapping[str, int]) -> bool:
    """Whether pods of a gang in these domains keep to a demand once all are there."""
    counts = demand.counts
    if not demand.skew:
        return all(
            many + counts.get(domain, 0) <= 1
            for domain, many in found.items()
            if many and domain != OUTSIDE
        )
    total = {domain: many + found.get(domain, 0) for domain, many in counts.items()}
    least = min(total.values(), default=0) if len(counts) >= demand.min_domains else 0
    return all(
        domain in total and total[domain] <= least + demand.skew
        for domain, many in found.items()
        if many
    )


def _levels(spread: Demand, pods: int) -> range:
    """The least that domains may come to, the most even first."""
    if len(spread.counts) < spread.min_domains:
        return range(1)
    return range(min(spread.counts.values(), default=0) + pods, -1, -1)


def _narrow(least: dict[str, int], most: dict[str, int], spread: Demand, level: int) -> None:
    """Keep to a spread with so many pods at least in each domain."""
    few = len(spread.counts) < spread.min_domains
    for domain, many in spread.counts.items():
        least[domain] = max(least.get(domain, 0), 0 if few else level - many)
        most[domain] = min(most.get(domain, 0), max(0, level + spread.skew - many))


def _dealt(pods: int, least: Mapping[str, int], most: Mapping[str, int]) -> dict[str, int] | None:
    """So many pods between bounds, one by one to the domain that has the fewest of them."""
    if any(least[domain] > most[domain] for domain in least):
        return None
    left = pods - sum(least.values())
    if left < 0 or sum(most.values()) < pods:
        return None
    found = dict(least)
    while left:
        # All that are lowest are raised together, as far as there are pods.
        open_ = sorted((n, domain) for domain, n in found.items() if n < most[domain])
        low = [domain for n, domain in open_ if n == open_[0][0]][:left]
        # Of equal ones those with the most room first.
        low.sort(key=lambda domain: (-most[domain], domain))
        for domain in low:
            found[domain] += 1
        left -= len(low)
    return {domain: n for domain, n in found.items() if n}
