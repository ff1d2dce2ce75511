"""What the operator and its users may do: verbs and resources, and nothing more.

One table serves the roles in ``deploy/`` and ``roost kubernetes check``. Each line is here because
a request is made; what is not in it, the operator cannot do. An operator that is confined to
namespaces has what is of a namespace in these alone, and of the whole cluster only what belongs to
no namespace, and a look at what takes room on nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import (
    GANG_OWNERS,
    KUEUE_GROUP,
    KUEUE_KINDS,
    Object,
    ResourceKind,
)

_FOLLOW = ("list", "watch")
_READ = ("get", *_FOLLOW)


class ClusterPermission(NamedTuple):
    """One verb on one resource; ``local`` ones hold in the operator's own namespace only.

    ``namespace``: in which of the served ones it has to hold; empty: everywhere.
    """

    verb: str
    group: str
    resource: str
    local: bool = False
    namespace: str = ""

    def __str__(self) -> str:
        kind, _, sub = self.resource.partition("/")
        named = f"{kind}.{self.group}" if self.group else kind
        return f"{self.verb} {named}/{sub}" if sub else f"{self.verb} {named}"


class ClusterGrant(NamedTuple):
    """Verbs on resources of one group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    @property
    def rule(self) -> Object:
        """The same as a rule of a role."""
        return {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }


#: Kinds of other controllers; Roost places their pods: it reads how large their gangs are.
_OWNERS = tuple(
    ClusterGrant(group, tuple(dict.fromkeys(kind.plural for kind in found)), _FOLLOW)
    for group, found in groupby(
        sorted(GANG_OWNERS, key=attrgetter("group")), key=attrgetter("group")
    )
)
#: Queues of Kueue, which Roost reads and never writes to.
_KUEUE = ClusterGrant(
    KUEUE_GROUP, tuple(dict.fromkeys(kind.plural for kind in KUEUE_KINDS)), _FOLLOW
)
#: In the whole cluster.
CLUSTER = (
    # Pods may want to be near or far from pods of namespaces with certain labels.
    ClusterGrant("", ("nodes", "namespaces"), _FOLLOW),
    # Claims that wait for their first pod: a volume is given to them, or a node is written on them.
    ClusterGrant("", ("persistentvolumeclaims", "persistentvolumes"), (*_FOLLOW, "patch")),
    ClusterGrant(
        "storage.k8s.io",
        (
            *("storageclasses", "csidrivers", "csinodes", "csistoragecapacities"),
            "volumeattachments",
        ),
        _FOLLOW,
    ),
    ClusterGrant("", ("pods",), ("get", *_FOLLOW, "create", "delete")),
    ClusterGrant("", ("pods/binding", "pods/eviction"), ("create",)),
    ClusterGrant("", ("pods/status",), ("patch",)),
    # The end of what a failed worker printed says what went wrong.
    ClusterGrant("", ("pods/log",), ("get",)),
    ClusterGrant("", ("services",), ("get", "create", "delete")),
    # With --ask-for-nodes provisioning-requests: what Jobs ask for nodes by.
    ClusterGrant("", ("podtemplates",), ("get", "create", "delete")),
    ClusterGrant("autoscaling.x-k8s.io", ("provisioningrequests",), (*_READ, "create", "delete")),
    ClusterGrant("", ("configmaps",), ("get", "create", "patch", "delete")),
    # No right to read one: tokens of runs are written, and kept as digests.
    ClusterGrant("", ("secrets",), ("create", "delete")),
    ClusterGrant("events.k8s.io", ("events",), ("create",)),
    ClusterGrant("policy", ("poddisruptionbudgets",), _FOLLOW),
    # What the class that a Job names is worth; of a pod the API server has worked it out.
    ClusterGrant("scheduling.k8s.io", ("priorityclasses",), _FOLLOW),
    # Devices that pods claim; since Kubernetes 1.36 to give them out is a right of its own.
    ClusterGrant("resource.k8s.io", ("resourceslices", "deviceclasses"), _FOLLOW),
    ClusterGrant("resource.k8s.io", ("resourceclaims",), (*_READ, "patch")),
    ClusterGrant(
        "resource.k8s.io", ("resourceclaims/status", "resourceclaims/binding"), ("patch",)
    ),
    ClusterGrant("roost.dev", ("jobs",), (*_READ, "patch", "delete")),
    ClusterGrant("roost.dev", ("queues", "clusterqueues"), _FOLLOW),
    ClusterGrant("roost.dev", ("jobs/status", "queues/status", "clusterqueues/status"), ("patch",)),
    # Owner references that block the deletion of a job, where the API server checks them.
    ClusterGrant("roost.dev", ("jobs/finalizers",), ("update",)),
    *_OWNERS,
    _KUEUE,
)
#: In the operator's own namespace.
LOCAL = (
    ClusterGrant("coordination.k8s.io", ("leases",), ("get", "create", "update")),
    # The leader marks its own pod, which the Service of the meeting looks for.
    ClusterGrant("", ("pods",), ("patch",)),
)
#: The agents of nodes. To which node it belongs cannot be said in a role.
AGENT = (
    # What is on its node; and on a pod it writes what became of a suspension.
    ClusterGrant("", ("pods",), (*_FOLLOW, "patch")),
    # A label, a taint while a GPU is unhealthy, and conditions.
    ClusterGrant("", ("nodes",), ("get", "patch")),
    ClusterGrant("", ("nodes/status",), ("patch",)),
)
#: Users of ``roost --context``: it shows the cluster as the operator sees it.
READERS = (
    ClusterGrant("", ("nodes", "pods", "namespaces"), _READ),
    ClusterGrant("events.k8s.io", ("events",), _READ),
    ClusterGrant("policy", ("poddisruptionbudgets",), _READ),
    ClusterGrant("scheduling.k8s.io", ("priorityclasses",), _READ),
    # The operator says on its Lease which policy decides.
    ClusterGrant("coordination.k8s.io", ("leases",), ("list",)),
    ClusterGrant("roost.dev", ("jobs", "queues", "clusterqueues"), _READ),
    *_OWNERS,
    _KUEUE,
)
#: Users that submit: added to Kubernetes' own role ``edit``.
USERS = (
    ClusterGrant("roost.dev", ("jobs",), (*_READ, "create", "update", "patch", "delete")),
    ClusterGrant("roost.dev", ("jobs/scale",), ("get", "update", "patch")),
    # Folders that jobs are sent with are kept in ConfigMaps.
    ClusterGrant("", ("configmaps",), ("get", "list", "create", "patch", "delete")),
)
#: Users that look: added to ``view``.
VIEWERS = (
    ClusterGrant("roost.dev", ("jobs", "jobs/status", "queues"), _READ),
    ClusterGrant("roost.dev", ("clusterqueues",), _READ),
)


#: Kinds that take room on nodes wherever they are: a confined operator looks at all of them.
_COUNTED = {("", "pods"), ("resource.k8s.io", "resourceclaims")}
_UNSPACED = {
    (kind.group, kind.plural)
    for found in vars(kinds).values()
    for kind in (found if type(found) is tuple else (found,))
    if isinstance(kind, ResourceKind) and not kind.namespaced
}


def _unspaced(grants: Iterable[ClusterGrant]) -> Iterator[ClusterGrant]:
    """Of grants what cannot be confined: kinds without a namespace, a look at what takes room."""
    for grant in grants:
        own = [name for name in grant.resources if _plain(grant, name) in _UNSPACED]
        if own:
            yield grant._replace(resources=tuple(own))
        counted = tuple(name for name in grant.resources if (grant.group, name) in _COUNTED)
        if counted and set(_FOLLOW) <= set(grant.verbs):
            yield ClusterGrant(grant.group, counted, _FOLLOW)


def _spaced(grants: Iterable[ClusterGrant]) -> Iterator[ClusterGrant]:
    for grant in grants:
        own = [name for name in grant.resources if _plain(grant, name) not in _UNSPACED]
        if own:
            yield grant._replace(resources=tuple(own))


def _plain(grant: ClusterGrant, resource: str) -> tuple[str, str]:
    return grant.group, resource.partition("/")[0]


#: In the whole cluster, for an operator that is confined to namespaces,
UNCONFINED = tuple(_unspaced(CLUSTER))
#: and in each of these namespaces.
NAMESPACED = tuple(_spaced(CLUSTER))


def needed(namespaces: Sequence[str] = ()) -> Iterator[ClusterPermission]:
    """All that the operator needs, one by one; of one that serves these namespaces alone."""
    yield from _each(UNCONFINED if namespaces else CLUSTER)
    for namespace in namespaces:
        for found in _each(NAMESPACED):
            yield found._replace(namespace=namespace)
    for found in _each(LOCAL):
        yield found._replace(local=True)


def _each(grants: Iterable[ClusterGrant]) -> Iterator[ClusterPermission]:
    for grant in grants:
        for resource in grant.resources:
            for verb in grant.verbs:
                yield ClusterPermission(verb, grant.group, resource)


def roles(namespace: str) -> list[Object]:
    """The roles of the operator and of its users, as objects."""
    return [
        _role("roost-operator", CLUSTER),
        _role("roost-operator", LOCAL, namespace),
        _role("roost-reader", READERS),
        _role("roost-edit", USERS, to=("edit", "admin")),
        _role("roost-view", VIEWERS, to=("view", "edit", "admin")),
    ]


def agent_role() -> Object:
    """What the agents of nodes may do."""
    return _role("roost-agent", AGENT)


def confined_role() -> Object:
    """What a confined operator may do in the whole cluster."""
    return _role("roost-cluster", UNCONFINED)


def namespace_role() -> Object:
    """What a confined operator may do in a namespace that it serves."""
    return {**_role("roost-namespace", NAMESPACED), "kind": "Role"}


def _role(
    name: str, grants: Iterable[ClusterGrant], namespace: str = "", to: tuple[str, ...] = ()
) -> Object:
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in to}
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {"name": name, **where, **({"labels": labels} if labels else {})},
        "rules": [grant.rule for grant in grants],
    }
