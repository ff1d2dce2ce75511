"""Claims of storage, volumes, and what says how the two find each other, read from objects.

A claim (PersistentVolumeClaim) asks for storage, a volume (PersistentVolume) is some. Which nodes a
volume can be reached from is said by its node affinity, and on old ones by labels for zones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.constraints import SelectorTerm, expressions_of, test_of
from roost.kubernetes.objects.neighbours import Selector, selector_of
from roost.kubernetes.objects.values import (
    annotations_of,
    integer,
    labels_of,
    listed,
    section,
    sections,
    text,
)

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
#: The annotation that named a class before there was a field for it.
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
#: Plug-ins of Kubernetes itself whose work CSI drivers do on a node; listed on its CSINode.
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
#: Old labels of zones and regions, and those that took their place.
_ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
HOST = "kubernetes.io/hostname"
ONE_POD = "ReadWriteOncePod"
_OF_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})

#: A namespace and a name.
ClaimKey: TypeAlias = tuple[str, str]
Labels: TypeAlias = Mapping[str, str]


class StorageNeed(NamedTuple):
    """What a claim asks for; ``size`` is None where it says none."""

    storage_class: str
    size: int | None
    access: tuple[str, ...]
    mode: str
    selector: Selector | None
    attributes: str


class VolumeClaim(NamedTuple):
    """A claim as it stands. One that is not made yet has no uid."""

    key: ClaimKey
    uid: str
    version: str
    asked: StorageNeed
    volume: str
    selected_node: str
    is_bound: bool
    is_lost: bool
    is_leaving: bool
    #: The uid of the pod that it belongs to, if it is of an ephemeral volume.
    owner: str

    @property
    def name(self) -> str:
        """Its name in its namespace."""
        return self.key[1]

    @property
    def is_shared(self) -> bool:
        """Whether pods of several nodes may use it at a time."""
        return not _OF_MANY.isdisjoint(self.asked.access)


class ClaimRef(NamedTuple):
    """The claim that a volume is for; without a uid any of that name."""

    key: ClaimKey
    uid: str

    def means(self, claim: VolumeClaim) -> bool:
        """Whether it is this very claim."""
        return self.key == claim.key and self.uid in ("", claim.uid)


class Volume(NamedTuple):
    """A volume as it stands."""

    name: str
    uid: str
    version: str
    storage_class: str
    size: int
    access: frozenset[str]
    mode: str
    attributes: str
    labels: Labels
    #: Where it can be reached from: one of these terms must hold; None: anywhere.
    terms: tuple[SelectorTerm, ...] | None
    #: Keys of zones, and the values that a node may have.
    zones: tuple[tuple[str, frozenset[str]], ...]
    claim: ClaimRef | None
    is_available: bool
    is_leaving: bool
    #: The CSI driver, or the plug-in that one took the place of, and the name it knows it by.
    driver: str
    handle: str

    @property
    def host(self) -> str:
        """The only host that it can be reached from, as for a local disk; empty: it has none."""
        if self.terms is None or len(self.terms) != 1:
            return ""
        named = (one for one in self.terms[0].labels if one.key == HOST and one.operator == "In")
        return next((one.values[0] for one in named if len(one.values) == 1), "")

    def is_near(self, labels: Labels) -> bool:
        """Whether its node affinity lets it be used from a node with these labels."""
        return self.terms is None or any(_holds(term, labels) for term in self.terms)

    def is_in_zone(self, labels: Labels) -> bool:
        """Whether its labels for zones agree with those of a node, if that has some at all."""
        if not self.zones or not any(key in labels for key in _ZONES):
            return True
        return all(
            labels.get(key, labels.get(_ZONES[key], "")) in values for key, values in self.zones
        )


class StorageClass(NamedTuple):
    """How claims of a class are served. ``topologies``: one of these terms must hold."""

    name: str
    provisioner: str
    waits: bool
    topologies: tuple[tuple[tuple[str, frozenset[str]], ...], ...]
    is_default: bool
    created_at: str

    @property
    def provisions(self) -> bool:
        """Whether volumes are made for its claims."""
        return self.provisioner not in ("", "kubernetes.io/no-provisioner")

    def reaches(self, labels: Labels) -> bool:
        """Whether it provisions volumes for a node with these labels."""
        return not self.topologies or any(
            all(labels.get(key) in values for key, values in term) for term in self.topologies
        )


class StorageCapacity(NamedTuple):
    """The largest volume of a class that can be made for some nodes."""

    storage_class: str
    largest: int | None
    nodes: Selector | None

    def holds(self, size: int, labels: Labels) -> bool:
        """Whether a volume of so many bytes can be made for a node with these labels."""
        if self.largest is None or self.largest < size or self.nodes is None:
            return False
        return self.nodes.matches(labels)


class VolumeLimits(NamedTuple):
    """How many volumes of each driver a node takes, and which old plug-ins are drivers there."""

    counts: Mapping[str, int]
    migrated: frozenset[str]


class Attachment(NamedTuple):
    """A volume that is attached to a node, or about to be."""

    node: str
    driver: str
    volume: str


def claim_of(found: Object) -> VolumeClaim:
    """A claim; raises InvalidSpec."""
    meta, spec = found["metadata"], section(found, "spec")
    notes = annotations_of(found)
    volume = text(spec, "volumeName")
    owners = sections(meta, "ownerReferences")
    return VolumeClaim(
        (str(meta.get("namespace") or ""), str(meta["name"])),
        text(meta, "uid"),
        text(meta, "resourceVersion"),
        asked_of(found),
        volume,
        str(notes.get(SELECTED_NODE) or ""),
        bool(volume) and BIND_COMPLETED in notes,
        text(section(found, "status"), "phase") == "Lost",
        meta.get("deletionTimestamp") is not None,
        next((text(one, "uid") for one in owners if one.get("controller")), ""),
    )


def asked_of(found: Object, default_class: str = "") -> StorageNeed:
    """What a claim, or a template of one, asks for; raises InvalidSpec."""
    spec = section(found, "spec")
    notes = section(section(found, "metadata"), "annotations")
    requests = section(section(spec, "resources"), "requests")
    size = requests.get("storage")
    return StorageNeed(
        str(notes.get(OLD_CLASS, text(spec, "storageClassName", default_class))),
        None if size is None else quantities.whole(size, "storage of a claim"),
        tuple(map(str, listed(spec, "accessModes"))),
        text(spec, "volumeMode", "Filesystem"),
        selector_of(spec, "selector"),
        text(spec, "volumeAttributesClassName"),
    )


def volume_of(found: Object) -> Volume:
    """A volume; raises InvalidSpec."""
    meta, spec = found["metadata"], section(found, "spec")
    size = section(spec, "capacity").get("storage")
    required = section(spec, "nodeAffinity").get("required")
    return Volume(
        str(meta["name"]),
        text(meta, "uid"),
        text(meta, "resourceVersion"),
        str(annotations_of(found).get(OLD_CLASS, text(spec, "storageClassName"))),
        0 if size is None else quantities.whole(size, "storage of a volume", down=True),
        frozenset(map(str, listed(spec, "accessModes"))),
        text(spec, "volumeMode", "Filesystem"),
        text(spec, "volumeAttributesClassName"),
        labels_of(found),
        None if required is None else _terms(section(spec, "nodeAffinity")),
        _zones(labels_of(found)),
        _claim_ref(spec),
        text(section(found, "status"), "phase") == "Available",
        meta.get("deletionTimestamp") is not None,
        *_source(spec),
    )


def class_of(found: Object) -> StorageClass:
    """A class of storage; raises InvalidSpec."""
    meta = found["metadata"]
    return StorageClass(
        str(meta["name"]),
        text(found, "provisioner"),
        text(found, "volumeBindingMode") == "WaitForFirstConsumer",
        tuple(map(_topology, sections(found, "allowedTopologies"))),
        annotations_of(found).get(DEFAULT_CLASS) == "true",
        text(meta, "creationTimestamp"),
    )


def capacity_of(found: Object) -> StorageCapacity:
    """How much storage of a class is left for some nodes; raises InvalidSpec."""
    largest = found.get("maximumVolumeSize") or found.get("capacity")
    return StorageCapacity(
        text(found, "storageClassName"),
        None if largest is None else quantities.whole(largest, "a storage capacity", down=True),
        selector_of(found, "nodeTopology"),
    )


def limits_of(found: Object) -> VolumeLimits:
    """How many volumes a node takes, as its CSINode says; raises InvalidSpec."""
    counts = {}
    for driver in sections(section(found, "spec"), "drivers"):
        allocatable = section(driver, "allocatable")
        if allocatable.get("count") is not None:
            counts[text(driver, "name")] = integer(allocatable, "count")
    migrated = str(annotations_of(found).get(MIGRATED) or "")
    return VolumeLimits(counts, frozenset(filter(None, migrated.split(","))))


def attachment_of(found: Object) -> Attachment:
    """A volume on a node; raises InvalidSpec."""
    spec = section(found, "spec")
    volume = text(section(spec, "source"), "persistentVolumeName")
    return Attachment(text(spec, "nodeName"), text(spec, "attacher"), volume)


#: Old plug-ins: the field of a volume, the name in it that tells volumes apart, the name of the
#: plug-in, and the CSI driver that does its work.
_PLUGINS = (
    ("awsElasticBlockStore", "volumeID", "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("gcePersistentDisk", "pdName", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("azureDisk", "diskURI", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("azureFile", "shareName", "kubernetes.io/azure-file", "file.csi.azure.com"),
    ("cinder", "volumeID", "kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("vsphereVolume", "volumePath", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "volumeID", "kubernetes.io/portworx-volume", "pxd.portworx.com"),
)
#: The CSI drivers that do the work of old plug-ins.
DRIVERS = {plugin: driver for _, _, plugin, driver in _PLUGINS}


def _source(spec: Object) -> tuple[str, str]:
    csi = section(spec, "csi")
    if csi:
        return text(csi, "driver"), text(csi, "volumeHandle")
    for field, name, plugin, _ in _PLUGINS:
        if field in spec:
            return plugin, text(section(spec, field), name)
    return "", ""


def _claim_ref(spec: Object) -> ClaimRef | None:
    if spec.get("claimRef") is None:
        return None
    found = section(spec, "claimRef")
    return ClaimRef((text(found, "namespace"), text(found, "name")), text(found, "uid"))


def _terms(affinity: Object) -> tuple[SelectorTerm, ...]:
    terms = sections(section(affinity, "required"), "nodeSelectorTerms")
    read = (
        SelectorTerm(expressions_of(term, "matchExpressions"), expressions_of(term, "matchFields"))
        for term in terms
    )
    # One without any test holds nowhere.
    return tuple(sorted({term for term in read if term.labels or term.fields}))


def _zones(labels: Labels) -> tuple[tuple[str, frozenset[str]], ...]:
    found = []
    for key in _ZONES:
        values = frozenset(value.strip() for value in str(labels.get(key, "")).split("__"))
        if "" not in values:
            found.append((key, values))
    return tuple(found)


def _topology(term: Object) -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple(
        (text(one, "key"), frozenset(map(str, listed(one, "values"))))
        for one in sections(term, "matchLabelExpressions")
    )


def _holds(term: SelectorTerm, labels: Labels) -> bool:
    # Volumes name nodes by labels; a name of a node is nothing that they could test.
    return not term.fields and all(test(labels) for test in _tests(term))


@lru_cache(maxsize=4096)
def _tests(term: SelectorTerm) -> tuple[Callable[[Labels], bool], ...]:
    return tuple(test_of(expression) for expression in term.labels)


def ephemeral_name(pod: str, volume: str) -> str:
    """What the claim of an ephemeral volume is called."""
    return f"{pod}-{volume}"


def template_of(pod: Object, volume: Object, default_class: str) -> VolumeClaim:
    """The claim that will be made for an ephemeral volume of a pod; raises InvalidSpec."""
    name = text(volume, "name")
    if not name:
        raise InvalidSpec("a volume needs a name")
    meta = pod["metadata"]
    template = section(section(volume, "ephemeral"), "volumeClaimTemplate")
    key = str(meta.get("namespace") or ""), ephemeral_name(str(meta["name"]), name)
    asked = asked_of(template, default_class)
    return VolumeClaim(key, "", "", asked, "", "", False, False, False, "")  # noqa: FBT003 - as it is not yet
