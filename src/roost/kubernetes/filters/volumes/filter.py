"""Keeps pods where their volumes can be, and has volumes bound that wait for a first consumer.

What kube-scheduler's plug-ins VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits
mean: a pod goes where all its volumes are, or can be made, and where they can be attached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import NODES, PODS
from roost.kubernetes.filters.node_filter import NotReady
from roost.kubernetes.filters.volumes.binding import BIND_S, VolumeBinder
from roost.kubernetes.filters.volumes.catalog import KINDS, StorageCatalog
from roost.kubernetes.filters.volumes.decisions import VolumeDecisions
from roost.kubernetes.filters.volumes.matching import NodePlace, chosen
from roost.kubernetes.filters.volumes.users import (
    PodKey,
    VolumeUser,
    VolumeUsers,
    claims_in,
    clash,
    disks_in,
    mounts_of,
)
from roost.kubernetes.objects.pods import is_bound, is_over, uid_of
from roost.kubernetes.objects.storage import ONE_POD, Labels, Volume, VolumeClaim, template_of
from roost.kubernetes.objects.values import labels_of

if TYPE_CHECKING:
    from roost.kubernetes.client.kinds import Object, ResourceKind
    from roost.kubernetes.operator.workload import OperatorContext


class _Asking(NamedTuple):
    """What a pod that looks for a node has to have there."""

    claims: tuple[VolumeClaim, ...]
    there: tuple[Volume, ...]
    waiting: tuple[VolumeClaim, ...]
    disks: tuple[Object, ...]


class VolumeFilter:
    """Where pods can go because of their volumes."""

    kinds: tuple[ResourceKind, ...] = KINDS

    def __init__(self, context: OperatorContext, bind_s: float = BIND_S) -> None:
        self._catalog, self._users = StorageCatalog(), VolumeUsers()
        self._decisions = VolumeDecisions()
        self._binder = VolumeBinder(context, self._catalog, self._decisions, bind_s)
        self._labels: dict[NodeId, Labels] = {}
        #: Pods that the server says are on a node, and pods that are counted there before.
        self._there: dict[PodKey, VolumeUser] = {}
        self._reserved: dict[PodKey, VolumeUser] = {}
        #: Volumes of drivers on nodes that say how many they take; forgotten when any changes.
        self._attached: dict[NodeId, dict[str, set[str]]] = {}

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> bool:
        """Note an object; whether verdicts may be others from now on."""
        if kind is PODS:
            return self._pod_changed(new or old, is_there=new is not None)
        if kind is NODES:
            return self._node_changed(new or old, is_there=new is not None)
        if not self._catalog.put(kind, old, new):
            return False
        self._attached.clear()
        self._binder.news()
        return True

    def _pod_changed(self, pod: Object | None, *, is_there: bool) -> bool:
        if pod is None or not pod["spec"].get("volumes"):
            return False
        key = _key(pod)
        user = _user(pod) if is_there and is_bound(pod) and not is_over(pod) else None
        if user is None:
            self._there.pop(key, None)
        else:
            self._there[key] = user
        return self._count(key) and self.concerns(pod)

    def _node_changed(self, node: Object | None, *, is_there: bool) -> bool:
        if node is None:
            return False
        name = NodeId(node["metadata"]["name"])
        labels = labels_of(node) if is_there else None
        before = self._labels.pop(name, None)
        if labels is not None:
            self._labels[name] = labels
        return before != labels

    def concerns(self, pod: Object) -> bool:
        """Whether it has volumes that cannot be had everywhere by everybody."""
        if not pod["spec"].get("volumes"):
            return False
        try:
            mounts = mounts_of(pod)
            if not mounts:
                return False
            if disks_in(mounts):
                return True
            known = (self._catalog.claims.get(key) for key, _ in claims_in(pod, mounts))
            return not all(claim is not None and self._catalog.is_plain(claim) for claim in known)
        except InvalidSpec:
            return True  # which ``refusals`` will tell

    def refusals(self, pod: Object, nodes: Iterable[Object]) -> dict[NodeId, str]:
        """Of these nodes those that a pod must not go to now, each with why."""
        asking = self._asking(pod)
        refused: dict[NodeId, str] = {}
        failed: set[NodeId] = set()
        left = 0
        for node in nodes:
            place = NodePlace(NodeId(node["metadata"]["name"]), labels_of(node))
            why = self._why_not(asking, place)
            if why:
                refused[place.name] = why
                continue
            left += 1
            if self._decisions.has_failed(asking.waiting, place.name):
                failed.add(place.name)
        if len(failed) < left:
            why = "a volume could not be made there a while ago"
            refused |= dict.fromkeys(failed, why)
        elif failed:  # there is nothing else: from the beginning
            self._decisions.forgive(asking.waiting)
        return refused

    def together(self, pod: Object) -> str:
        """Nothing holds pods together but the volumes that they share."""
        del pod
        return ""

    def reserve(self, pod: Object, node: NodeId) -> None:
        """Count its volumes as being there, and settle which ones its claims will be bound to."""
        if not pod["spec"].get("volumes"):
            return
        key = _key(pod)
        user = _user(pod)
        if user is None:
            return
        self._reserved[key] = user._replace(node=node)
        self._count(key)
        try:
            asking = self._asking(pod, claimed=True)
        except InvalidSpec:
            return  # it was placed all the same, and will be told by ``prepare``
        place = NodePlace(node, self._labels.get(node, {}))
        found = chosen(self._catalog, asking.waiting, place, self._decisions.choices)
        if not isinstance(found, str):
            self._decisions.hold(key, found)

    def release(self, pod: Object) -> None:
        """Count its volumes only where the server says that they are used."""
        if not pod["spec"].get("volumes"):
            return
        key = _key(pod)
        if self._reserved.pop(key, None) is not None:
            self._count(key)
        if self._decisions.drop(key):
            self._binder.news()

    async def prepare(self, pod: Object, node: NodeId) -> None:
        """Have its claims bound, and wait until they are."""
        await self._binder.bind(pod, node)

    # -- what a pod asks for ---------------------------------------------------------------------

    def _asking(self, pod: Object, *, claimed: bool = False) -> _Asking:
        """What a pod needs; raises NotReady. ``claimed``: it is counted as a user itself."""
        mounts = mounts_of(pod)
        claims = tuple(self._claim(pod, key, mount) for key, mount in claims_in(pod, mounts))
        there, waiting = [], []
        for claim in claims:
            if ONE_POD in claim.asked.access:
                self._check_alone(claim, _key(pod) if claimed else None)
            if claim.is_bound:
                volume = self._catalog.volumes.get(claim.volume)
                if volume is None:
                    raise NotReady(f"claim {claim.name} is bound to a volume that is not there")
                there.append(volume)
            else:
                self._check_waits(claim)
                waiting.append(claim)
        return _Asking(claims, tuple(there), tuple(waiting), disks_in(mounts))

    def _claim(self, pod: Object, key: PodKey, mount: Object) -> VolumeClaim:
        claim = self._catalog.claims.get(key)
        is_own = "ephemeral" in mount
        if claim is None and is_own and not uid_of(pod):
            # Nor is there its pod, which the controller of such claims waits for.
            return template_of(pod, mount, self._catalog.default_class)
        if claim is None:
            why = "is not made yet for its ephemeral volume" if is_own else "is not there"
            raise NotReady(f"claim {key[1]!r} {why}")
        if is_own and uid_of(pod) and claim.owner != uid_of(pod):
            raise NotReady(f"claim {claim.name} has the name of its ephemeral volume, and is not")
        if claim.is_leaving:
            raise NotReady(f"claim {claim.name} is being deleted")
        if claim.is_lost:
            raise NotReady(f"claim {claim.name} has lost its volume {claim.volume!r}")
        return claim

    def _check_waits(self, claim: VolumeClaim) -> None:
        """Whether a claim that is not bound waits for a pod, rather than a pod for it."""
        name = claim.asked.storage_class
        found = self._catalog.classes.get(name)
        if name and found is None:
            raise NotReady(f"claim {claim.name}: there is no StorageClass {name!r}")
        if claim.volume or found is None or not found.waits:
            raise NotReady(f"claim {claim.name} is not bound yet")

    def _check_alone(self, claim: VolumeClaim, itself: PodKey | None) -> None:
        others = [key for key in self._users.of(claim.key) if key != itself]
        if others:
            raise NotReady(
                f"claim {claim.name} is for one pod at a time, and {others[0][1]} has it"
            )

    # -- nodes -----------------------------------------------------------------------------------

    def _why_not(self, asking: _Asking, place: NodePlace) -> str:
        """Why a pod cannot go to a node; empty: it can."""
        for volume in asking.there:
            if not volume.is_near(place.labels):
                return f"volume {volume.name} is elsewhere"
            if not volume.is_in_zone(place.labels):
                return f"volume {volume.name} is in another zone"
        if asking.waiting:
            found = chosen(self._catalog, asking.waiting, place, self._decisions.choices)
            if isinstance(found, str):
                return found
        if asking.disks and any(
            clash(mine, theirs)
            for user in self._users.on(place.name)
            for theirs in user.disks
            for mine in asking.disks
        ):
            return "a pod there has a disk that it needs for itself"
        return self._crowded(asking.claims, place.name)

    def _crowded(self, claims: Iterable[VolumeClaim], node: NodeId) -> str:
        """Why no more volumes can be attached to a node; empty: they can."""
        limits = self._catalog.limits_at(node)
        if not limits.counts:
            return ""
        new: dict[str, set[str]] = {}
        for claim in claims:
            driver, handle = self._catalog.disk(claim, limits.migrated)
            if driver in limits.counts:
                new.setdefault(driver, set()).add(handle)
        for driver, handles in new.items():
            there = self._attached_to(node).get(driver, set())
            if len(there | handles) > limits.counts[driver] and not handles <= there:
                return f"no more volumes of {driver} can be attached to it"
        return ""

    def _attached_to(self, node: NodeId) -> dict[str, set[str]]:
        """The volumes of each driver that a node has, or will have."""
        found = self._attached.get(node)
        if found is None:
            found = self._attached[node] = {}
            migrated = self._catalog.limits_at(node).migrated
            for user in self._users.on(node):
                for key in user.claims:
                    claim = self._catalog.claims.get(key)
                    driver, handle = self._catalog.disk(claim, migrated) if claim else ("", "")
                    found.setdefault(driver, set()).add(handle)
            for one in self._catalog.attachments.get(node, {}).values():
                volume = self._catalog.volumes.get(one.volume)
                if volume is not None and volume.handle:
                    found.setdefault(one.driver, set()).add(volume.handle)
        return found

    def _count(self, key: PodKey) -> bool:
        user = self._there.get(key) or self._reserved.get(key)
        changed = self._users.put(key, user)
        for node in changed:
            self._attached.pop(node, None)
        return bool(changed)


def _user(pod: Object) -> VolumeUser | None:
    """A pod as a user of volumes; None: it has none that matter, or makes no sense."""
    try:
        mounts = mounts_of(pod)
        claims = tuple(key for key, _ in claims_in(pod, mounts))
    except InvalidSpec:
        return None
    if not mounts:
        return None
    return VolumeUser(NodeId(pod["spec"].get("nodeName") or ""), claims, disks_in(mounts))


def _key(pod: Object) -> PodKey:
    meta = pod["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])
