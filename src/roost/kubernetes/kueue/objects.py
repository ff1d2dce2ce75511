"""Kueue's objects as Roost understands them, and what of each it does not.

An object may be served in several versions, and one of them may be out of reach while Kueue's
conversion webhook is: whichever version can be read will do, the newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from roost.core.quota import CPU, GPU, MEMORY
from roost.core.quota_tree import PLENTY
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.nodes import DEVICES
from roost.kubernetes.objects.values import listed, quoted, section, sections, text

#: How a queue or a cohort treats one that wants to begin, and those that run.
HOLD: Final = "Hold"
DRAIN: Final = "HoldAndDrain"
#: A weight of nothing, which the core does not know: it comes after all others.
_LEAST_WEIGHT = 1e-6
_NEVER = "Never"


class Listing(Protocol):
    """Where objects are found."""

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Listing of a kind by namespace and name."""
        ...


class FlavourQuota(NamedTuple):
    """A promise of one resource of one flavour, in the core's units."""

    flavour: str
    resource: str
    nominal: int
    borrowing: int | None
    lending: int | None


class ResourceGroup(NamedTuple):
    """Resources that come together, and the flavours of which they are had, the first first."""

    resources: frozenset[str]
    flavours: tuple[str, ...]


class KueueCohort(NamedTuple):
    """A Cohort: a queue without jobs."""

    name: str
    parent: str = ""
    quotas: tuple[FlavourQuota, ...] = ()
    weight: float = 1.0
    notes: tuple[str, ...] = ()


class KueueQueue(NamedTuple):
    """A ClusterQueue; ``notes`` say what of it is not honoured."""

    name: str
    cohort: str
    groups: tuple[ResourceGroup, ...]
    quotas: tuple[FlavourQuota, ...]
    selector: Object | None
    stop: str
    weight: float
    preempts: bool
    notes: tuple[str, ...]

    @property
    def flavours(self) -> list[str]:
        """All flavours that it names."""
        return list(dict.fromkeys(name for group in self.groups for name in group.flavours))


class Flavour(NamedTuple):
    """A ResourceFlavor: the labels of its nodes, and what its pods put up with."""

    name: str
    labels: tuple[tuple[str, str], ...]
    tolerations: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...] = ()


class LocalQueue(NamedTuple):
    """A LocalQueue: the permission of a namespace to use a ClusterQueue."""

    target: str
    stop: str


def every(where: Listing, versions: Sequence[ResourceKind]) -> dict[tuple[str, str], Object]:
    """All objects of a kind, whatever version they are read in."""
    found: dict[tuple[str, str], Object] = {}
    for kind in reversed(versions):
        found.update(where.objects(kind))
    return found


def one(
    where: Listing, versions: Sequence[ResourceKind], namespace: str, name: str
) -> Object | None:
    """An object of that name, whatever version it is read in."""
    for kind in versions:
        found = where.objects(kind).get((namespace, name))
        if found is not None:
            return found
    return None


def resource_of(name: str) -> str:
    """What a resource is called in the core: devices of all makers are GPUs."""
    return GPU if name in DEVICES else name


# -- reading; all raise InvalidSpec --------------------------------------------------------------


def cluster_queue(found: Object) -> KueueQueue:
    """Read a ClusterQueue."""
    spec = section(found, "spec")
    cohort = text(spec, "cohortName") or text(spec, "cohort")
    groups = sections(spec, "resourceGroups")
    weight, told = _weight(spec)
    preempts, kept = _preemption(section(spec, "preemption"))
    notes = [*told, *kept, *_not_honoured(spec)]
    if any(_covers(group, "pods") for group in groups):
        notes.append("the number of pods (resource pods) is not counted")
    return KueueQueue(
        name=text(section(found, "metadata"), "name"),
        cohort=cohort,
        groups=tuple(map(_group, groups)),
        quotas=_quotas(groups),
        selector=None
        if spec.get("namespaceSelector") is None
        else section(spec, "namespaceSelector"),
        stop=_stop(spec),
        weight=weight,
        preempts=preempts,
        notes=tuple(notes),
    )


def cohort(found: Object) -> KueueCohort:
    """Read a Cohort."""
    spec = section(found, "spec")
    weight, notes = _weight(spec)
    return KueueCohort(
        text(section(found, "metadata"), "name"),
        text(spec, "parentName") or text(spec, "parent"),
        _quotas(sections(spec, "resourceGroups")),
        weight,
        tuple(notes),
    )


def flavour(found: Object) -> Flavour:
    """Read a ResourceFlavor."""
    spec = section(found, "spec")
    labels = section(spec, "nodeLabels")
    for key, value in labels.items():
        if not isinstance(value, str):
            raise InvalidSpec(f"nodeLabels: {quoted(key)} must be a text, got {quoted(value)}")
    notes = []
    tolerations = []
    for each in sections(spec, "tolerations"):
        if text(each, "effect") == "NoExecute":
            notes.append("a toleration of NoExecute is not honoured: say it on the pods")
            continue
        operator = text(each, "operator") or "Equal"
        tolerations.append((text(each, "key"), operator, text(each, "value")))
    if spec.get("topologyName"):
        notes.append("topologyName is not honoured: gangs are packed by Roost's own topology")
    name = text(section(found, "metadata"), "name")
    return Flavour(name, tuple(sorted(labels.items())), tuple(tolerations), tuple(notes))


def local_queue(found: Object) -> LocalQueue:
    """Read a LocalQueue."""
    spec = section(found, "spec")
    return LocalQueue(text(spec, "clusterQueue"), _stop(spec))


def _stop(spec: Object) -> str:
    """How it is stopped; empty if it is not."""
    found = text(spec, "stopPolicy")
    return "" if found in ("", "None") else (DRAIN if found == DRAIN else HOLD)


def _group(group: Object) -> ResourceGroup:
    flavours = [text(each, "name") for each in sections(group, "flavors")]
    return ResourceGroup(frozenset(map(str, listed(group, "coveredResources"))), tuple(flavours))


def _covers(group: Object, resource: str) -> bool:
    return resource in listed(group, "coveredResources")


def _quotas(groups: Sequence[Object]) -> tuple[FlavourQuota, ...]:
    return tuple(
        _quota(text(each, "name"), promise)
        for group in groups
        for each in sections(group, "flavors")
        for promise in sections(each, "resources")
        if text(promise, "name") != "pods"
    )


def _quota(name: str, promise: Object) -> FlavourQuota:
    resource = text(promise, "name")
    if not resource or ":" in resource:
        raise InvalidSpec(f"flavor {name}: {quoted(resource)} is no name of a resource")
    own = resource_of(resource)

    def amount(field: str) -> int | None:
        value = promise.get(field)
        what = f"flavor {name}: {field} of {resource}"
        return None if value is None else min(_READ.get(own, quantities.whole)(value, what), PLENTY)

    nominal = amount("nominalQuota") or 0
    lending = amount("lendingLimit")
    if lending is not None:
        lending = min(lending, nominal)
    return FlavourQuota(name, own, nominal, amount("borrowingLimit"), lending)


_READ: dict[str, Callable[[Any, str], int]] = {
    GPU: quantities.milli,
    CPU: quantities.milli,
    MEMORY: quantities.mib,
}


def _weight(spec: Object) -> tuple[float, list[str]]:
    """Its part of what is lent, and what of that cannot be had."""
    given = section(spec, "fairSharing").get("weight")
    if given is None:
        return 1.0, []
    weight = min(quantities.milli(given, "fairSharing.weight"), PLENTY) / 1000
    if weight:
        return weight, []
    return _LEAST_WEIGHT, ["fairSharing.weight 0 is taken for a very small one"]


def _preemption(given: Object) -> tuple[bool, list[str]]:
    """Whether its jobs may take the place of others, and what of the settings is not honoured."""
    within = text(given, "withinClusterQueue") or _NEVER
    reclaim = text(given, "reclaimWithinCohort") or _NEVER
    borrow = section(given, "borrowWithinCohort")
    if within == _NEVER and reclaim == _NEVER:
        return False, []
    notes = []
    if within == _NEVER:
        notes.append("withinClusterQueue Never: jobs of lower priority of its own give way, too")
    elif within == "LowerOrNewerEqualPriority":
        notes.append("withinClusterQueue: only lower priorities give way, newer equals do not")
    if reclaim != "Any":
        notes.append(
            f"reclaimWithinCohort {reclaim}: what it was promised it takes back from any priority"
        )
    if (text(borrow, "policy") or _NEVER) == _NEVER:
        notes.append("borrowWithinCohort Never: borrowers of lower priority give way, too")
    elif borrow.get("maxPriorityThreshold") is not None:
        notes.append("borrowWithinCohort: maxPriorityThreshold is not honoured")
    return True, notes


def _not_honoured(spec: Object) -> list[str]:
    notes = []
    if text(spec, "queueingStrategy") == "StrictFIFO":
        notes.append("StrictFIFO: jobs that fit may pass others that do not, as in BestEffortFIFO")
    if listed(spec, "admissionChecks") or spec.get("admissionChecksStrategy"):
        notes.append("admission checks are not asked")
    fungible = section(spec, "flavorFungibility")
    if fungible and any(
        text(fungible, name) not in ("", usual)
        for name, usual in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "TryNextFlavor"))
    ):
        notes.append("flavorFungibility is not honoured: the first flavour with room is taken")
    if spec.get("admissionScope"):
        notes.append("admissionScope is not honoured")
    return notes
