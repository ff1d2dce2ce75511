"""A choice of one option for each job, so that all fit and the sum of costs is least.

This is a multiple-choice knapsack with a capacity for each GPU kind. Prices per GPU of each kind
are found first (the dual, by subgradient): with them every job can choose for itself. What then
does not fit is mended, and what is left is given to the job it helps most. Prices come back with
the choice: they say what one more GPU of a kind would be worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from roost.perf.arrays import Integers, Reals

_ROUNDS = 40
_SWEEPS = 6
#: The larger the table, the fewer changes are tried: so many entries are looked at in all.
_EFFORT = 1_000_000
#: After so many steps that made nothing better they are halved.
_FAILED = 3
#: A gain below this is none.
_NOTHING = 1e-9


#: Whether gangs of these sizes can be packed on the nodes of a kind.
Fits: TypeAlias = Callable[[int, Sequence[int]], bool]


def choose_by_prices(  # noqa: PLR0913 - a knapsack is what it is
    cost: Reals,
    kind: Integers,
    gpus: Integers,
    capacity: Integers,
    start: Integers,
    fits: Fits,
    prices: Reals,
) -> tuple[Integers, Reals]:
    """The column of each job (a row of ``cost``), and the price of a GPU of each kind.

    A column takes ``gpus`` of a ``kind``; the last one takes nothing, and is always allowed. The
    search begins at ``start`` and at what ``prices`` of an earlier choice suggest.
    """
    search = _Search(cost, kind, gpus, capacity, fits)
    everything = search.at(np.zeros_like(prices))
    if search.fits_all(everything):
        return everything, np.zeros_like(prices)
    best = search.improved(search.mended(start))
    prices = search.price(prices, search.total(best))
    other = search.improved(search.mended(search.at(prices)))
    if search.total(other) < search.total(best) - _NOTHING:
        best = other
    return best, prices


class _Search:
    def __init__(
        self, cost: Reals, kind: Integers, gpus: Integers, capacity: Integers, fits: Fits
    ) -> None:
        self.cost = cost
        self.kind = kind
        self.gpus = gpus
        self.capacity = capacity
        self.fits = fits
        self.kinds = len(capacity)
        self.use = np.where(np.arange(self.kinds)[:, None] == kind, gpus, 0).astype(np.float64)
        self.rows = np.arange(len(cost))

    def total(self, chosen: Integers) -> float:
        return float(self.cost[self.rows, chosen].sum())

    # -- prices --------------------------------------------------------------------------------

    def price(self, prices: Reals, upper: float) -> Reals:
        """Prices at which about as much is asked for as there is, from earlier ones.

        ``upper``: what a choice that fits costs. Steps go that far (Polyak), and are halved when
        they go too far.
        """
        best, most, part, failed = prices, -np.inf, 1.0, 0
        for _ in range(_ROUNDS):
            priced = self.cost + prices @ self.use
            chosen = priced.argmin(axis=1)
            value = float(priced[self.rows, chosen].sum() - prices @ self.capacity)
            if value > most + _NOTHING:
                best, most, failed = prices, value, 0
            else:
                failed += 1
                if failed >= _FAILED:
                    part, failed, prices = part / 2.0, 0, best
                    continue
            excess = self.use[:, chosen].sum(axis=1) - self.capacity
            excess[(prices <= 0) & (excess < 0)] = 0.0
            square = float(excess @ excess)
            if square == 0 or upper - most <= _NOTHING:
                break
            prices = np.maximum(0.0, prices + part * (upper - value) / square * excess)
        return best

    def at(self, prices: Reals) -> Integers:
        """What jobs choose at these prices."""
        return np.asarray((self.cost + prices @ self.use).argmin(axis=1))

    # -- making it fit -------------------------------------------------------------------------

    def mended(self, chosen: Integers) -> Integers:
        """The same with jobs changed until all fits, first those that lose least per GPU."""
        chosen = chosen.copy()
        used = self.use[:, chosen].sum(axis=1)
        while True:
            over = used - self.capacity
            kind, crowded = int(over.argmax()), True
            if over[kind] <= 0:
                kind, crowded = self._unpacked(chosen), False
                if kind < 0:
                    return chosen
            used = self._relieve(chosen, used, kind, elsewhere=crowded)

    def fits_all(self, chosen: Integers) -> bool:
        """Whether all of that is there at once."""
        used = self.use[:, chosen].sum(axis=1)
        return bool((used <= self.capacity).all()) and self._unpacked(chosen) < 0

    def _unpacked(self, chosen: Integers) -> int:
        """A kind with jobs that cannot be packed though there is enough; -1: there is none."""
        for kind in range(self.kinds):
            if not self._packs(kind, chosen):
                return kind
        return -1

    def _packs(self, kind: int, chosen: Integers) -> bool:
        sizes = self.gpus[chosen[(self.kind[chosen] == kind) & (self.gpus[chosen] > 0)]]
        return self.fits(kind, sizes.tolist())

    def _relieve(self, chosen: Integers, used: Reals, kind: int, *, elsewhere: bool) -> Reals:
        """Take GPUs of a kind from jobs for which that costs least for each of them.

        They may get others ``elsewhere``, and then it goes on until enough are taken; not if all
        is only a matter of packing, which would go on for ever.
        """
        held = self.use[kind, chosen]
        freed = held[:, None] - self.use[kind][None, :]
        spare = np.maximum(0.0, self.capacity - used)
        own = self.use[:, chosen]
        room = np.ones(freed.shape, dtype=bool)
        for other in range(self.kinds):
            if other != kind:
                most = spare[other] + own[other] if elsewhere else np.zeros(len(chosen))
                room &= self.use[other][None, :] <= most[:, None]
        loss = self.cost - self.cost[self.rows, chosen][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where((freed > 0) & room, loss / freed, np.inf)
        best = each.argmin(axis=1)
        least = each[self.rows, best]
        for row in np.argsort(least, kind="stable")[: int(np.isfinite(least).sum())].tolist():
            to = used - self.use[:, chosen[row]] + self.use[:, best[row]]
            others = np.arange(self.kinds) != kind
            if (to > np.maximum(used, self.capacity))[others].any():
                continue  # another job has got that meanwhile
            chosen[row], used = best[row], to
            if not elsewhere or used[kind] <= self.capacity[kind]:
                break
        return np.asarray(self.use[:, chosen].sum(axis=1))

    # -- making it better ----------------------------------------------------------------------

    def improved(self, chosen: Integers) -> Integers:
        """Change one job, or one at the expense of another, while that helps."""
        chosen = chosen.copy()
        for _ in range(min(_SWEEPS * len(chosen), max(_SWEEPS, _EFFORT // self.cost.size))):
            if not self._one_better(chosen) and not self._two_better(chosen):
                break
        return chosen

    def _gains(self, chosen: Integers) -> Reals:
        return np.asarray(self.cost[self.rows, chosen][:, None] - self.cost)

    def _one_better(self, chosen: Integers) -> bool:
        """Give free GPUs to jobs that gain by them, largest gain first."""
        gains = self._gains(chosen)
        used = self.use[:, chosen]
        spare = self.capacity - used.sum(axis=1)
        for kind in range(self.kinds):
            gains[self.use[kind][None, :] > (spare[kind] + used[kind])[:, None]] = -np.inf
        best = gains.argmax(axis=1)
        most = gains[self.rows, best]
        changed = False
        for row in np.argsort(-most, kind="stable").tolist():
            if most[row] <= _NOTHING:
                break
            left = spare + self.use[:, chosen[row]] - self.use[:, best[row]]
            if (left >= 0).all() and self._try(chosen, (row, int(best[row]))):
                spare, changed = left, True
        return changed

    def _two_better(self, chosen: Integers) -> bool:
        """Let the most eager take what it lacks from the one that misses it least."""
        gains = self._gains(chosen)
        order = np.argsort(gains, axis=None)[::-1][:24]
        used = self.use[:, chosen]
        spare = self.capacity - used.sum(axis=1)
        for flat in order.tolist():
            row, column = divmod(flat, gains.shape[1])
            gain = gains[row, column]
            if gain <= _NOTHING:
                return False
            left = spare + used[:, row] - self.use[:, column]
            losses = -gains
            fit = np.ones(losses.shape, dtype=bool)
            for kind in range(self.kinds):
                fit &= self.use[kind][None, :] <= (left[kind] + used[kind])[:, None]
            losses = np.where(fit, losses, np.inf)
            losses[row] = np.inf
            for _ in range(3):
                other = int(losses.argmin())
                one, to = divmod(other, gains.shape[1])
                if losses[one, to] >= gain - _NOTHING:
                    break
                if self._try(chosen, (row, column), (one, to)):
                    return True
                losses[one, to] = np.inf
        return False

    def _try(self, chosen: Integers, *moves: tuple[int, int]) -> bool:
        """Make moves if what is chosen then can be packed."""
        before = [(row, int(chosen[row])) for row, _ in moves]
        kinds = set()
        for row, column in moves:
            kinds |= {int(self.kind[c]) for c in (chosen[row], column) if self.gpus[c]}
            chosen[row] = column
        if all(self._packs(kind, chosen) for kind in kinds):
            return True
        for row, column in before:
            chosen[row] = column
        return False
