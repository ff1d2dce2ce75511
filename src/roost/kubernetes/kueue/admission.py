"""Which of Kueue's queues a pod or a Job is in, where it may go, and what it is worth.

Asked of the objects themselves, each time: they may be made, changed and deleted in any order. What
does not add up is told in a sentence, and asked again when an object changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from roost.core import Core, QueueId
from roost.core.quota import GPU
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import (
    KUEUE_CLUSTER_QUEUES,
    KUEUE_FLAVORS,
    KUEUE_LOCAL_QUEUES,
    KUEUE_PRIORITY_CLASSES,
    NAMESPACES,
    Object,
)
from roost.kubernetes.kueue import objects
from roost.kubernetes.kueue.objects import (
    DRAIN,
    Flavour,
    KueueQueue,
    Listing,
    resource_of,
)
from roost.kubernetes.kueue.promises import queue_id
from roost.kubernetes.objects.constraints import Expression, expressions_of, test_of
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.values import integer, labels_of, quoted, section, sections, text
from roost.kubernetes.operator.status import Obstacle

#: The labels by which users name a LocalQueue and a WorkloadPriorityClass.
QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
_UNKNOWN = "unknown-queue"
_CLOSED = "queue-closed"
#: The most ways to choose one flavour of each group.
_MOST_TERMS = 512
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class QueueListing(Listing, Protocol):
    """Where objects and the core's queues are found."""

    @property
    def core(self) -> Core:
        """The core, to read."""
        ...


class FlavourChoice(NamedTuple):
    """The flavours of which some resources are had."""

    resources: frozenset[str]
    flavours: tuple[Flavour, ...]


class Admission(NamedTuple):
    """The core's queue of a workload, and what that says of it.

    ``priority`` takes the place of its own, where it is known. ``preempts``: whether others may
    have to go for it. ``drains``: what runs in it has to leave.
    """

    queue: QueueId
    choices: tuple[FlavourChoice, ...] = ()
    priority: int | None = None
    preempts: bool = True
    drains: bool = False


def has_local_queues(context: QueueListing, namespace: str) -> bool:
    """Whether a namespace has any LocalQueue."""
    return any(
        space == namespace for kind in KUEUE_LOCAL_QUEUES for space, _ in context.objects(kind)
    )


def names_local_queue(context: QueueListing, namespace: str, name: str) -> bool:
    """Whether there is a LocalQueue of that name."""
    return objects.one(context, KUEUE_LOCAL_QUEUES, namespace, name) is not None


def admission_of(
    context: QueueListing, namespace: str, name: str, *, stands: bool = False
) -> Admission | Obstacle:
    """What a LocalQueue says of workloads in it, or why none may be.

    ``stands``: of one that runs already; that goes on, whatever its queue has become.
    """
    found = objects.one(context, KUEUE_LOCAL_QUEUES, namespace, name)
    if found is None:
        return Obstacle(_UNKNOWN, f"there is no LocalQueue {name!r} in namespace {namespace!r}")
    try:
        return _admission(context, namespace, name, found, stands=stands)
    except InvalidSpec as error:
        return Obstacle(_UNKNOWN, f"LocalQueue {name!r} cannot be used: {error}")


def _admission(
    context: QueueListing, namespace: str, name: str, found: Object, *, stands: bool
) -> Admission | Obstacle:
    local = objects.local_queue(found)
    target = queue_id(local.target)
    there = objects.one(context, KUEUE_CLUSTER_QUEUES, "", local.target)
    if there is None:
        return Obstacle(
            _UNKNOWN,
            f"LocalQueue {name!r} leads to ClusterQueue {local.target!r}, which does not exist",
        )
    known = context.core.queues.get(target)
    if known is not None and known.spec.quota_milli is None:
        return Admission(target)  # Kueue decides, and has decided
    queue = objects.cluster_queue(there)
    if stands and known is not None:
        return Admission(target, preempts=queue.preempts, drains=DRAIN in (queue.stop, local.stop))
    why = _closed(context, namespace, name, local, queue)
    if why:
        return Obstacle(_CLOSED, why)
    choices = tuple(
        FlavourChoice(group.resources, tuple(_flavour(context, each) for each in group.flavours))
        for group in queue.groups
    )
    return Admission(target, choices, preempts=queue.preempts)


def _closed(
    context: QueueListing,
    namespace: str,
    name: str,
    local: objects.LocalQueue,
    queue: KueueQueue,
) -> str:
    """Why nothing may begin there; empty if it may."""
    if local.stop:
        return f"LocalQueue {name!r} is stopped ({local.stop})"
    if queue.stop:
        return f"ClusterQueue {queue.name!r} is stopped ({queue.stop})"
    if not _selects(context, queue.selector, namespace):
        return f"ClusterQueue {queue.name!r} does not take jobs of namespace {namespace!r}"
    return ""


def _selects(context: QueueListing, selector: Object | None, namespace: str) -> bool:
    """Whether a selector takes a namespace; one that says nothing takes none, an empty one all."""
    if selector is None:
        return False
    found = context.objects(NAMESPACES).get(("", namespace))
    labels = {"kubernetes.io/metadata.name": namespace, **(labels_of(found) if found else {})}
    wanted = section(selector, "matchLabels")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    tests: tuple[Expression, ...] = expressions_of(selector, "matchExpressions")
    return all(test_of(each)(labels) for each in tests)


def _flavour(context: QueueListing, name: str) -> Flavour:
    found = objects.one(context, KUEUE_FLAVORS, "", name)
    if found is None:
        raise InvalidSpec(f"its ClusterQueue names ResourceFlavor {name!r}, which does not exist")
    return objects.flavour(found)


def priority_of(context: QueueListing, name: str) -> int | Obstacle:
    """What a WorkloadPriorityClass is worth."""
    found = objects.one(context, KUEUE_PRIORITY_CLASSES, "", name)
    if found is None:
        return Obstacle("unknown-priority-class", f"there is no WorkloadPriorityClass {name!r}")
    try:
        return integer(found, "value")
    except InvalidSpec as error:
        return Obstacle("unknown-priority-class", f"WorkloadPriorityClass {name!r}: {error}")


# -- where it may go -----------------------------------------------------------------------------


def restricted(pod: Object, choices: tuple[FlavourChoice, ...], *, gpus: bool = False) -> Object:
    """A pod that may go to nodes of the flavours of what it asks for alone; raises InvalidSpec.

    ``gpus``: it asks for GPUs, although it does not say so itself.
    """
    if not choices:
        return pod
    asked = _asked(pod) | ({GPU} if gpus else set())
    used = [each for each in choices if _concerns(each, asked)]
    if not used:
        return pod
    spec = dict(section(pod, "spec"))
    terms = _terms(spec, used)
    if terms is not None:
        affinity = section(spec, "affinity")
        own = section(affinity, "nodeAffinity")
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {**affinity, "nodeAffinity": {**own, _REQUIRED: required}}
    flavours = dict.fromkeys(one for each in used for one in each.flavours)
    spec["tolerations"] = [
        *sections(spec, "tolerations"),
        *(
            {"key": key, "operator": operator, "value": value, "effect": "NoSchedule"}
            for one in flavours
            for key, operator, value in one.tolerations
        ),
    ]
    return {**pod, "spec": spec}


def _asked(pod: Object) -> set[str]:
    """The resources that a pod asks for, as it names them."""
    spec = section(pod, "spec")
    found: set[str] = set()
    for part in ("containers", "initContainers"):
        for container in sections(spec, part):
            given = section(container, "resources")
            found.update(section(given, "requests"), section(given, "limits"))
    found.update(section(section(spec, "resources"), "requests"))
    if needs(pod).resources.gpus and not any(resource_of(name) == GPU for name in found):
        found.add(GPU)  # a part of a device, of whatever maker
    return found


def _concerns(choice: FlavourChoice, asked: set[str]) -> bool:
    return any(
        name in asked or (GPU in asked and resource_of(name) == GPU) for name in choice.resources
    )


def _terms(spec: Object, used: list[FlavourChoice]) -> list[Object] | None:
    """What is required of nodes: its own terms, and one flavour of each group."""
    own = section(section(section(spec, "affinity"), "nodeAffinity"), _REQUIRED)
    given = sections(own, "nodeSelectorTerms")
    # One that says nothing selects no node.
    terms = [each for each in given if each.get("matchExpressions") or each.get("matchFields")]
    is_bound = False
    for choice in used:
        if any(not flavour.labels for flavour in choice.flavours):
            continue  # one of them is had on all nodes
        is_bound = True
        terms = [
            {**term, "matchExpressions": [*sections(term, "matchExpressions"), *_tests(flavour)]}
            for flavour in choice.flavours
            for term in (terms if own or terms else [{}])
        ]
        if len(terms) > _MOST_TERMS:
            raise InvalidSpec(f"its queue's flavours can be combined in over {_MOST_TERMS} ways")
    return terms if is_bound else None


def _tests(flavour: Flavour) -> list[Object]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in flavour.labels]


# -- what it is named by -------------------------------------------------------------------------


class QueueWish(NamedTuple):
    """The names of queues and classes that a workload carries; empty: none."""

    roost: str = ""
    kueue: str = ""
    priority_class: str = ""


def wish_of(labels: Mapping[str, Any], roost: str = "") -> QueueWish:
    """What labels wish for, beside a queue of Roost's own; raises InvalidSpec."""
    kueue, rank = text(dict(labels), QUEUE), text(dict(labels), PRIORITY_CLASS)
    return QueueWish(roost, kueue, rank)


def joined(wishes: list[QueueWish]) -> QueueWish:
    """What several pods of one gang, and their owner, wish for together; raises InvalidSpec."""

    def one_of(names: set[str], what: str) -> str:
        names.discard("")
        if len(names) > 1:
            told = " and ".join(quoted(name) for name in sorted(names)[:3])
            raise InvalidSpec(f"it cannot be in {told}: it names several {what}")
        return next(iter(names), "")

    return QueueWish(
        one_of({each.roost for each in wishes}, "queues"),
        one_of({each.kueue for each in wishes}, "LocalQueues"),
        one_of({each.priority_class for each in wishes}, "WorkloadPriorityClasses"),
    )
