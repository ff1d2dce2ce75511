"""How much a worker would spoil of a node for those that usually come: two measures.

What usually comes, the *typical needs*, is in ``roost.core.demand``.

``GradientRule`` is that of fragmentation gradient descent (FGD: Weng et al., USENIX ATC 2023). For
a node and a typical need, *fragmented* are all its free GPUs if the need cannot be met there, else
only those parts that are too small for it. A worker goes where that, over all typical needs, grows
least.

``ValueRule`` sees more than the next worker. The value of a node is

    sum over its GPUs of worth(free)                what shares would pay (``share_prices``)
    - 0.2 * max(0, free - CPUs left / (0.85 c))     GPUs that its CPUs do not suffice for
    - 0.1 * fragmented                              as above

in GPUs, where ``c`` is how many CPUs go with a GPU. A worker goes where the value falls least,
after a third of what the kind of GPU is in demand: the GPUs that typical needs ask for by kind, for
each that is free of it. Values are rounded to 1/300 of a GPU, and of equal nodes the first is
taken: so load gathers on some, and others stay whole.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from roost.core.demand import Typical
from roost.core.ledger import Ledger
from roost.core.spec import WHOLE, Resources
from roost.placement.leftovers import ENDLESS, Leftover, Leftovers, leftover_of
from roost.placement.share_prices import SharePrices

#: Weights of ``ValueRule``, and how finely it tells nodes apart.
_SHORT, _FRAGMENTED, _SCARCE = 0.2, 0.1, 1 / 3
_SPARE = 0.85
_GRID = 300
#: The most that the demand for a kind counts, and how many bits of what is free count for it.
_DEAREST = 2.0
_BITS = 5
#: How many measures are kept.
_KEPT = 1 << 17


class Fragmentation:
    """How much of a node is of no use to typical needs."""

    def __init__(self, typical: Typical) -> None:
        self._typical = typical.needs
        self._by_kind: dict[str, tuple[float, list[tuple[int, int, int, float]]]] = {}
        self._known: dict[Leftover, float] = {}

    def fragmented(self, left: Leftover) -> float:
        """The milli-GPUs that are, on average over all typical needs."""
        known = self._known.get(left)
        if known is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            known = self._known[left] = self._count(left)
        return known

    def _count(self, left: Leftover) -> float:
        useless, needs = self._of_kind(left.kind)
        free = sorted(left.free)
        many, total = len(free), 0
        for milli in free:
            total += milli
        found = useless * total
        slivers = small = 0
        for share, gpus, cpu_milli, part in needs:  # the smaller shares first
            while small < many and free[small] < share:
                slivers += free[small]
                small += 1
            met = many - small >= gpus and cpu_milli <= left.cpu_milli
            found += part * (slivers if met else total)
        return found

    def _of_kind(self, kind: str) -> tuple[float, list[tuple[int, int, int, float]]]:
        """The part of needs that a kind of GPU is of no use for, and the others."""
        known = self._by_kind.get(kind)
        if known is None:
            useless, needs = 0.0, list[tuple[int, int, int, float]]()
            for need, part in self._typical:
                if need.gpus and (not need.kinds or kind in need.kinds):
                    needs.append((need.share_milli, need.gpus, need.cpu_milli, part))
                else:
                    useless += part
            needs.sort()
            known = self._by_kind[kind] = useless, needs
        return known


def fragmented_milli(ledger: Ledger, typical: Typical) -> float:
    """The milli-GPUs of all nodes that are free and of no use to typical needs."""
    measure = Fragmentation(typical)
    return sum([measure.fragmented(leftover_of(node)) for node in ledger.select(ledger.up)])


class NodeRule(ABC):
    """Says how good it is that less is left of a node; only to be compared."""

    @abstractmethod
    def score(self, before: Leftover, after: Leftover) -> int:
        """The more the better."""

    @abstractmethod
    def price(self, kind: str, leftovers: Leftovers, need: Resources) -> int:
        """What is taken off for a kind of GPU."""


class GradientRule(NodeRule):
    """The score of FGD, an integer of 0 to 100; that it is rounded is part of its success."""

    def __init__(self, typical: Typical) -> None:
        self._fragmentation = Fragmentation(typical)

    def score(self, before: Leftover, after: Leftover) -> int:
        """By how much less is fragmented then."""
        less = self._fragmentation.fragmented(before) - self._fragmentation.fragmented(after)
        return int(100.0 / (1.0 + math.exp(-less / WHOLE)))

    def price(self, kind: str, leftovers: Leftovers, need: Resources) -> int:
        """No kind is dearer than another."""
        del kind, leftovers, need
        return 0


class ValueRule(NodeRule):
    """By the value of what is left, in steps of 1/300 of a GPU."""

    def __init__(self, typical: Typical) -> None:
        self._fragmentation = Fragmentation(typical)
        shares: dict[int, float] = {}
        cpus = gpus = 0.0
        for need, part in typical.needs:
            if need.gpus:
                cpus += part * need.cpu_milli
                gpus += part * need.gpu_milli / WHOLE
                if need.share_milli < WHOLE:
                    shares[need.share_milli] = shares.get(need.share_milli, 0.0) + part
        self._prices = SharePrices(shares)
        self._per_gpu = _SPARE * cpus / gpus if gpus else 0.0
        self._known: dict[Leftover, float] = {}
        self._scarcity = _Scarcity(typical)

    def score(self, before: Leftover, after: Leftover) -> int:
        """How much of its value a node keeps; of equal ones none comes that loses a whole GPU."""
        kept = math.floor((self._value(after) - self._value(before)) * _GRID + 1e-6)
        return 2 * kept - (before.free.count(WHOLE) > after.free.count(WHOLE))

    def price(self, kind: str, leftovers: Leftovers, need: Resources) -> int:
        """By how much a kind of GPU is in demand."""
        if not need.gpus:
            return 0
        scarce = self._scarcity.of(kind, leftovers)
        return 2 * math.ceil(_SCARCE * scarce * need.gpu_milli / WHOLE * _GRID) if scarce else 0

    def _value(self, left: Leftover) -> float:
        known = self._known.get(left)
        if known is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            known = self._known[left] = self._work_out(left)
        return known

    def _work_out(self, left: Leftover) -> float:
        worth = 0.0
        total = 0
        for milli in left.free:
            worth += self._prices.worth(milli)
            total += milli
        short = 0.0
        if self._per_gpu and left.cpu_milli < ENDLESS:
            short = max(total / WHOLE - left.cpu_milli / self._per_gpu, 0.0)
        fragmented = self._fragmentation.fragmented(left) / WHOLE
        return worth - _SHORT * short - _FRAGMENTED * fragmented


class _Scarcity:
    """How much of each kind of GPU is asked for by name, for each that is free of it."""

    def __init__(self, typical: Typical) -> None:
        self._asked: list[tuple[tuple[str, ...], float]] = []
        self._mean = 0.0  # GPUs of a typical worker
        for need, part in typical.needs:
            gpus = part * need.gpu_milli / WHOLE
            self._mean += gpus
            if gpus and need.kinds:
                self._asked.append((need.kinds, gpus))
        # Needs that have the least choice are served first.
        self._asked.sort(key=lambda each: (len(each[0]), -each[1], each[0]))
        self._version = -1
        self._free: dict[str, float] = {}
        self._scarce: dict[str, float] = {}

    def of(self, kind: str, leftovers: Leftovers) -> float:
        """Of one kind, at most 2."""
        if not self._asked:
            return 0.0
        if leftovers.version == self._version:  # each kind is asked for in turn
            return self._scarce.get(kind, 0.0)
        self._version = leftovers.version
        # Coarsely, so that it need not be worked out anew for every worker, and by nothing but
        # what is free now: what is remembered must not change a choice.
        free = {kind: _rounded(milli) / WHOLE for kind, milli in leftovers.free_milli.items()}
        if free != self._free:
            self._free, self._scarce = free, self._work_out(free)
        return self._scarce.get(kind, 0.0)

    def _work_out(self, free: dict[str, float]) -> dict[str, float]:
        scale = sum(free.values()) / self._mean  # as many workers as fill all that is free
        load: dict[str, float] = {}
        for kinds, gpus in self._asked:
            there = [kind for kind in kinds if free.get(kind)]
            if there:
                best = min(there, key=lambda kind: (load.get(kind, 0.0) / free[kind], kind))
                load[best] = load.get(best, 0.0) + scale * gpus
        return {kind: min(much / free[kind], _DEAREST) for kind, much in load.items()}


def _rounded(milli: int) -> int:
    """The first bits of a number."""
    shift = max(milli.bit_length() - _BITS, 0)
    return milli >> shift << shift
