"""How a gang is shared out to domains, where its pods keep apart or spread among themselves.

Without it such a gang would be placed anywhere and then taken back, again and again. What is
possible is worked out from the room that there is now (``filters.division``); if there is none now,
from what there were if nodes were empty: then the core knows for what the gang waits. The core is
told how many pods must be on the nodes of each domain, and places them there as it likes.

Pods are shared out if all demand the same of each other, over one topology or over one and nodes.
They may need different amounts: of what only a few need, each pod is tried in every domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from roost.core import NodeId, Resources
from roost.core.ledger import Ledger
from roost.core.node import Node
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.division import Demand, divided, keeps
from roost.kubernetes.objects.neighbours import HOST_NAME

#: Pods that need something else than most, of which each is tried everywhere.
_FEW = 4
#: How many ways are tried for those.
_MOST_TRIED = 500


class Share(NamedTuple):
    """Of the pods like one: how many must be on which nodes.

    ``apart`` is what each node has one of, for pods that are alone on theirs.
    """

    parts: tuple[tuple[int, tuple[NodeId, ...]], ...]
    apart: str = ""


def settled(pod: Object) -> Object:
    """A pod without the spreads that its share keeps."""
    spreads = pod["spec"].get("topologySpreadConstraints") or ()
    soft = [one for one in spreads if one.get("whenUnsatisfiable") == "ScheduleAnyway"]
    return {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": soft}}


class Kind(NamedTuple):
    """Pods of a gang that need the same, and the nodes that nothing else keeps them from."""

    resources: Resources
    nodes: Mapping[NodeId, str]
    pods: int


#: How many pods of each kind go to each domain.
_Way = list[Counter[str]]


def shares(
    kinds: Sequence[Kind], demands: Sequence[Demand], ledger: Ledger, *, is_sure: bool = True
) -> list[Share] | None:
    """A share for each kind; None: it is not known whether there is a way.

    InvalidSpec if there is none, whatever ends; only if ``is_sure``.
    """
    if sum(kind.pods for kind in kinds[1:]) > _FEW:
        return None
    found = _way(kinds, demands, ledger) or _way(kinds, demands, _emptied(ledger, kinds))
    if found is not None:
        return [
            Share(tuple(sorted((n, _inside(kind, domain)) for domain, n in way.items() if n)))
            for kind, way in zip(kinds, found, strict=True)
        ]
    if len(kinds) > 1 or not is_sure:  # not all ways were tried
        return None
    keys = ", ".join(sorted({demand.key for demand in demands}))
    raise InvalidSpec(
        f"its pods keep apart or are spread over {keys}, "
        f"and there is no way to do so with all {kinds[0].pods} of them"
    )


def free_nodes(kind: Kind, ledger: Ledger) -> int:
    """How many nodes have room for a pod."""
    nodes = (ledger.nodes.get(name) for name in kind.nodes)
    return sum(node is not None and ledger.room(node, kind.resources) > 0 for node in nodes)


def _way(kinds: Sequence[Kind], demands: Sequence[Demand], ledger: Ledger) -> _Way | None:
    moment = ledger.moment()
    others = [number for number, kind in enumerate(kinds) for _ in range(kind.pods) if number]
    with ledger.trial():
        found = _Trial(kinds, ledger).way(others, demands)
    ledger.back_to(moment)
    return found


class _Trial:
    """Tries the few pods that need something else in every domain, and divides the others."""

    def __init__(self, kinds: Sequence[Kind], ledger: Ledger) -> None:
        self._kinds, self._ledger, self._left = kinds, ledger, _MOST_TRIED
        self._tried: Counter[str] = Counter()

    def way(self, others: Sequence[int], demands: Sequence[Demand]) -> _Way | None:
        """How many of each kind go to each domain, so that all find room; None: in no way."""
        return self._next(others, demands, demands)

    def _rest(self, demands: Sequence[Demand], all_demand: Sequence[Demand]) -> _Way | None:
        """Divide the pods of the first kind; those of others are there and count."""
        main = self._kinds[0]
        found = divided(main.pods, self._rooms(main), demands)
        if found is None:
            return None
        total = self._tried + Counter(found)
        if not all(keeps(demand, total) for demand in all_demand):
            return None
        return [Counter(found), *(Counter[str]() for _ in self._kinds[1:])]

    def _next(
        self, others: Sequence[int], demands: Sequence[Demand], all_demand: Sequence[Demand]
    ) -> _Way | None:
        if not others:
            return self._rest(demands, all_demand)
        number, *rest = others
        kind = self._kinds[number]
        for domain in sorted(set(kind.nodes.values())):
            self._left -= 1
            node = self._tightest(kind, domain)
            if node is None or self._left < 0:
                continue
            part = self._ledger.pick(node, kind.resources, 1)[0]
            self._ledger.take(part, kind.resources)
            self._tried[domain] += 1
            there = [_with_one(demand, domain) for demand in demands]
            found_way = self._next(rest, there, all_demand)
            self._tried[domain] -= 1
            self._ledger.release(part, kind.resources)
            if found_way is not None:
                found_way[number][domain] += 1
                return found_way
        return None

    def _rooms(self, kind: Kind) -> dict[str, int]:
        rooms: Counter[str] = Counter()
        for name, domain in kind.nodes.items():
            node = self._ledger.nodes.get(name)
            rooms[domain] += 0 if node is None else self._ledger.room(node, kind.resources)
        return dict(rooms)

    def _tightest(self, kind: Kind, domain: str) -> Node | None:
        nodes = self._ledger.nodes
        fits = (
            nodes[name]
            for name, of in kind.nodes.items()
            if of == domain and name in nodes and self._ledger.room(nodes[name], kind.resources)
        )
        return min(fits, key=lambda node: (node.shown, node.bit), default=None)


def topology(demands: Iterable[Demand]) -> tuple[str, list[Demand], bool] | None:
    """The one topology over which pods have to be divided, with what they demand there.

    Also whether each has to be alone on its node. None: there is none, or more than one.
    """
    over = [demand for demand in demands if not (demand.key == HOST_NAME and not demand.skew)]
    keys = {demand.key for demand in over}
    is_alone = False
    if len(keys) > 1 and all(_is_one_each(d) for d in over if d.key == HOST_NAME):
        # One on each node at most keeps such a spread; more might, too.
        is_alone = HOST_NAME in keys
        over = [demand for demand in over if demand.key != HOST_NAME]
        keys.discard(HOST_NAME)
    return (keys.pop(), over, is_alone) if len(keys) == 1 else None


def _is_one_each(demand: Demand) -> bool:
    """Whether a spread over nodes is kept where no two pods share one."""
    return demand.skew >= 1 and len(set(demand.counts.values())) <= 1


def _with_one(demand: Demand, domain: str) -> Demand:
    counts = {**demand.counts, domain: demand.counts.get(domain, 0) + 1}
    return demand._replace(counts=counts)


def _inside(kind: Kind, domain: str) -> tuple[NodeId, ...]:
    return tuple(sorted(name for name, of in kind.nodes.items() if of == domain))


def _emptied(ledger: Ledger, kinds: Sequence[Kind]) -> Ledger:
    """The nodes of kinds as if nothing were there."""
    empty = Ledger()
    for name in {name: None for kind in kinds for name in kind.nodes}:
        node = ledger.nodes.get(name)
        if node is not None and node.up:
            empty.join(node.spec)
    return empty


def alone(resources: Resources, name: str) -> Resources:
    """What a pod needs if no other of its gang may be on its node."""
    if any(extra == name for extra, _ in resources.extras):
        return resources
    return replace(resources, extras=tuple(sorted((*resources.extras, (name, 1)))))
