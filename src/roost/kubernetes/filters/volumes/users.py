"""Which pods use which claims and disks, and on which nodes: those there, and those decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from roost.core import NodeId
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.storage import ClaimKey, ephemeral_name
from roost.kubernetes.objects.values import section, sections, text

PodKey: TypeAlias = tuple[str, str]

#: Disks that pods name without a claim, where two pods on a node may be in each other's way.
DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
_OF_CONCERN = frozenset({"persistentVolumeClaim", "ephemeral", *DISKS})


class VolumeUser(NamedTuple):
    """A pod on a node, with what it has mounted there."""

    node: NodeId
    claims: tuple[ClaimKey, ...]
    disks: tuple[Object, ...]


class VolumeUsers:
    """All pods with volumes that are on nodes, or are to go there."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, VolumeUser] = {}
        self._on: dict[NodeId, dict[PodKey, VolumeUser]] = {}
        self._of: dict[ClaimKey, set[PodKey]] = {}

    def put(self, key: PodKey, user: VolumeUser | None) -> set[NodeId]:
        """A pod is there, or is not any more; the nodes on which that changes anything."""
        before = self._pods.pop(key, None)
        if user is not None:
            self._pods[key] = user
        if before == user:
            return set()
        if before is not None:
            self._on[before.node].pop(key)
            if not self._on[before.node]:
                del self._on[before.node]
            for claim in before.claims:
                self._of[claim].discard(key)
                if not self._of[claim]:
                    del self._of[claim]
        if user is not None:
            self._on.setdefault(user.node, {})[key] = user
            for claim in user.claims:
                self._of.setdefault(claim, set()).add(key)
        return {one.node for one in (before, user) if one is not None}

    def on(self, node: NodeId) -> Iterable[VolumeUser]:
        """Pods on a node."""
        return self._on.get(node, {}).values()

    def of(self, claim: ClaimKey) -> Iterable[PodKey]:
        """Pods that use a claim."""
        return self._of.get(claim, ())


def mounts_of(pod: Object) -> list[Object]:
    """The volumes of a pod that may keep it off some nodes; raises InvalidSpec."""
    return [one for one in sections(pod["spec"], "volumes") if not _OF_CONCERN.isdisjoint(one)]


def claims_in(pod: Object, mounts: Iterable[Object]) -> Iterator[tuple[ClaimKey, Object]]:
    """The claims that these volumes of a pod stand for, each once; raises InvalidSpec."""
    meta = pod["metadata"]
    namespace = str(meta.get("namespace") or "")
    told = set()
    for mount in mounts:
        if "ephemeral" in mount:
            name = ephemeral_name(str(meta["name"]), text(mount, "name"))
        elif "persistentVolumeClaim" in mount:
            name = text(section(mount, "persistentVolumeClaim"), "claimName")
        else:
            continue
        if name not in told:
            told.add(name)
            yield (namespace, name), mount


def disks_in(mounts: Iterable[Object]) -> tuple[Object, ...]:
    """The disks among volumes that pods name without a claim."""
    return tuple(mount for mount in mounts if not _CLAIMED.intersection(mount))


_CLAIMED = frozenset({"persistentVolumeClaim", "ephemeral"})


def clash(one: Object, other: Object) -> bool:
    """Whether two pods on a node cannot both have these disks; raises InvalidSpec."""
    for field in DISKS:
        if field in one and field in other:
            first, second = section(one, field), section(other, field)
            if _is_same(field, first, second):
                shared = field != "awsElasticBlockStore"
                return not (shared and first.get("readOnly") and second.get("readOnly"))
    return False


def _is_same(field: str, one: Object, other: Object) -> bool:
    match field:
        case "gcePersistentDisk":
            return one.get("pdName") == other.get("pdName")
        case "awsElasticBlockStore":
            return one.get("volumeID") == other.get("volumeID")
        case "iscsi":
            return one.get("iqn") == other.get("iqn")
    monitors = set(map(str, one.get("monitors") or ())) & set(map(str, other.get("monitors") or ()))
    names = [(each.get("pool") or "rbd", each.get("image")) for each in (one, other)]
    return bool(monitors) and names[0] == names[1]
