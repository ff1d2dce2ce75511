"""Which nodes a pod may go to, apart from room, and the pools of nodes that this makes.

Each distinct set of constraints is one pool, kept up to date as nodes change: the core then plans
with sets of nodes and knows nothing of selectors, taints or affinity.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from roost.core.spec import Contingent, NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.nodes import NodeFacts, Taint, facts_of
from roost.kubernetes.objects.preferences import AFFINITY, TAINTS, NodePoints, groups_of
from roost.kubernetes.objects.values import integer, listed, quoted, section, sections, text

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}
_NODE_NAME = "metadata.name"
#: Where a term has its tests of labels, and of the node itself.
_TESTS = ("matchExpressions", "matchFields")
_HIGHEST = (1 << 63) - 1

Matches = Callable[[NodeFacts], bool]


class Expression(NamedTuple):
    """A test of one label, or of a node's name."""

    key: str
    operator: str
    values: tuple[str, ...]


class SelectorTerm(NamedTuple):
    """Tests of which all must hold."""

    labels: tuple[Expression, ...]
    fields: tuple[Expression, ...]


class PreferredTerm(NamedTuple):
    """A term with how much better nodes are for which it holds."""

    weight: int
    term: SelectorTerm


class Toleration(NamedTuple):
    """What a pod puts up with; an empty key or effect stands for every one."""

    key: str
    operator: str
    value: str
    effect: str


class Constraints(NamedTuple):
    """What a node must be for a pod to go there.

    ``terms`` is None when there is no required affinity. ``offers`` are amounts that a node must
    have at all, where the core counts devices of all makers as one. ``devices`` is
    "whole" for whole devices, "split" for a part of one and "sized" for one that is asked for by
    its memory: see ``nodes.NodeFacts``. ``shunned`` are nodes that must not be taken for now.
    ``preferred`` and ``points`` keep no pod away: of nodes that meet all else those are better
    for which preferred terms hold, and those that were given points. ``contingents`` say how many
    of a gang's pods must be on which nodes.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    offers: tuple[tuple[str, int], ...] = ()
    devices: str = ""
    shunned: tuple[NodeId, ...] = ()
    preferred: tuple[PreferredTerm, ...] = ()
    points: tuple[tuple[int, tuple[NodeId, ...]], ...] = ()
    contingents: tuple[tuple[int, tuple[NodeId, ...]], ...] = ()

    @property
    def name(self) -> str:
        """A name that is the same wherever and whenever it is worked out."""
        return _name(self)


def constraints_of(
    spec: Object, offers: tuple[tuple[str, int], ...] = (), devices: str = ""
) -> Constraints:
    """The constraints of a pod's spec, with what the caller found that it asks for."""
    return Constraints(
        _selector(section(spec, "nodeSelector")),
        _terms(spec),
        _tolerations(spec),
        offers,
        devices,
        preferred=_preferred(spec),
    )


def matcher(constraints: Constraints) -> Matches:
    """A fast test of whether a node meets constraints."""
    selected = selects(constraints)
    tolerations, offers = constraints.tolerations, constraints.offers
    shunned = frozenset(constraints.shunned)
    whole = constraints.devices == "whole"
    split, sized = constraints.devices in ("split", "sized"), constraints.devices == "sized"

    def matches(node: NodeFacts) -> bool:
        if not node.usable or (whole and not node.whole) or node.name in shunned:
            return False
        if (split and not node.split) or (sized and not node.sized):
            return False
        if node.taints and not all(tolerated(taint, tolerations) for taint in node.taints):
            return False
        if offers and any(node.offers.get(name, 0) < least for name, least in offers):
            return False
        return selected(node)

    return matches


def selects(constraints: Constraints) -> Matches:
    """A fast test of whether a node is one that selector and affinity name."""
    selector = dict(constraints.selector).items()
    terms = None if constraints.terms is None else [_term(term) for term in constraints.terms]

    def matches(node: NodeFacts) -> bool:
        if selector and not selector <= node.labels.items():
            return False
        return terms is None or any(term(node) for term in terms)

    return matches


def _selector(given: Object) -> tuple[tuple[str, str], ...]:
    if not given:
        return ()
    for key, value in given.items():
        if not isinstance(value, str):
            raise InvalidSpec(f"nodeSelector {quoted(key)} must be a text, got {quoted(value)}")
    return tuple(sorted(given.items()))


def _terms(spec: Object) -> tuple[SelectorTerm, ...] | None:
    affinity = section(section(spec, "affinity"), "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    terms = sections(
        section(affinity, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms"
    )
    found: set[SelectorTerm] = set()
    wrong: InvalidSpec | None = None
    for term in terms:
        try:
            read = SelectorTerm(*(expressions_of(term, name) for name in _TESTS))
        except InvalidSpec as error:
            wrong = wrong or error
            continue
        if read.labels or read.fields:
            found.add(read)
    # One term is enough: what is wrong with another one matters only where none is left.
    if wrong is not None and not found:
        raise wrong
    return tuple(sorted(found))


def _preferred(spec: Object) -> tuple[PreferredTerm, ...]:
    """What is preferred; what is not understood is nobody's preference, and hinders nobody."""
    affinity = section(section(spec, "affinity"), "nodeAffinity")
    if "preferredDuringSchedulingIgnoredDuringExecution" not in affinity:
        return ()
    found = []
    for given in listed(affinity, "preferredDuringSchedulingIgnoredDuringExecution"):
        try:
            weight, term = integer(given, "weight"), section(given, "preference")
            labels, fields = (expressions_of(term, name) for name in _TESTS)
        except (InvalidSpec, AttributeError, TypeError):
            continue
        if weight > 0 and (labels or fields):
            found.append(PreferredTerm(weight, SelectorTerm(labels, fields)))
    return tuple(sorted(found))


def expressions_of(term: Object, name: str) -> tuple[Expression, ...]:
    """The tests that a term lists under a name; raises InvalidSpec."""
    return tuple(sorted({_expression(item, name) for item in sections(term, name)}))


def _expression(item: Object, where: str) -> Expression:
    key, operator = text(item, "key"), text(item, "operator")
    values = listed(item, "values")
    if operator not in _OPERATORS:
        raise InvalidSpec(f"node affinity: the operator {quoted(operator)} is not known")
    if where == "matchFields" and key != _NODE_NAME:
        raise InvalidSpec(f"node affinity: matchFields knows {_NODE_NAME}, not {quoted(key)}")
    for value in values:
        if not isinstance(value, str):
            raise InvalidSpec(f"node affinity on {quoted(key)}: {quoted(value)} is no text")
    _check_values(key, operator, values)
    return Expression(key, operator, tuple(sorted(set(values))))


def _check_values(key: str, operator: str, values: list[str]) -> None:
    if operator in {"In", "NotIn"} and not values:
        raise InvalidSpec(f"node affinity on {quoted(key)}: {operator} needs values")
    if operator in {"Exists", "DoesNotExist"} and values:
        raise InvalidSpec(f"node affinity on {quoted(key)}: {operator} takes no values")
    if operator in {"Gt", "Lt"} and (len(values) != 1 or _number(values[0]) is None):
        raise InvalidSpec(f"node affinity on {quoted(key)}: {operator} needs one whole number")


def _tolerations(spec: Object) -> tuple[Toleration, ...]:
    given = sections(spec, "tolerations")
    if not given:
        return ()
    return tuple(sorted({_toleration(item) for item in given}))


def _toleration(item: Object) -> Toleration:
    key, operator = text(item, "key"), text(item, "operator") or "Equal"
    value = text(item, "value")
    if operator not in {"Equal", "Exists"}:
        raise InvalidSpec(f"tolerations: the operator {quoted(operator)} is not known")
    if operator == "Exists":
        value = ""
    elif not key:
        raise InvalidSpec("tolerations: one without a key must have the operator Exists")
    return Toleration(key, operator, value, text(item, "effect"))


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether a pod with these tolerations puts up with a taint."""
    key, value, effect = taint
    for one in tolerations:
        if one.effect not in {"", effect} or one.key not in {"", key}:
            continue
        if one.operator == "Exists" or one.value == value:
            return True
    return False


def _term(term: SelectorTerm) -> Matches:
    labels = [test_of(expression) for expression in term.labels]
    fields = [test_of(expression) for expression in term.fields]

    def matches(node: NodeFacts) -> bool:
        if not all(test(node.labels) for test in labels):
            return False
        return not fields or all(test({_NODE_NAME: node.name}) for test in fields)

    return matches


def test_of(expression: Expression) -> Callable[[Mapping[str, str]], bool]:
    """A fast test of labels."""
    key, values = expression.key, frozenset(expression.values)
    match expression.operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
    bound = _number(expression.values[0]) or 0
    above = expression.operator == "Gt"

    def compares(labels: Mapping[str, str]) -> bool:
        found = _number(labels.get(key))
        return found is not None and (found > bound if above else found < bound)

    return compares


def _number(value: object) -> int | None:
    if not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        return None
    found = int(value)
    return found if -_HIGHEST - 1 <= found <= _HIGHEST else None


@lru_cache(maxsize=256)
def _name(constraints: Constraints) -> str:
    # All in it are sorted tuples of texts and numbers, which are written in one way only.
    # The last three came later: without them a pool is called what it always was.
    fields = tuple(constraints) if any(constraints[-3:]) else tuple(constraints)[:-3]
    written = repr(fields).encode("utf-8", "surrogatepass")
    return f"pool-{hashlib.blake2b(written, digest_size=8).hexdigest()}"


def scorer(constraints: Constraints) -> Callable[[Iterable[NodeFacts]], NodePoints]:
    """What says how much better some nodes are than others, for those who prefer some."""
    terms = [(one.weight, _term(one.term)) for one in constraints.preferred]
    tolerations = constraints.tolerations
    given = {node: points for points, nodes in constraints.points for node in nodes}

    def points(nodes: Iterable[NodeFacts]) -> NodePoints:
        nodes = list(nodes)
        deterred = {
            node.name: sum(not tolerated(taint, tolerations) for taint in node.deterrents)
            for node in nodes
        }
        liked = {node.name: sum(weight for weight, holds in terms if holds(node)) for node in nodes}
        most_deterred = max(deterred.values(), default=0) or 1
        most_liked = max(liked.values(), default=0) or 1
        return {
            name: AFFINITY * (liked[name] * 100 // most_liked)
            - TAINTS * (deterred[name] * 100 // most_deterred)
            + given.get(name, 0)
            for name in deterred
        }

    return points


class _Pool(NamedTuple):
    """A pool; ``prefers``: it does so even where no node deters anybody."""

    matches: Matches
    nodes: set[NodeId]
    prefers: bool
    points: Callable[[Iterable[NodeFacts]], NodePoints]
    contingents: tuple[Contingent, ...]
    constraints: Constraints


class Pools:
    """Every pool that was asked for, and the nodes in it."""

    def __init__(self) -> None:
        self._facts: dict[NodeId, NodeFacts] = {}
        self._pools: dict[str, _Pool] = {}
        self._barred: set[NodeId] = set()
        #: Nodes with taints that deter.
        self._deterrent: set[NodeId] = set()
        self._changed: dict[str, None] = {}  # a set that keeps its order
        #: Grows with every change of a node.
        self.version = 0

    def __len__(self) -> int:
        return len(self._pools)

    def __contains__(self, pool: str) -> bool:
        return pool in self._pools

    def names(self) -> AbstractSet[str]:
        """The names of all pools."""
        return self._pools.keys()

    def __getitem__(self, pool: str) -> frozenset[NodeId]:
        """The nodes of a pool."""
        return frozenset(self._pools[pool].nodes)

    def add(self, constraints: Constraints) -> str:
        """The name of the pool for these constraints, which is known from now on."""
        name = constraints.name
        if name not in self._pools:
            matches = matcher(constraints)
            nodes = {
                node
                for node, facts in self._facts.items()
                if node not in self._barred and matches(facts)
            }
            prefers = bool(constraints.preferred or constraints.points)
            divided = tuple(Contingent(n, frozenset(on)) for n, on in constraints.contingents)
            self._pools[name] = _Pool(
                matches, nodes, prefers, scorer(constraints), divided, constraints
            )
            self._changed[name] = None
        return name

    def drop(self, pool: str) -> None:
        """Forget a pool that no job needs any more."""
        self._pools.pop(pool, None)
        self._changed.pop(pool, None)

    def see(self, node: Object) -> None:
        """A node is there, or is not what it was."""
        facts = facts_of(node)
        before = self._facts.get(facts.name)
        if before == facts:
            return
        self._facts[facts.name] = facts
        (self._deterrent.add if facts.deterrents else self._deterrent.discard)(facts.name)
        self._place(facts.name)
        if before is not None:
            self._rate(before, facts)

    def forget(self, node: NodeId) -> None:
        """A node is gone."""
        self._facts.pop(node, None)
        self._deterrent.discard(node)
        self._place(node)

    def bar(self, node: NodeId) -> None:
        """Keep a node out of all pools, known or not, until it is unbarred."""
        self._barred.add(node)
        self._place(node)

    def unbar(self, node: NodeId) -> None:
        """Let a node back into its pools."""
        self._barred.discard(node)
        self._place(node)

    def known(self) -> Iterable[NodeFacts]:
        """All nodes that there are, in pools or not."""
        return self._facts.values()

    def asked(self, pool: str) -> Constraints:
        """What the nodes of a pool are like."""
        return self._pools[pool].constraints

    def changes(self) -> Iterator[tuple[str, frozenset[NodeId]]]:
        """The pools that are not what they were when this was last asked; each is told once."""
        while self._changed:
            name = next(iter(self._changed))
            del self._changed[name]
            yield name, self[name]

    def contingents(self, pool: str) -> tuple[Contingent, ...]:
        """How a gang that asks for a pool must be divided; most pools say nothing of it."""
        return self._pools[pool].contingents

    def preferred(self, pool: str) -> tuple[frozenset[NodeId], ...]:
        """Groups of a pool's nodes that are preferred, the best first; most pools have none."""
        found = self._pools[pool]
        if not found.prefers and found.nodes.isdisjoint(self._deterrent):
            return ()
        return groups_of(found.points(self._facts[node] for node in found.nodes))

    def _place(self, node: NodeId) -> None:
        self.version += 1
        facts = None if node in self._barred else self._facts.get(node)
        for name, pool in self._pools.items():
            belongs = facts is not None and pool.matches(facts)
            if belongs == (node in pool.nodes):
                continue
            (pool.nodes.add if belongs else pool.nodes.discard)(node)
            self._changed[name] = None

    def _rate(self, before: NodeFacts, after: NodeFacts) -> None:
        """A node may be better or worse for those in whose pools it stays."""
        deters = before.deterrents != after.deterrents
        for name, pool in self._pools.items():
            if after.name in pool.nodes and (
                deters or (pool.prefers and before.labels != after.labels)
            ):
                self._changed[name] = None
