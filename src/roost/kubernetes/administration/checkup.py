"""What is wrong with a cluster, as far as it can be seen from outside: a line for each fault.

Each line names the object, says what is wrong with it and what to do. Only reading: what is made
is made in a rehearsal (``dryRun``). A look for which the caller has no permission is left out, and
that is said, too. Permissions of the operator are ``audit``'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from itertools import combinations
from typing import NamedTuple

from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable, RoostError
from roost.kubernetes.administration.claim_faults import claim_faults
from roost.kubernetes.administration.installed import changes, installed
from roost.kubernetes.administration.meeting_reach import unreachable
from roost.kubernetes.administration.queue_faults import queue_faults
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.faults import Unpermitted
from roost.kubernetes.client.kinds import JOBS, LEASES, NODES, PODS, Object
from roost.kubernetes.crds.definitions import definitions
from roost.kubernetes.objects.gang_refs import JOB
from roost.kubernetes.objects.nodes import node_spec
from roost.kubernetes.objects.values import labels_of, section, sections
from roost.kubernetes.operator.announcement import COMPONENT, NAMESPACES, SCHEDULER
from roost.kubernetes.operator.scope import OTHERS, NamespaceScope

#: The oldest version of Kubernetes that will do.
OLDEST = (1, 29)
#: What a clock may be wrong by, in seconds; the server's own stamps are whole seconds.
_SKEW_S = 5.0
_UPDATE = "roost kubernetes upgrade"
_GPUS_AS = "roost.dev/gpus-as"
#: Conditions that the agent of a node tells.
_OF_AGENTS = frozenset({"GpusHealthy", "GpuSharesHeld"})
_WAYS = ("whole", "shares", "both")
_HOOK = re.compile(r'failed calling webhook "([^"]+)": ?(.*)', re.DOTALL)
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
_MOST = 5


class ClusterFault(NamedTuple):
    """Something that is wrong: with what, and what to do."""

    about: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.about}  {self.sentence}"


class ClusterCheckup(NamedTuple):
    """What was found, and what could not be looked at."""

    faults: list[ClusterFault]
    unseen: list[str]


Look = Callable[[Api, str], AsyncIterator[ClusterFault]]


async def checkup(api: Api, namespace: str) -> ClusterCheckup:
    """Look at everything; ``namespace`` is the operator's own."""
    faults: dict[ClusterFault, None] = {}
    unseen: dict[str, None] = {}
    for look in _LOOKS:
        try:
            async for fault in look(api, namespace):
                faults.setdefault(fault)
        except Unpermitted as error:
            unseen.setdefault(error.resource)
        except NotFound:
            pass  # its definition is missing, which is a fault of its own
        except (Retryable, Conflict, Forbidden, InvalidSpec) as error:
            faults.setdefault(ClusterFault("the API server", f"{error}; try again"))
    return ClusterCheckup(list(faults), list(unseen))


async def _version(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    said = await api.version()
    found = re.match(r"v?(\d+)\.(\d+)", str(said.get("gitVersion") or ""))
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        yield ClusterFault(
            "Kubernetes",
            f"is {said['gitVersion']}; Roost needs {OLDEST[0]}.{OLDEST[1]} or newer: "
            "upgrade the cluster",
        )


async def _definitions(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    for wanted in definitions():
        name = f"definition {wanted['metadata']['name']}"
        there = await installed(api, wanted)
        if there is None:
            yield ClusterFault(name, f"is missing: {_UPDATE}")
            continue
        if found := changes(wanted, there):
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            yield ClusterFault(name, f"is of another version: {found[0]}{more}; {_UPDATE}")


async def _webhooks(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    """Rehearse to make a Job and a pod: all webhooks that have a say are asked."""
    container = {"name": "check", "image": "roost"}
    bodies = (
        (JOBS, {"spec": {"image": "roost", "command": ["true"]}}),
        (PODS, {"spec": {"containers": [container], "schedulerName": "roost"}}),
    )
    silent: dict[str, tuple[list[str], str]] = {}
    for kind, body in bodies:
        try:
            made = {**body, "metadata": {"name": "roost-check"}}
            await api.create(kind, made, "default", is_rehearsal=True)
        except Unpermitted:
            raise
        except RoostError as error:  # refusals are no fault: only silence is
            if found := _HOOK.search(str(error)):
                why = " ".join(found[2].split())[:200]
                silent.setdefault(found[1], ([], why))[0].append(kind.resource)
    for name, (kinds, why) in silent.items():
        yield ClusterFault(
            f"webhook {name}",
            f"does not answer, so that no {' and no '.join(kinds)} can be made: repair what serves "
            f"it or delete its configuration ({why})",
        )


async def _nodes(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    found, _version_seen = await api.list(NODES)
    faults = [fault for node in found for fault in _node_faults(node)]
    for fault in faults[:_MOST]:
        yield fault
    if len(faults) > _MOST:
        yield ClusterFault("nodes", f"{len(faults) - _MOST} more are labelled or annotated wrongly")


def _node_faults(node: Object) -> list[ClusterFault]:
    about, labels = f"node {node['metadata']['name']}", labels_of(node)
    way = labels.get(_GPUS_AS)
    found = []
    if way is not None and way not in _WAYS:
        found.append(
            ClusterFault(about, f"label {_GPUS_AS} is {way!r}, and means nothing: {_or(_WAYS)}")
        )
    if way == "shares" and labels.get("nvidia.com/gpu.sharing-strategy", "none") != "none":
        found.append(
            ClusterFault(
                about,
                f"labels contradict each other: {_GPUS_AS}=shares, and a device plug-in that "
                "shares by itself; remove one",
            )
        )
    found += [
        ClusterFault(about, f"its agent says: {one.get('message')}")
        for one in sections(section(node, "status"), "conditions")
        if one.get("type") in _OF_AGENTS and one.get("status") == "False"
    ]
    try:
        node_spec(node)
        if OTHERS in (node["metadata"].get("annotations") or {}):
            NamespaceScope(("-",), is_blind=True).of_node(node)
    except InvalidSpec as error:
        found.append(ClusterFault(about, f"cannot be used: {error}"))
    return found


def _or(words: Sequence[str]) -> str:
    return f"say {', '.join(words[:-1])} or {words[-1]}"


async def _queues(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    async for about, sentence in queue_faults(api):
        yield ClusterFault(about, sentence)


async def _claims(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    async for about, sentence in claim_faults(api):
        yield ClusterFault(about, sentence)


async def _operators(api: Api, _: str) -> AsyncIterator[ClusterFault]:
    leases = [
        one
        for one in (await api.list(LEASES, labels=f"{COMPONENT}=operator"))[0]
        if (one.get("spec") or {}).get("holderIdentity")
    ]
    for one, other in combinations(leases, 2):
        where = [f"{a['metadata']['namespace']}/{a['metadata']['name']}" for a in (one, other)]
        if both := _both_serve(one, other):
            yield ClusterFault(
                f"operators {where[0]} and {where[1]}",
                f"both place pods of {both}: stop one, or give each its own --namespaces",
            )
    for lease in leases:
        if skew := _skew(lease):
            way = "ahead of" if skew > 0 else "behind"
            meta = lease["metadata"]
            yield ClusterFault(
                f"operator {meta['namespace']}/{meta['name']}",
                f"its clock is {abs(skew):.0f} s {way} the API server's: set the clock of its node "
                "(chrony, systemd-timesyncd)",
            )
    async for fault in _unheard(api, leases):
        yield fault


async def _unheard(api: Api, leases: Sequence[Object]) -> AsyncIterator[ClusterFault]:
    """Pods that ask for Roost by a name to which no operator listens."""
    names = {_notes(one).get(SCHEDULER, "roost") for one in leases}
    if not names or "roost" in names:
        return
    waiting, _ = await api.list(PODS, fields="spec.schedulerName=roost,spec.nodeName=")
    if waiting:
        yield ClusterFault(
            f"{len(waiting)} pods",
            f"ask for the scheduler roost, but the operator answers to {', '.join(sorted(names))}: "
            "set their schedulerName, or the operator's --scheduler-name",
        )


def _notes(lease: Object) -> Object:
    found: Object = lease["metadata"].get("annotations") or {}
    return found


def _both_serve(one: Object, other: Object) -> str:
    """What two operators both serve, in words; empty: nothing."""
    names = [_notes(lease).get(SCHEDULER, "roost") for lease in (one, other)]
    if names[0] != names[1]:
        return ""
    spaces = [set(filter(None, _notes(x).get(NAMESPACES, "").split(","))) for x in (one, other)]
    if not all(spaces):
        return "the same namespaces" if any(spaces) else "all namespaces"
    both = sorted(spaces[0] & spaces[1])
    return f"namespace {', '.join(both)}" if both else ""


def _skew(lease: Object) -> float:
    """By how much the holder's clock is ahead of the server's, where that is far; else 0.

    The server notes when each field was written last, by its own clock.
    """
    said = _seconds((lease.get("spec") or {}).get("renewTime"))
    noted = [_seconds(one.get("time")) for one in lease["metadata"].get("managedFields") or ()]
    known = max((one for one in noted if one is not None), default=None)
    if said is None or known is None or abs(said - known) < _SKEW_S:
        return 0.0
    return said - known


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


async def _images(api: Api, namespace: str) -> AsyncIterator[ClusterFault]:
    """Images of the operator and of roost.train that no node can pull."""
    own, _ = await api.list(PODS, namespace, labels="app.kubernetes.io/component=operator")
    workers, _ = await api.list(PODS, labels=JOB)
    for image in sorted({one for pod in own for one in _not_pulled(pod, "containerStatuses")}):
        yield ClusterFault(
            f"image {image}",
            "of the operator cannot be pulled: kustomize edit set image roost=... in "
            "deploy/operator, or image.repository of the chart",
        )
    lost = Counter(one for pod in workers for one in _not_pulled(pod, "initContainerStatuses"))
    for image, count in sorted(lost.items()):
        yield ClusterFault(
            f"image {image}",
            f"cannot be pulled for what goes before {count} pods of Jobs: set roost-train=... in "
            "deploy/operator, or trainImage.repository of the chart",
        )


def _not_pulled(pod: Object, where: str) -> list[str]:
    found = (pod.get("status") or {}).get(where) or ()
    return [
        str(one.get("image"))
        for one in found
        if ((one.get("state") or {}).get("waiting") or {}).get("reason") in _PULLING
    ]


async def _meeting(api: Api, namespace: str) -> AsyncIterator[ClusterFault]:
    async for about, sentence in unreachable(api, namespace):
        yield ClusterFault(about, sentence)


_LOOKS: tuple[Look, ...] = (
    *(_version, _definitions, _webhooks, _nodes, _queues, _claims, _operators, _images, _meeting),
)
