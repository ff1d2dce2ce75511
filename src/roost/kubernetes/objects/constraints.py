"""Which nodes a pod may go to, apart from room: its constraints, and whether a node meets them.

Two pods with equal constraints have equal values here, whatever the order in which their manifests
list things, so that a cluster has as many kinds of them as it has kinds of pods.

The rules are those of Kubernetes' own scheduler: every pair of ``nodeSelector`` must be a label of
the node; of the required ``nodeAffinity`` one term must match, and of a term every expression (a
term with none matches nothing); every taint with NoSchedule or NoExecute must be tolerated.
Preferences are no constraints and are left out. Unlike there, a node that is cordoned or not ready
is out even for those who tolerate the taint of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.nodes import NodeFacts, Taint
from roost.kubernetes.objects.values import listed, quoted, section, sections, text

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}
_NODE_NAME = "metadata.name"
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


class Toleration(NamedTuple):
    """What a pod puts up with; an empty key or effect stands for every one."""

    key: str
    operator: str
    value: str
    effect: str


class Constraints(NamedTuple):
    """What a node must be for a pod to go there.

    ``terms`` is None when there is no required affinity. ``offers`` are amounts that a node must
    have at all, of what the core keeps no books of. ``devices`` is "split" for a part of a device
    and "sized" for one that is asked for by its memory: see ``nodes.Facts``.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    offers: tuple[tuple[str, int], ...] = ()
    devices: str = ""

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
    )


def matcher(constraints: Constraints) -> Matches:
    """A fast test of whether a node meets constraints."""
    selector = dict(constraints.selector).items()
    terms = None if constraints.terms is None else [_term(term) for term in constraints.terms]
    tolerations, offers = constraints.tolerations, constraints.offers
    split, sized = bool(constraints.devices), constraints.devices == "sized"

    def matches(node: NodeFacts) -> bool:
        if not node.usable or (split and not node.split) or (sized and not node.sized):
            return False
        if selector and not selector <= node.labels.items():
            return False
        if node.taints and not all(_tolerated(taint, tolerations) for taint in node.taints):
            return False
        if offers and any(node.offers.get(name, 0) < least for name, least in offers):
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
    read = (
        SelectorTerm(_expressions(term, "matchExpressions"), _expressions(term, "matchFields"))
        for term in terms
    )
    return tuple(sorted({term for term in read if term.labels or term.fields}))


def _expressions(term: Object, name: str) -> tuple[Expression, ...]:
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


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    key, value, effect = taint
    for one in tolerations:
        if one.effect not in {"", effect} or one.key not in {"", key}:
            continue
        if one.operator == "Exists" or one.value == value:
            return True
    return False


def _term(term: SelectorTerm) -> Matches:
    labels = [_test(expression) for expression in term.labels]
    fields = [_test(expression) for expression in term.fields]

    def matches(node: NodeFacts) -> bool:
        if not all(test(node.labels) for test in labels):
            return False
        return not fields or all(test({_NODE_NAME: node.name}) for test in fields)

    return matches


def _test(expression: Expression) -> Callable[[Object], bool]:
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

    def compares(labels: Object) -> bool:
        found = _number(labels.get(key))
        return found is not None and (found > bound if above else found < bound)

    return compares


def _number(value: object) -> int | None:
    if not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        return None
    found = int(value)
    return found if -_HIGHEST - 1 <= found <= _HIGHEST else None


@lru_cache(maxsize=1024)
def _name(constraints: Constraints) -> str:
    # All in it are sorted tuples of texts and numbers, which are written in one way only.
    written = repr(tuple(constraints)).encode("utf-8", "surrogatepass")
    return f"pool-{hashlib.blake2b(written, digest_size=8).hexdigest()}"
