"""Questions about a cluster that an administrator asks: permissions, and what is left of Roost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roost.errors import Conflict, Forbidden, NotFound, Retryable
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    KUEUE_KINDS,
    PODS,
    QUEUES,
    Object,
    ResourceKind,
)
from roost.kubernetes.crds.permissions import ClusterPermission, needed
from roost.kubernetes.objects.gang_refs import JOB

if TYPE_CHECKING:
    from roost.kubernetes.client.api import Api

#: Every finalizer of Roost begins with this.
FINALIZERS = "roost.dev/"
_SELF = ResourceKind(
    *("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    namespaced=False,
)
_OTHER = ResourceKind(
    *("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
    namespaced=False,
)
_OWN = (JOBS, QUEUES, CLUSTER_QUEUES)
_AT_ONCE = 16
_TRIES = 5


async def lacking(
    api: Api, namespace: str, user: str = "", served: Sequence[str] = ()
) -> list[ClusterPermission]:
    """What the operator needs and the caller, or that user, may not do.

    ``namespace`` is the operator's own; ``served`` those that it is confined to.
    """
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(permission: ClusterPermission) -> bool:
        async with turns:
            where = namespace if permission.local else permission.namespace
            return await _may(api, permission, where, user)

    every = list(needed(served))
    allowed = await asyncio.gather(*(ask(permission) for permission in every))
    return [permission for permission, fine in zip(every, allowed, strict=True) if not fine]


async def kueue_lines(api: Api) -> list[str]:
    """What Roost makes of Kueue's objects; of kinds that may not be read nothing is said."""
    from roost.kubernetes.kueue import report  # noqa: PLC0415 - it loads the core

    async def listed(kind: ResourceKind) -> list[Object]:
        try:
            return (await api.list(kind))[0]
        except (NotFound, Forbidden, Retryable):
            return []

    found = await asyncio.gather(*map(listed, KUEUE_KINDS))
    if not any(found):
        return []
    rest = [kind for kind in report.KINDS if kind not in KUEUE_KINDS]
    found += await asyncio.gather(*map(listed, rest))
    return list(report.report(dict(zip((*KUEUE_KINDS, *rest), found, strict=True))))


async def _may(api: Api, permission: ClusterPermission, namespace: str, user: str) -> bool:
    resource, _, sub = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        **({"subresource": sub} if sub else {}),
        **({"namespace": namespace} if namespace else {}),
    }
    spec: Object = {"resourceAttributes": attributes}
    if user:
        spec |= {"user": user, "groups": _groups(user)}
    answer = await api.create(_OTHER if user else _SELF, {"spec": spec})
    return bool(answer["status"]["allowed"])


def _groups(user: str) -> list[str]:
    """The groups that every account of that kind is in."""
    groups = ["system:authenticated"]
    prefix, _, rest = user.partition("system:serviceaccount:")
    if not prefix and rest:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{rest.partition(':')[0]}"]
    return groups


async def released(api: Api) -> list[str]:
    """Take Roost's finalizers off everything that has one; names what had."""
    freed = []
    for kind in (*_OWN, PODS):
        for found in await _all(api, kind):
            meta = found["metadata"]
            if _kept(meta) != meta.get("finalizers", []) and await _release(api, kind, meta):
                freed.append(f"{kind.kind.lower()} {_where(meta)}{meta['name']}")
    return freed


async def _release(api: Api, kind: ResourceKind, meta: Object) -> bool:
    """Whether there was something to take off; others may change the object meanwhile."""
    name, namespace = meta["name"], meta.get("namespace", "")
    for _ in range(_TRIES):
        change = {
            "metadata": {"finalizers": _kept(meta), "resourceVersion": meta["resourceVersion"]}
        }
        try:
            await api.patch(kind, name, change, namespace)
        except NotFound:
            return False
        except Conflict:
            meta = (await api.get(kind, name, namespace))["metadata"]
        else:
            return True
    raise Conflict(f"{kind.kind.lower()} {_where(meta)}{name} is being changed all the time")


def _kept(meta: Object) -> list[str]:
    return [name for name in meta.get("finalizers", []) if not name.startswith(FINALIZERS)]


async def left(api: Api) -> Counter[str]:
    """How many objects there are that Roost made, or that wait for it."""
    rest: Counter[str] = Counter()
    for kind in _OWN:
        rest[f"objects of {kind.plural}.{kind.group}"] = len(await _all(api, kind))
    for pod in await _all(api, PODS):
        if JOB in pod["metadata"].get("labels", {}):
            rest["pods of Roost's jobs"] += 1
        elif pod["spec"].get("schedulerName") == "roost" and not pod["spec"].get("nodeName"):
            rest["pods that wait for the scheduler roost"] += 1
    return +rest


async def _all(api: Api, kind: ResourceKind) -> list[Object]:
    try:
        return (await api.list(kind))[0]
    except NotFound:
        return []  # its definition is gone, and so is everything of it


def _where(meta: Object) -> str:
    return f"{meta['namespace']}/" if meta.get("namespace") else ""
