"""Nodes in the order in which a rule of ``fragments`` likes them, for each need.

Nobody looks at all nodes for a worker: a ranking looks at those that changed since it was asked
last, and leftovers that it has seen before cost it a look into a table.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.spec import WHOLE, Resources
from roost.placement.fragments import NodeRule
from roost.placement.leftovers import Leftover, Leftovers, NodeRest

#: Up to how many nodes are simply looked at one by one.
_FEW = 8
_NEVER = -(1 << 60)


class _Fit(NamedTuple):
    """How good it is to put a worker on a node, and on which GPU if it takes a share."""

    score: int
    gpu: int


_NOWHERE = _Fit(_NEVER, -1)


class Ranking:
    """All nodes by their score for one need, without its memory: needs may differ by that alone.

    How much memory of a node a worker takes is said when the best node is asked for.
    """

    def __init__(self, need: Resources, rule: NodeRule, leftovers: Leftovers) -> None:
        self._need, self._rule, self._leftovers = need, rule, leftovers
        self._way = need.way
        self._stamp, self._rewinds = -1, -1
        self._fits: list[_Fit] = []
        #: For each kind of GPU nodes with room, the best first; some entries are out of date.
        self._heaps: dict[str, list[tuple[int, int]]] = {}
        #: By the numbers of leftovers; None: not judged yet.
        self._known: list[_Fit | None] = []
        #: Whether only the ledger can tell where it fits.
        self._is_odd = bool(need.gpu_memory_mib or need.extras)

    def best(self, ledger: Ledger, memory_mib: int) -> tuple[Node, int] | None:
        """The best node with room, and the GPU for a share (else -1); None: there is no room."""
        need = self._need
        mask = ledger.candidates(need)
        self._leftovers.look(ledger)
        if mask.bit_count() <= _FEW:
            return self._best_of(ledger, mask, memory_mib)
        self._look_again(ledger)
        best: tuple[int, int] | None = None
        for kind, heap in self._heaps.items():
            top = self._top(heap, mask, memory_mib)
            if top is not None:
                rank = top[0] + self._rule.price(kind, self._leftovers, need), top[1]
                if best is None or rank < best:
                    best = rank
        if best is None:
            return None
        return ledger.order[best[1]], self._fits[best[1]].gpu

    def _best_of(self, ledger: Ledger, mask: int, memory_mib: int) -> tuple[Node, int] | None:
        """The best of a few nodes, which are not worth to be ranked."""
        best: tuple[int, Node, int] | None = None
        for node in ledger.select(mask):
            fit = self._look(ledger, node)
            if fit.score > _NEVER and self._leftovers.of[node.index].memory_mib >= memory_mib:
                score = fit.score - self._rule.price(node.spec.kind, self._leftovers, self._need)
                if best is None or score > best[0]:
                    best = score, node, fit.gpu
        return None if best is None else (best[1], best[2])

    def _top(
        self, heap: list[tuple[int, int]], mask: int, memory_mib: int
    ) -> tuple[int, int] | None:
        """The best of one kind that is not hidden now, and has so much memory."""
        rests = self._leftovers.of
        hidden: list[tuple[int, int]] = []
        found: tuple[int, int] | None = None
        while heap:
            top = heap[0]
            if self._fits[top[1]].score != -top[0]:
                heappop(heap)  # it changed since
            elif mask >> top[1] & 1 and rests[top[1]].memory_mib >= memory_mib:
                found = top
                break
            else:
                hidden.append(heappop(heap))
        for each in hidden:
            heappush(heap, each)
        return found

    def _look_again(self, ledger: Ledger) -> None:
        changed = ledger.changed_since(self._stamp) if self._rewinds == ledger.rewinds else None
        fits = self._fits
        while len(fits) < len(ledger.order):
            fits.append(_NOWHERE)
        all_of = ledger.order if changed is None or self._stamp < 0 else dict.fromkeys(changed)
        for node in all_of:
            fit, before = self._look(ledger, node), fits[node.index]
            if fit is not before:
                fits[node.index] = fit
                if fit.score > _NEVER and fit.score != before.score:
                    heap = self._heaps.setdefault(node.spec.kind, [])
                    heappush(heap, (-fit.score, node.index))
        self._stamp, self._rewinds = ledger.stamp, ledger.rewinds

    def _look(self, ledger: Ledger, node: Node) -> _Fit:
        """How good a node is now."""
        rest = self._leftovers.of[node.index]
        if self._is_odd or rest.is_odd or not (rest.way is None or rest.way is self._way):
            return self._ask(ledger, node, rest) if self._could(rest) else _NOWHERE
        number, known = rest.number, self._known
        if number >= len(known):
            known.extend([None] * (number + 1 - len(known)))
        fit = known[number]
        if fit is None:
            fit = known[number] = self._judge(rest.leftover) if self._could(rest) else _NOWHERE
        return fit

    def _could(self, rest: NodeRest) -> bool:
        """Whether there are enough GPUs of the right kind, and CPUs."""
        need = self._need
        if need.gpus and rest.most < need.share_milli:
            return False
        if need.share_milli == WHOLE and rest.whole < need.gpus:
            return False
        if rest.leftover.cpu_milli < need.cpu_milli:
            return False
        return not need.kinds or rest.leftover.kind in need.kinds

    def _ask(self, ledger: Ledger, node: Node, rest: NodeRest) -> _Fit:
        """The same where the ledger has to say what fits."""
        need, left = self._need, rest.leftover
        if not ledger.room(node, need):
            return _NOWHERE
        if need.gpus and need.share_milli < WHOLE:
            return self._of_gpus(left, sorted([gpu for gpu, _ in ledger.shares(node, need)]))
        return self._of_node(left)

    def _judge(self, left: Leftover) -> _Fit:
        need = self._need
        if need.gpus and need.share_milli < WHOLE:
            gpus = [gpu for gpu, milli in enumerate(left.free) if milli >= need.share_milli]
            return self._of_gpus(left, gpus)
        return self._of_node(left)

    def _of_node(self, left: Leftover) -> _Fit:
        return _Fit(self._rule.score(left, left.without(self._need, -1)), -1)

    def _of_gpus(self, left: Leftover, gpus: list[int]) -> _Fit:
        """The best GPU of a node for a share, the first of equal ones."""
        best = _NOWHERE
        tried: set[int] = set()
        for gpu in gpus:
            milli = left.free[gpu]
            if milli not in tried:
                tried.add(milli)
                score = self._rule.score(left, left.without(self._need, gpu))
                if score > best.score:
                    best = _Fit(score, gpu)
        return best
