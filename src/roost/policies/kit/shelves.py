"""Shelves: GPUs that are shared, and how many of the shares that wait fit on them.

A share that fits beside others costs nobody a whole GPU. One that does not opens a new GPU, and the
next ones go there. So a crowd of shares comes to as many whole GPUs as it really needs, which can
be weighed against those that others ask for. Nothing is booked: where each share goes in the end,
the placer says.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.spec import WHOLE, JobSpec, Resources, Way

#: Up to so many GPUs with room are tried for one share.
_TRIED = 16


def is_share(spec: JobSpec) -> bool:
    """Whether a job begins with one worker on a part of a GPU, and that is all of it."""
    need = spec.resources
    return need.share_milli < WHOLE and need.gpus == 1 == spec.workers.min and not spec.roles


class ShelfRoom:
    """What is left of shared GPUs, and of those that would be opened."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: By the way of sharing: what is left of each GPU and its node, the least first.
        self._left: dict[Way, list[tuple[int, int]]] = {}
        #: The same of GPUs that would be opened, by whom they were opened for.
        self._opened: dict[tuple[object, ...], list[int]] = {}
        #: What is left of GPUs that are shared now.
        self.free_milli = 0
        for node in ledger.select(ledger.sharing):
            self._look(node)
        for left in self._left.values():
            left.sort()

    def _look(self, node: Node) -> None:
        usable = node.healthy & node.visible
        for gpu, device in node.shared.items():
            if device.left_milli and usable >> gpu & 1:
                self._left.setdefault(device.way, []).append((device.left_milli, node.index))
                self.free_milli += device.left_milli

    def take(self, need: Resources) -> bool:
        """Put a share where it leaves the least, beside others; False: it would open a GPU."""
        opened = self._opened.get(_sort(need), [])
        at = bisect_left(opened, need.share_milli)
        if self._beside(need):
            return True
        if at == len(opened):
            return False
        insort(opened, opened.pop(at) - need.share_milli)
        return True

    def open(self, need: Resources) -> None:
        """Open a GPU for a share; whole GPUs have no room for others."""
        if need.share_milli < WHOLE:
            insort(self._opened.setdefault(_sort(need), []), WHOLE - need.share_milli)

    def _beside(self, need: Resources) -> bool:
        """Put a share on a GPU that is shared now."""
        ledger, left = self._ledger, self._left.get(need.way, [])
        first = bisect_left(left, (need.share_milli, -1))
        for at in range(first, min(first + _TRIED, len(left))):
            milli, index = left[at]
            node = ledger.order[index]
            if ledger.suits(node, need) and ledger.room(node, need):
                del left[at]
                insort(left, (milli - need.share_milli, index))
                return True
        return False


def _sort(need: Resources) -> tuple[object, ...]:
    """Shares that may go on one GPU wherever it is opened."""
    return need.way, need.kinds, need.pool
