"""Claims, volumes and classes by their names, as the API server has them.

What makes no sense is left out, with a line in the log; pods that need it are told that it is not
there. Volumes that are free are found by their class: in most clusters nearly all are in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Object,
    ResourceKind,
)
from roost.kubernetes.objects.storage import (
    DRIVERS,
    HOST,
    ONE_POD,
    Attachment,
    ClaimKey,
    Labels,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
    VolumeLimits,
    attachment_of,
    capacity_of,
    claim_of,
    class_of,
    limits_of,
    volume_of,
)
from roost.kubernetes.objects.values import section

_log = logging.getLogger(__name__)

KINDS: tuple[ResourceKind, ...] = (
    *(VOLUME_CLAIMS, VOLUMES, STORAGE_CLASSES, STORAGE_CAPACITIES),
    *(CSI_DRIVERS, CSI_NODES, VOLUME_ATTACHMENTS),
)
_UNLIMITED = VolumeLimits({}, frozenset())


class StorageCatalog:
    """All that there is of storage, apart from who uses it."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.limits: dict[NodeId, VolumeLimits] = {}
        self.attachments: dict[NodeId, dict[str, Attachment]] = {}
        self._capacities: dict[str, dict[tuple[str, str], StorageCapacity]] = {}
        self._capacity_of: dict[tuple[str, str], str] = {}
        #: Drivers that say how much storage is left.
        self._counting: set[str] = set()
        #: Volumes of a class and a host that are for no claim, and volumes that are for one.
        self._free: dict[tuple[str, str], dict[str, Volume]] = {}
        self._meant: dict[ClaimKey, dict[str, Volume]] = {}
        self._limited: frozenset[str] = frozenset()
        self._node_of: dict[str, NodeId] = {}

    def put(self, kind: ResourceKind, old: Object | None, new: Object | None) -> bool:
        """Note an object; whether it says anything else than before."""
        found = new or old
        if found is None:
            return False
        meta = found["metadata"]
        key = (str(meta.get("namespace") or ""), str(meta["name"]))
        match kind.plural:
            case VOLUME_CLAIMS.plural:
                return _replace(self.claims, key, _read(claim_of, new))
            case VOLUMES.plural:
                return self._put_volume(key[1], _read(volume_of, new))
            case STORAGE_CLASSES.plural:
                return _replace(self.classes, key[1], _read(class_of, new))
            case STORAGE_CAPACITIES.plural:
                return self._put_capacity(key, _read(capacity_of, new))
            case CSI_DRIVERS.plural:
                return self._put_driver(key[1], counts=bool(_read(_counts_storage, new)))
            case CSI_NODES.plural:
                return self._put_limits(NodeId(key[1]), _read(limits_of, new))
            case VOLUME_ATTACHMENTS.plural:
                return self._put_attachment(key[1], _read(attachment_of, new))
        return False

    @property
    def default_class(self) -> str:
        """The class of claims that name none: of several that want to be it, the newest."""
        wanting = [one for one in self.classes.values() if one.is_default]
        wanting.sort(key=lambda one: one.name)
        return max(wanting, key=lambda one: one.created_at).name if wanting else ""

    def candidates(self, claim: VolumeClaim, labels: Labels) -> Iterator[Volume]:
        """Volumes that are for a claim, and those of its class for none that a node may reach."""
        yield from self._meant.get(claim.key, {}).values()
        for host in {"", str(labels.get(HOST, ""))}:
            yield from self._free.get((claim.asked.storage_class, host), {}).values()

    def has_room(self, found: StorageClass, size: int | None, labels: Labels) -> bool:
        """Whether a volume of a class can be made for a node, as far as its driver says."""
        if size is None or found.provisioner not in self._counting:
            return True
        capacities = self._capacities.get(found.name, {}).values()
        return any(one.holds(size, labels) for one in capacities)

    def limits_at(self, node: NodeId) -> VolumeLimits:
        """How many volumes a node takes of each driver."""
        return self.limits.get(node, _UNLIMITED)

    def disk(self, claim: VolumeClaim, migrated: frozenset[str]) -> tuple[str, str]:
        """The driver of a claim's volume and the name it goes by there; nothing: none counts it.

        ``migrated`` are the plug-ins of a node that drivers took the place of.
        """
        volume = self.volumes.get(claim.volume)
        if volume is None:
            found = self.classes.get(claim.asked.storage_class)
            driver, handle = found.provisioner if found else "", f"\0{'/'.join(claim.key)}"
        else:
            driver, handle = volume.driver, volume.handle
        if driver in DRIVERS:
            driver = DRIVERS[driver] if driver in migrated else ""
        return (driver, handle) if driver and handle else ("", "")

    def is_plain(self, claim: VolumeClaim) -> bool:
        """Whether pods may use a claim wherever they are, and however many they are."""
        volume = self.volumes.get(claim.volume)
        if not claim.is_bound or claim.is_lost or claim.is_leaving or volume is None:
            return False
        if volume.terms is not None or volume.zones or ONE_POD in claim.asked.access:
            return False
        return DRIVERS.get(volume.driver, volume.driver) not in self._limited

    def _put_volume(self, name: str, new: Volume | None) -> bool:
        old = self.volumes.get(name)
        if old is not None:
            _take(*self._shelf(old), name)
        if new is not None:
            shelf, key = self._shelf(new)
            shelf.setdefault(key, {})[name] = new
        return _replace(self.volumes, name, new)

    def _shelf(self, volume: Volume) -> tuple[dict[Any, dict[str, Volume]], Any]:
        if volume.claim is not None:
            return self._meant, volume.claim.key
        return self._free, (volume.storage_class, volume.host)

    def _put_capacity(self, key: tuple[str, str], new: StorageCapacity | None) -> bool:
        before = self._capacity_of.pop(key, None)
        old = None
        if before is not None:
            old = self._capacities[before][key]
            _take(self._capacities, before, key)
        if new is not None:
            self._capacity_of[key] = new.storage_class
            self._capacities.setdefault(new.storage_class, {})[key] = new
        return old != new

    def _put_driver(self, name: str, *, counts: bool) -> bool:
        if counts == (name in self._counting):
            return False
        (self._counting.add if counts else self._counting.discard)(name)
        return True

    def _put_limits(self, node: NodeId, new: VolumeLimits | None) -> bool:
        changed = _replace(self.limits, node, new)
        if changed:
            every = (one.counts for one in self.limits.values())
            self._limited = frozenset(driver for counts in every for driver in counts)
        return changed

    def _put_attachment(self, name: str, new: Attachment | None) -> bool:
        before = self._node_of.pop(name, None)
        old = None
        if before is not None:
            old = self.attachments[before][name]
            _take(self.attachments, before, name)
        if new is not None:
            node = self._node_of[name] = NodeId(new.node)
            self.attachments.setdefault(node, {})[name] = new
        return old != new


def _counts_storage(driver: Object) -> bool:
    """Whether a driver says how much storage is left."""
    return section(driver, "spec").get("storageCapacity") is True


def _read(reader: Callable[[Object], Any], found: Object | None) -> Any:
    """What an object says; None: it is gone, or says nothing that makes sense."""
    if found is None:
        return None
    try:
        return reader(found)
    except InvalidSpec as error:
        kind = found.get("kind", "an object")
        _log.warning("%s %s is left out: %s", kind, found["metadata"]["name"], error)
        return None


def _replace(known: dict[Any, Any], key: Any, new: Any) -> bool:
    old = known.get(key)
    if new is None:
        known.pop(key, None)
    else:
        known[key] = new
    return bool(old != new)


def _take(shelves: dict[Any, dict[Any, Any]], shelf: Any, name: Any) -> None:
    """Take something off its shelf, and the shelf away if it is empty."""
    shelves[shelf].pop(name, None)
    if not shelves[shelf]:
        del shelves[shelf]
