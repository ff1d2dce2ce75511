"""What pods say of each other: selectors of labels, terms of affinity, constraints of spread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.constraints import Expression, expressions_of, test_of
from roost.kubernetes.objects.values import integer, listed, quoted, section, sections, text

HOST_NAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Labels = Mapping[str, str]


class Selector(NamedTuple):
    """Tests of labels of which all must hold; None in place of one selects nothing."""

    tests: tuple[Expression, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether labels pass."""
        return all(test(labels) for test in _tests(self))


class PodTerm(NamedTuple):
    """Pods of some namespaces with some labels, in one domain of a topology."""

    selector: Selector | None
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    key: str

    def matches(self, namespace: str, labels: Labels, of_namespace: Labels) -> bool:
        """Whether a pod with these labels, in a namespace with those, is meant."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(of_namespace)


class Spread(NamedTuple):
    """At most so much difference between the domains of a topology."""

    selector: Selector | None
    key: str
    max_skew: int
    min_domains: int
    honours_affinity: bool
    honours_taints: bool


class PreferredPodTerm(NamedTuple):
    """How much better a domain is for each pod there that a term means; worse below 0."""

    weight: int
    term: PodTerm


class Wishes(NamedTuple):
    """All that a pod requires of its neighbours, and what it would like."""

    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    likings: tuple[PreferredPodTerm, ...] = ()
    soft_spread: tuple[Spread, ...] = ()


def wishes_of(pod: Object) -> Wishes:
    """What a pod requires and would like; raises InvalidSpec for the former alone."""
    spec = section(pod, "spec")
    if "affinity" not in spec and "topologySpreadConstraints" not in spec:
        return _NONE
    affinity = section(spec, "affinity")
    return Wishes(
        _terms(affinity, "podAffinity", pod),
        _terms(affinity, "podAntiAffinity", pod),
        _spread(pod),
        (
            *_likings(affinity, "podAffinity", 1, pod),
            *_likings(affinity, "podAntiAffinity", -1, pod),
        ),
        _soft_spread(pod),
    )


_NONE = Wishes()


def is_alone_on_node(pod: Object) -> bool:
    """Whether a pod keeps away from others like it on a node; raises InvalidSpec."""
    meta = pod["metadata"]
    namespace, labels = str(meta.get("namespace") or ""), meta.get("labels") or {}
    # Of its namespace only the name is known here; that it is its own is nearly always said so.
    return any(
        term.key == HOST_NAME and term.matches(namespace, labels, {})
        for term in wishes_of(pod).apart
    )


def _terms(affinity: Object, name: str, pod: Object) -> tuple[PodTerm, ...]:
    return tuple(_term(one, pod) for one in sections(section(affinity, name), _REQUIRED))


def _likings(affinity: Object, name: str, sign: int, pod: Object) -> Iterator[PreferredPodTerm]:
    """What is preferred; what is not understood is nobody's preference, and hinders nobody."""
    for given in listed(section(affinity, name), _PREFERRED):
        try:
            weight = integer(given, "weight")
            term = _term(section(given, "podAffinityTerm"), pod)
        except (InvalidSpec, AttributeError, TypeError):
            continue
        if weight > 0:
            yield PreferredPodTerm(sign * weight, term)


def _term(given: Object, pod: Object) -> PodTerm:
    selector = selector_of(given, "labelSelector")
    labels = pod["metadata"].get("labels") or {}
    if selector is not None:
        # The server has written them into the selector, where it is new enough.
        alike = _alike(given, "matchLabelKeys", labels, "In")
        other = _alike(given, "mismatchLabelKeys", labels, "NotIn")
        selector = Selector(tuple(sorted({*selector.tests, *alike, *other})))
    namespaces = tuple(sorted(map(str, listed(given, "namespaces"))))
    by_labels = selector_of(given, "namespaceSelector")
    if not namespaces and by_labels is None:
        namespaces = (str(pod["metadata"].get("namespace") or ""),)
    return PodTerm(selector, namespaces, by_labels, _key(given))


def _key(given: Object) -> str:
    key = text(given, "topologyKey")
    if not key:
        raise InvalidSpec("pod affinity and spread need a topologyKey")
    return key


def _alike(given: Object, name: str, labels: Labels, operator: str) -> list[Expression]:
    keys = [str(key) for key in listed(given, name)]
    return [Expression(key, operator, (labels[key],)) for key in keys if key in labels]


def _spread(pod: Object) -> tuple[Spread, ...]:
    return tuple(
        _constraint(given, pod)
        for given in sections(pod["spec"], "topologySpreadConstraints")
        if given.get("whenUnsatisfiable") != "ScheduleAnyway"
    )


def _soft_spread(pod: Object) -> tuple[Spread, ...]:
    """What is not understood of it hinders nobody."""
    found = []
    for given in sections(pod["spec"], "topologySpreadConstraints"):
        if given.get("whenUnsatisfiable") == "ScheduleAnyway":
            with contextlib.suppress(InvalidSpec):
                found.append(_constraint(given, pod))
    return tuple(found)


def _constraint(given: Object, pod: Object) -> Spread:
    selector = selector_of(given, "labelSelector")
    if selector is not None:
        labels = pod["metadata"].get("labels") or {}
        alike = _alike(given, "matchLabelKeys", labels, "In")
        selector = Selector(tuple(sorted({*selector.tests, *alike})))
    return Spread(
        selector,
        _key(given),
        integer(given, "maxSkew"),
        integer(given, "minDomains") or 1,
        text(given, "nodeAffinityPolicy") != "Ignore",
        text(given, "nodeTaintsPolicy") == "Honor",
    )


def selector_of(given: Object, name: str) -> Selector | None:
    """A selector of labels; None if there is none, which selects nothing."""
    if given.get(name) is None:
        return None
    found = section(given, name)
    exact = section(found, "matchLabels")
    for key, value in exact.items():
        if not isinstance(value, str):
            raise InvalidSpec(f"{name} {quoted(key)} must be a text, got {quoted(value)}")
    tests = [Expression(key, "In", (value,)) for key, value in exact.items()]
    return Selector(tuple(sorted({*tests, *expressions_of(found, "matchExpressions")})))


@lru_cache(maxsize=1024)
def _tests(selector: Selector) -> tuple[Callable[[Labels], bool], ...]:
    return tuple(test_of(expression) for expression in selector.tests)
