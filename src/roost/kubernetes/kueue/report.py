"""What Roost makes of Kueue's objects, in sentences: for an administrator that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from roost import placement
from roost.core import Core, QueueSpec
from roost.core.plan import Plan
from roost.core.quota_tree import amount_text, faults_of
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import (
    BATCH_JOBS,
    KUEUE_CLUSTER_QUEUES,
    KUEUE_COHORTS,
    KUEUE_FLAVORS,
    KUEUE_KINDS,
    KUEUE_LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    Object,
    ResourceKind,
)
from roost.kubernetes.kueue import objects, promises
from roost.kubernetes.kueue.admission import QUEUE, admission_of
from roost.kubernetes.kueue.controller import controllers
from roost.kubernetes.kueue.objects import Flavour, KueueCohort, KueueQueue
from roost.kubernetes.objects.values import labels_of, section, sections
from roost.kubernetes.operator.status import Obstacle

#: The kinds that it is made of.
KINDS: tuple[ResourceKind, ...] = (*KUEUE_KINDS, NAMESPACES, NODES, PODS, BATCH_JOBS)
#: The gate by which Kueue keeps plain pods from being scheduled.
_GATE = "kueue.x-k8s.io/admission"
_KINDS = {KueueQueue: "ClusterQueue", KueueCohort: "Cohort", Flavour: "ResourceFlavor"}
_Read = TypeVar("_Read", KueueQueue, KueueCohort, Flavour)


class _Listed:
    """Listing that were listed once, as sources of the operator see them."""

    def __init__(self, found: Mapping[ResourceKind, Iterable[Object]]) -> None:
        self._found = {kind: {_key(one): one for one in there} for kind, there in found.items()}
        self.core = Core(_decide_nothing, placement.placer("consolidate"))

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Listing of a kind by namespace and name."""
        return self._found.get(kind, {})


def report(found: Mapping[ResourceKind, Iterable[Object]]) -> Iterator[str]:
    """What was understood of Kueue's objects and what was not; nothing, if there are none."""
    listed = _Listed(found)
    if not any(listed.objects(kind) for kind in KUEUE_KINDS):
        return
    running = controllers(listed.objects(PODS).values())
    yield from _who_decides(running)
    yield from _queues(listed)
    for (namespace, name), _ in sorted(objects.every(listed, KUEUE_LOCAL_QUEUES).items()):
        way = admission_of(listed, namespace, name)
        if isinstance(way, Obstacle):
            yield f"LocalQueue {namespace}/{name}: {way.sentence}"
    if not running:
        yield from _left_behind(listed)


def _who_decides(running: list[str]) -> Iterator[str]:
    if running:
        yield (
            f"Kueue's controller runs ({running[0]}): it decides which jobs begin, Roost places "
            "what it admitted and applies none of its quotas; stop it to let Roost decide"
        )


def _queues(listed: _Listed) -> Iterator[str]:
    lines: list[str] = []
    flavours = _read(listed, KUEUE_FLAVORS, objects.flavour, lines)
    cohorts = _read(listed, KUEUE_COHORTS, objects.cohort, lines)
    queues = _read(listed, KUEUE_CLUSTER_QUEUES, objects.cluster_queue, lines)
    yield from lines
    kinds = promises.kinds_of(flavours.values(), listed.objects(NODES).values())
    specs = promises.queue_specs(queues.values(), cohorts, flavours, kinds)
    for queue in queues.values():
        yield f"ClusterQueue {queue.name}: {_told(specs[promises.queue_id(queue.name)])}"
        missing = [name for name in queue.flavours if name not in flavours]
        yield from (f"ClusterQueue {queue.name}: there is no ResourceFlavor {n}" for n in missing)
    read: list[KueueQueue | KueueCohort | Flavour] = [*queues.values(), *cohorts.values()]
    for each in [*read, *flavours.values()]:
        yield from (f"{_KINDS[type(each)]} {each.name}: {note}" for note in each.notes)
    for name, fault in faults_of(specs).items():
        yield f"{promises.shown(name)}: it borrows nothing: {fault}"


def _read(
    listed: _Listed,
    versions: tuple[ResourceKind, ...],
    read: Callable[[Object], _Read],
    lines: list[str],
) -> dict[str, _Read]:
    """All objects of a kind that can be read; what is wrong with the others goes to ``lines``."""
    found: dict[str, _Read] = {}
    for (_, name), one in sorted(objects.every(listed, versions).items()):
        try:
            found[name] = read(one)
        except InvalidSpec as error:
            lines.append(f"{versions[0].kind} {name} is not understood: {error}")
    return found


def _told(spec: QueueSpec) -> str:
    """What a queue was promised, and through what it borrows."""
    given = [amount_text(one.resource, one.nominal) for one in spec.promises if one.nominal]
    promised = f"is promised {', '.join(given)}" if given else "is promised nothing"
    if spec.parent is None:
        return f"{promised}, and borrows nothing"
    return f"{promised}, and borrows in cohort {promises.own_name(spec.parent)}"


def _left_behind(listed: _Listed) -> Iterator[str]:
    """What waits for a controller of Kueue that does not run."""
    jobs = [
        f"{namespace}/{name}"
        for (namespace, name), job in sorted(listed.objects(BATCH_JOBS).items())
        if QUEUE in labels_of(job) and section(job, "spec").get("suspend") is True
    ]
    if jobs:
        yield (
            f"suspended, and Roost resumes nothing: {_some(jobs, 'Job')}; set spec.suspend to false"
        )
    pods = [
        f"{namespace}/{name}"
        for (namespace, name), pod in sorted(listed.objects(PODS).items())
        if any(
            one.get("name") == _GATE for one in sections(section(pod, "spec"), "schedulingGates")
        )
    ]
    if pods:
        yield (
            f"held by Kueue's gate {_GATE}, which only Kueue takes off: {_some(pods, 'pod')}; "
            "make them anew"
        )


def _some(names: list[str], what: str) -> str:
    many = f"{len(names)} {what}{'s' if len(names) > 1 else ''}"
    return f"{many} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"  # noqa: PLR2004


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _decide_nothing(plan: Plan) -> None:
    """Decide nothing."""
