"""Placers that keep what is left of every node usable for the workers that usually come.

``fragments`` says how much a worker would spoil, ``rankings`` finds the best node by that.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from roost.core.allocation import Part
from roost.core.demand import Counts, Need, Typical
from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.core.spec import WHOLE, Resources
from roost.placement.exchange import Arrangement
from roost.placement.fragments import GradientRule, NodeRule, ValueRule
from roost.placement.leftovers import Leftovers
from roost.placement.placers import Consolidate, Pack
from roost.placement.rankings import Ranking

#: For how many needs rankings are kept.
_RANKINGS = 2048


class FragmentPlacer(Pack):
    """Places workers one by one where a rule likes it best.

    A gang of whole GPUs that one node can hold is placed as one worker that asks for all; a larger
    one goes on as few nodes as possible. What usually comes is learned from the jobs as they come,
    and may be ``known`` beforehand.
    """

    #: What its rankings are kept under.
    name = ""

    def __init__(self, known: Counts = ()) -> None:
        self.known = known

    @abstractmethod
    def rule(self, typical: Typical) -> NodeRule:
        """The rule for a workload."""

    def _role(self, ledger: Ledger, need: Resources, workers: int, role: str) -> list[Part] | None:
        if workers == 1 and need.pool not in ledger.contingents:
            place = self._best_preferred(ledger, need)
            return None if place is None else self._on(ledger, place, need, role)
        if need.share_milli < WHOLE and need.pool not in ledger.contingents:
            return self._one_by_one(ledger, need, workers, role)
        return super()._role(ledger, need, workers, role)

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        node = self._one_node(ledger, need, workers) if ledger.could(need, workers) else None
        return super()._arrange(ledger, need, workers) if node is None else [(node, workers)]

    def _one_node(self, ledger: Ledger, need: Resources, workers: int) -> Node | None:
        """The best node for a whole gang, looked for as for one worker that asks for all."""
        whole = replace(
            need,
            gpus=need.gpus * workers,
            cpu_milli=need.cpu_milli * workers,
            memory_mib=need.memory_mib * workers,
            extras=tuple((name, amount * workers) for name, amount in need.extras),
        )
        place = self._best(ledger, whole)
        return place[0] if place is not None and ledger.room(place[0], need) >= workers else None

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
        return self._notes(ledger).ranking(need).best(ledger, need.memory_mib)

    def _notes(self, ledger: Ledger) -> _Notes:
        notes = ledger.notes.get(self.name)
        typical = ledger.demand.typical(self.known)
        if not isinstance(notes, _Notes) or notes.version != typical.version or notes.is_full:
            plain = all(_is_plain(need) for need, _ in typical.needs)
            notes = ledger.notes[self.name] = _Notes(typical.version, self.rule(typical), plain)
        return notes


class Fgd(FragmentPlacer):
    """Fragmentation gradient descent: where the least becomes useless to what usually comes."""

    name = "fgd"

    def rule(self, typical: Typical) -> NodeRule:
        """FGD's own score."""
        return GradientRule(typical)


class Usable(FragmentPlacer):
    """Where what is left keeps the most value: for shares, with CPUs, of kinds in demand."""

    name = "usable"

    def rule(self, typical: Typical) -> NodeRule:
        """The value of what is left."""
        return ValueRule(typical)


class Compact(Usable):
    """As usable where fragments matter, and gangs that a node could hold stay together.

    While all that usually comes is whole GPUs of any kind, it does what ``consolidate`` does. So it
    does with gangs, except that it chooses better among the nodes that hold one.
    """

    name = "compact"
    consolidates: ClassVar[bool] = True
    _gangs: ClassVar[Consolidate] = Consolidate()

    def _role(self, ledger: Ledger, need: Resources, workers: int, role: str) -> list[Part] | None:
        if _is_plain(need) and self._notes(ledger).plain:
            return self._gangs._role(ledger, need, workers, role)  # noqa: SLF001 - a placer, too
        return super()._role(ledger, need, workers, role)

    def _arrange(self, ledger: Ledger, need: Resources, workers: int) -> Arrangement | None:
        node = self._one_node(ledger, need, workers) if ledger.could(need, workers) else None
        if node is not None:
            return [(node, workers)]
        return self._gangs._arrange(ledger, need, workers)  # noqa: SLF001 - a placer, too


def _is_plain(need: Need | Resources) -> bool:
    """Whether a worker asks for whole GPUs, and for nothing that a node may lack beside them."""
    return need.gpus > 0 and need.share_milli == WHOLE and not (need.cpu_milli or need.kinds)


class _Notes:
    """What a placer keeps about one ledger, as long as the same needs are typical.

    ``plain``: they are all whole GPUs and nothing else.
    """

    def __init__(self, version: int, rule: NodeRule, plain: bool) -> None:  # noqa: FBT001
        self.version, self.plain = version, plain
        self._rule = rule
        self._leftovers = Leftovers()
        self._rankings: dict[Resources, Ranking] = {}

    @property
    def is_full(self) -> bool:
        """Whether it has become so much that it is better to begin anew."""
        return len(self._rankings) > _RANKINGS or self._leftovers.is_full

    def ranking(self, need: Resources) -> Ranking:
        """The nodes for a need."""
        found = self._rankings.get(need)
        if found is None:
            alike = replace(need, memory_mib=0)
            found = self._rankings.get(alike) or Ranking(alike, self._rule, self._leftovers)
            self._rankings[alike] = self._rankings[need] = found
        return found
