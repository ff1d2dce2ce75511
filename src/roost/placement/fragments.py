"""Placers that keep what is left of every node usable for the workers that usually come.

Both score a node by how much one worker there would spoil. What usually comes is in
``roost.core.demand``.

``Fgd``: fragmentation gradient descent (Weng et al., USENIX ATC 2023). For a node and a typical
need, *fragmented* are all its free GPUs if the need cannot be met there, else only those parts that
are too small for it. A worker goes where that, over all typical needs, grows least.

``Usable`` sees more than the next worker. The value of a node is

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
from abc import abstractmethod
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

from roost.core.allocation import Part
from roost.core.demand import Typical
from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.spec import WHOLE, Resources, Way
from roost.placement.exchange import Arrangement
from roost.placement.placers import Pack
from roost.placement.share_prices import SharePrices

#: More milli-CPUs than any node has: where they are not counted there are always enough.
_ENDLESS = 1 << 40
#: Weights of ``Usable``, and how finely it tells nodes apart.
_SHORT, _FRAGMENTED, _SCARCE = 0.2, 0.1, 1 / 3
_SPARE = 0.85
_GRID = 300
#: After how many changes of nodes the demand for kinds is worked out anew, and the most it counts.
_PRICED = 10
_DEAREST = 2.0
#: Up to how many nodes are simply looked at one by one.
_FEW = 8
#: How many scores of states are kept.
_KEPT = 1 << 17
_NEVER = -(1 << 60)

#: The milli-GPUs that are free of each GPU of a node.
Free = tuple[int, ...]


class _State(NamedTuple):
    """All that a score depends on."""

    kind: str
    cpu_milli: int
    free: Free


class _Choice(NamedTuple):
    """How good it is to put a worker on a node, and on which GPU if it takes a share."""

    score: int
    gpu: int


_NOWHERE = _Choice(_NEVER, -1)


class Fragmentation:
    """How much of a node is of no use to typical needs."""

    def __init__(self, typical: Typical) -> None:
        self._typical = typical.needs
        self._by_kind: dict[str, tuple[float, list[tuple[int, int, int, float]]]] = {}
        self._known: dict[_State, float] = {}

    def fragmented(self, state: _State) -> float:
        """The milli-GPUs that are, on average over all typical needs."""
        known = self._known.get(state)
        if known is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            known = self._known[state] = self._count(state)
        return known

    def _count(self, state: _State) -> float:
        useless, needs = self._of_kind(state.kind)
        free = sorted([milli for milli in state.free if milli])
        total = 0
        for milli in free:
            total += milli
        found = useless * total
        slivers = big = last = 0
        for share, gpus, cpu_milli, part in needs:  # the smaller shares first
            if share != last:
                last, slivers, big = share, 0, 0
                for milli in free:
                    if milli < share:
                        slivers += milli
                    else:
                        big += 1
            met = big >= gpus and cpu_milli <= state.cpu_milli
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
    return sum([measure.fragmented(_standing(node).state) for node in ledger.select(ledger.up)])


class Rule:
    """Says how good it is that a node comes from one state into another; compares, no more."""

    def __init__(self, typical: Typical) -> None:
        self.fragmentation = Fragmentation(typical)

    @abstractmethod
    def score(self, before: _State, after: _State) -> int:
        """The more the better."""

    def price(self, kind: str, ledger: Ledger, need: Resources) -> int:  # noqa: ARG002 - none here
        """What is taken off for a kind of GPU."""
        return 0


class GradientRule(Rule):
    """The score of FGD, an integer of 0 to 100; that it is rounded is part of its success."""

    def score(self, before: _State, after: _State) -> int:
        """By how much less is fragmented then."""
        less = self.fragmentation.fragmented(before) - self.fragmentation.fragmented(after)
        return int(100.0 / (1.0 + math.exp(-less / WHOLE)))


class UsableRule(Rule):
    """The score of ``Usable``, in steps of 1/300 of a GPU."""

    def __init__(self, typical: Typical) -> None:
        super().__init__(typical)
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
        self._known: dict[_State, float] = {}
        self._scarcity = _Scarcity(typical)

    def score(self, before: _State, after: _State) -> int:
        """How much of its value a node keeps."""
        return math.floor((self._value(after) - self._value(before)) * _GRID + 1e-6)

    def price(self, kind: str, ledger: Ledger, need: Resources) -> int:
        """By how much a kind of GPU is in demand."""
        if not need.gpus:
            return 0
        scarce = self._scarcity.of(kind, ledger)
        return math.ceil(_SCARCE * scarce * need.gpu_milli / WHOLE * _GRID) if scarce else 0

    def _value(self, state: _State) -> float:
        known = self._known.get(state)
        if known is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            known = self._known[state] = self._work_out(state)
        return known

    def _work_out(self, state: _State) -> float:
        worth = 0.0
        total = 0
        for milli in state.free:
            worth += self._prices.worth(milli)
            total += milli
        free = total / WHOLE
        short = 0.0
        if self._per_gpu and state.cpu_milli < _ENDLESS:
            short = max(free - state.cpu_milli / self._per_gpu, 0.0)
        fragmented = self.fragmentation.fragmented(state) / WHOLE
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
        self._at = -1
        self._scarce: dict[str, float] = {}

    def of(self, kind: str, ledger: Ledger) -> float:
        """Of one kind, at most 2."""
        if not self._asked:
            return 0.0
        if not 0 <= ledger.stamp - self._at < _PRICED or self._at < 0:
            self._at = ledger.stamp
            self._scarce = self._work_out(ledger)
        return self._scarce.get(kind, 0.0)

    def _work_out(self, ledger: Ledger) -> dict[str, float]:
        free: dict[str, float] = {}
        for node in ledger.order:
            if node.shown_milli:
                free[node.spec.kind] = free.get(node.spec.kind, 0.0) + node.shown_milli / WHOLE
        scale = sum(free.values()) / self._mean  # as many workers as fill all that is free
        load: dict[str, float] = {}
        for kinds, gpus in self._asked:
            there = [kind for kind in kinds if free.get(kind)]
            if there:
                best = min(there, key=lambda kind: (load.get(kind, 0.0) / free[kind], kind))
                load[best] = load.get(best, 0.0) + scale * gpus
        return {kind: min(much / free[kind], _DEAREST) for kind, much in load.items()}


class _Ranking:
    """All nodes by their score for one need; only nodes that changed are looked at anew."""

    def __init__(self, need: Resources, rule: Rule, standings: _Standings) -> None:
        self._need, self._rule, self._standings = need, rule, standings
        self._stamp, self._rewinds = -1, -1
        self._choices: list[_Choice] = []
        self._heaps: dict[str, list[tuple[int, int]]] = {}
        self._known: dict[_State, _Choice] = {}
        #: What only the ledger can tell of a node: then it is asked about each.
        self._is_special = bool(need.gpu_memory_mib or need.extras)

    def best(self, ledger: Ledger) -> tuple[Node, int] | None:
        """The best node with room, and the GPU for a share; None: there is no room."""
        need = self._need
        mask = ledger.candidates(need)
        self._standings.look(ledger)
        if mask.bit_count() <= _FEW:
            return self._best_of(ledger, mask)
        self._look_again(ledger)
        best: tuple[int, int] | None = None
        for kind, heap in self._heaps.items():
            top = self._top(heap, mask)
            if top is not None:
                rank = top[0] + self._rule.price(kind, ledger, need), top[1]
                if best is None or rank < best:
                    best = rank
        if best is None:
            return None
        return ledger.order[best[1]], self._choices[best[1]].gpu

    def _best_of(self, ledger: Ledger, mask: int) -> tuple[Node, int] | None:
        """The best of a few nodes, which are not worth to be ranked."""
        best: tuple[int, Node, int] | None = None
        for node in ledger.select(mask):
            choice = self._look(ledger, node)
            if choice.score > _NEVER:
                score = choice.score - self._rule.price(node.spec.kind, ledger, self._need)
                if best is None or score > best[0]:
                    best = score, node, choice.gpu
        return None if best is None else (best[1], best[2])

    def _top(self, heap: list[tuple[int, int]], mask: int) -> tuple[int, int] | None:
        """The best of one kind that is not hidden now."""
        hidden: list[tuple[int, int]] = []
        found: tuple[int, int] | None = None
        while heap:
            top = heap[0]
            if self._choices[top[1]].score != -top[0]:
                heappop(heap)  # it changed since
            elif mask >> top[1] & 1:
                found = top
                break
            else:
                hidden.append(heappop(heap))
        for each in hidden:
            heappush(heap, each)
        return found

    def _look_again(self, ledger: Ledger) -> None:
        changed = ledger.changed_since(self._stamp) if self._rewinds == ledger.rewinds else None
        choices = self._choices
        while len(choices) < len(ledger.order):
            choices.append(_NOWHERE)
        all_of = ledger.order if changed is None or self._stamp < 0 else dict.fromkeys(changed)
        for node in all_of:
            choice = self._look(ledger, node)
            if choice != choices[node.index]:
                choices[node.index] = choice
                if choice.score > _NEVER:
                    heap = self._heaps.setdefault(node.spec.kind, [])
                    heappush(heap, (-choice.score, node.index))
        self._stamp, self._rewinds = ledger.stamp, ledger.rewinds

    def _look(self, ledger: Ledger, node: Node) -> _Choice:
        """How good a node is now."""
        need, standing = self._need, self._standings.of[node.index]
        if need.kinds and node.spec.kind not in need.kinds:
            return _NOWHERE
        if need.memory_mib > standing.memory_mib:
            return _NOWHERE
        if self._is_special or not (standing.way is None or standing.way is need.way):
            return self._ask(ledger, node, standing.state)
        known = self._known.get(standing.state)
        if known is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            known = self._known[standing.state] = self._choose(standing.state)
        return known

    def _ask(self, ledger: Ledger, node: Node, state: _State) -> _Choice:
        """The same of a node or a need that has something special about it."""
        need = self._need
        if not ledger.room(node, need):
            return _NOWHERE
        if need.gpus and need.share_milli < WHOLE:
            return self._of_gpus(state, sorted([gpu for gpu, _ in ledger.shares(node, need)]))
        return self._of_node(state)

    def _choose(self, state: _State) -> _Choice:
        need = self._need
        if need.cpu_milli > state.cpu_milli:
            return _NOWHERE
        if need.gpus and need.share_milli < WHOLE:
            gpus = [gpu for gpu, milli in enumerate(state.free) if milli >= need.share_milli]
            return self._of_gpus(state, gpus)
        if need.gpus > state.free.count(WHOLE):
            return _NOWHERE
        return self._of_node(state)

    def _of_node(self, state: _State) -> _Choice:
        return _Choice(self._rule.score(state, _after(state, self._need, -1)), -1)

    def _of_gpus(self, state: _State, gpus: list[int]) -> _Choice:
        """The best GPU of a node for a share, the first of equal ones."""
        best = _NOWHERE
        tried: set[int] = set()
        for gpu in gpus:
            milli = state.free[gpu]
            if milli not in tried:
                tried.add(milli)
                score = self._rule.score(state, _after(state, self._need, gpu))
                if score > best.score:
                    best = _Choice(score, gpu)
        return best


class _Standing(NamedTuple):
    """How a node stands; ``way``: the one way in which GPUs are shared there, None if none is.

    ``odd`` if only the ledger can tell what fits there.
    """

    state: _State
    memory_mib: int
    way: Way | str | None


_ODD = "odd"


class _Standings:
    """How all nodes of a ledger stand; only those that changed are looked at anew."""

    def __init__(self) -> None:
        self.of: list[_Standing] = []
        self._stamp, self._rewinds = -1, -1

    def look(self, ledger: Ledger) -> None:
        """Bring it up to date."""
        if self._stamp == ledger.stamp and self._rewinds == ledger.rewinds:
            return
        changed = ledger.changed_since(self._stamp) if self._rewinds == ledger.rewinds else None
        for node in ledger.order[len(self.of) :]:
            self.of.append(_standing(node))
        all_of = ledger.order if changed is None or self._stamp < 0 else dict.fromkeys(changed)
        for node in all_of:
            self.of[node.index] = _standing(node)
        self._stamp, self._rewinds = ledger.stamp, ledger.rewinds


def _standing(node: Node) -> _Standing:
    spec, usable = node.spec, node.healthy & node.visible
    free = [WHOLE if node.free >> gpu & 1 else 0 for gpu in range(spec.gpus)] if node.up else []
    way: Way | str | None = None if spec.mixed and not spec.workers else _ODD
    for gpu, device in node.shared.items():
        if usable >> gpu & 1 and node.up:
            free[gpu] = device.left_milli
            # Shares of more memory than goes with them leave less than it seems.
            less = device.left_mib * WHOLE < device.left_milli * spec.gpu_memory_mib
            way = device.way if way in (None, device.way) and not less else _ODD
    cpu_milli = node.cpu_left if spec.cpu_milli else _ENDLESS
    memory_mib = node.memory_left if spec.memory_mib else _ENDLESS
    if not node.up:
        cpu_milli = memory_mib = -1
    return _Standing(_State(spec.kind, cpu_milli, tuple(free)), memory_mib, way)


def _after(state: _State, need: Resources, share: int) -> _State:
    """How a node stands with a worker more; a share is taken of that GPU, others of the first."""
    cpus = state.cpu_milli - (need.cpu_milli if state.cpu_milli < _ENDLESS else 0)
    if not need.gpus:
        return _State(state.kind, cpus, state.free)
    free = list(state.free)
    if share >= 0:
        free[share] -= need.share_milli
    else:
        left = need.gpus
        for gpu, milli in enumerate(free):
            if milli == WHOLE and left:
                free[gpu] = 0
                left -= 1
    return _State(state.kind, cpus, tuple(free))


class _Rankings:
    """What a placer keeps about one ledger: a ranking for each need, as long as its rule holds."""

    def __init__(self) -> None:
        self.version = -1
        self.rule: Rule | None = None
        self.standings = _Standings()
        self.of: dict[Resources, _Ranking] = {}


#: The most rankings that are kept.
_RANKINGS = 512


class FragmentPlacer(Pack):
    """Places workers one by one where a rule likes it best.

    A gang of whole GPUs that one node can hold is placed as one worker that asks for all; a larger
    one goes on as few nodes as possible.
    """

    #: What its rankings are kept under.
    name = ""

    @abstractmethod
    def rule(self, typical: Typical) -> Rule:
        """The rule for a workload."""

    def _role(self, ledger: Ledger, need: Resources, workers: int, role: str) -> list[Part] | None:
        if workers == 1:
            place = self._best_preferred(ledger, need)
            return None if place is None else self._on(ledger, place, need, role)
        if need.share_milli < WHOLE and need.pool not in ledger.contingents:
            return self._one_by_one(ledger, need, workers, role)
        return super()._role(ledger, need, workers, role)

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        if ledger.could(need, workers):
            whole = replace(
                need,
                gpus=need.gpus * workers,
                cpu_milli=need.cpu_milli * workers,
                memory_mib=need.memory_mib * workers,
                extras=tuple((name, amount * workers) for name, amount in need.extras),
            )
            place = self._best(ledger, whole)
            if place is not None and ledger.room(place[0], need) >= workers:
                return [(place[0], workers)]
        return super()._arrange(ledger, need, workers)

    def _one_by_one(
        self, ledger: Ledger, need: Resources, workers: int, role: str
    ) -> list[Part] | None:
        parts: list[Part] = []
        with ledger.trial():
            for _ in range(workers):
                place = self._best(ledger, need)
                if place is None:
                    break
                parts += self._on(ledger, place, need, role)
                ledger.take(parts[-1], need)
            for part in reversed(parts):
                ledger.release(part, need)
        return parts if len(parts) == workers else None

    def _best_preferred(self, ledger: Ledger, need: Resources) -> tuple[Node, int] | None:
        """The best of the most preferred nodes with room, for a worker that is alone."""
        for group in ledger.preferred_nodes(need.pool):
            if ledger.up & group:
                with ledger.only(ledger.up & group):
                    place = self._best(ledger, need)
                if place is not None:
                    return place
        return self._best(ledger, need)

    @staticmethod
    def _on(ledger: Ledger, place: tuple[Node, int], need: Resources, role: str) -> list[Part]:
        node, gpu = place
        if gpu < 0:
            return ledger.pick(node, need, 1, role)
        return [Part(node.id, (gpu,), need.share_milli, 1, role)]

    def _best(self, ledger: Ledger, need: Resources) -> tuple[Node, int] | None:
        notes = ledger.notes.get(self.name)
        if not isinstance(notes, _Rankings):
            notes = ledger.notes[self.name] = _Rankings()
        typical = ledger.demand.typical()
        if notes.rule is None or notes.version != typical.version or len(notes.of) > _RANKINGS:
            notes.version, notes.rule, notes.of = typical.version, self.rule(typical), {}
        ranking = notes.of.get(need)
        if ranking is None:
            ranking = notes.of[need] = _Ranking(need, notes.rule, notes.standings)
        return ranking.best(ledger)


class Fgd(FragmentPlacer):
    """Fragmentation gradient descent: where the least becomes useless to what usually comes."""

    name = "fgd"

    def rule(self, typical: Typical) -> Rule:
        """FGD's own score."""
        return GradientRule(typical)


class Usable(FragmentPlacer):
    """Where what is left keeps the most value: for shares, with CPUs, of kinds in demand."""

    name = "usable"

    def rule(self, typical: Typical) -> Rule:
        """The value of what is left."""
        return UsableRule(typical)
