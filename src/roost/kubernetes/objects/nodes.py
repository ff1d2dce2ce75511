"""Nodes of a cluster as the core knows them, and whether they take work.

What a node offers is its ``allocatable``: capacity less what the system keeps. Labels are free text
that anybody writes; one that makes no sense is as good as none.

    devices        nvidia.com/gpu, amd.com/gpu, gpu.intel.com/i915 or xe; nvidia.com/gpu.shared,
                   where a "device" is one of the turns that a time-slicing plug-in deals out;
                   aliyun.com/gpu-count and alibabacloud.com/gpu-count of Alibaba's sharing and of
                   its openb trace
    their kind     roost.dev/gpu-kind, nvidia.com/gpu.product, amd.com/gpu.product-name,
                   alibabacloud.com/gpu-card-model, node.kubernetes.io/instance-type, else "gpu"
    their memory   nvidia.com/gpu.memory (MiB), amd.com/gpu.vram (a quantity)
    switch         roost.dev/switch, a rack, the leaf switch that NVIDIA's Topograph found, or what
                   a cloud calls the innermost part of its network
    block, zone    roost.dev/block, a spine or what a cloud calls such; topology.kubernetes.io/zone
    whole, shared  roost.dev/gpus-as: "whole", "shares" or "both"; without it, both where Roost's
                   agent gives out the devices (roost.dev/shared-gpu), else the first pod decides
    extras         everything else: slices of devices, network devices, huge pages, local disk; and
                   all of every port (``ports``)
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from roost.core.extras import Extras
from roost.core.spec import Level, NodeId, NodeSpec
from roost.errors import InvalidSpec
from roost.kubernetes.autoscaling.disruption import is_doomed
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.ports import EVERY_PORT
from roost.kubernetes.objects.values import digits, labels_of, section, sections, text

#: A device as a time-slicing plug-in offers it: one of the turns on it.
TURN = "nvidia.com/gpu.shared"
#: Places on shared devices, as Roost's agent announces them. A node that has some gives the devices
#: that the scheduler decided: whole ones and shared ones may be beside each other.
SHARED_GPUS = "roost.dev/shared-gpu"
#: How many devices a node has, where the agent counts several places on each.
GPU_COUNT = "roost.dev/gpu-count"
#: What its devices are called, where an administrator or the agent says it.
GPU_KIND = "roost.dev/gpu-kind"
#: Resources that are whole devices, and of one maker.
DEVICES = ("nvidia.com/gpu", TURN, "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_COUNTED = (*DEVICES, "aliyun.com/gpu-count", "alibabacloud.com/gpu-count")
_COUNTED_APART = frozenset({*_COUNTED, "cpu", "memory", "pods"})
#: Labels that say of which kind the devices of a node are, the surest first.
KIND_LABELS = (
    GPU_KIND,
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "alibabacloud.com/gpu-card-model",
    "node.kubernetes.io/instance-type",
)
_SWITCH = (
    "roost.dev/switch",
    "topology.kubernetes.io/rack",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/tier-0",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.provider.com/topology-rack",
)
_BLOCK = (
    "roost.dev/block",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/tier-1",
    "cloud.google.com/gce-topology-block",
    "topology.k8s.aws/network-node-layer-2",
    "cloud.provider.com/topology-block",
)
_ZONE = ("roost.dev/zone", "topology.kubernetes.io/zone")
_LEVEL_OF = {
    "kubernetes.io/hostname": Level.NODE,
    **dict.fromkeys(_SWITCH, Level.SWITCH),
    **dict.fromkeys(_BLOCK, Level.BLOCK),
    **dict.fromkeys(_ZONE, Level.ZONE),
}
#: Of every name that begins so a node has one: for pods that keep away from others of their gang.
APART = "pods apart/"
#: Of devices of every class so a node has more than anybody claims: filters know how many there
#: are, and queues count them.
CLASSES, _ALL_DEVICES = "deviceclass.resource.k8s.io/", 1 << 40
#: How the devices of a node are given out: whole, in shares, or both.
_GPUS_AS = "roost.dev/gpus-as"
_SHARING = "nvidia.com/gpu.sharing-strategy"
_MOST_MIB = 1 << 30
#: More devices than any machine has; a set of them is an integer with one bit each.
MOST_DEVICES = 4096


class Taint(NamedTuple):
    """A mark that keeps pods away which do not tolerate it."""

    key: str
    value: str
    effect: str


class NodeFacts(NamedTuple):
    """What decides which pods a node may take, apart from room.

    ``usable``: it is ready and open. ``whole``: its devices are given out whole. ``split``: they
    can be shared out in parts that the core chooses; ``sized``: and their memory is known.
    ``offers`` is what it has besides CPU and memory. ``deterrents`` are taints that keep nobody
    away for whom there is another node.
    """

    name: NodeId
    labels: Object
    taints: tuple[Taint, ...]
    deterrents: tuple[Taint, ...]
    offers: dict[str, int]
    usable: bool
    whole: bool
    split: bool
    sized: bool


def node_spec(node: Object) -> NodeSpec:
    """A node with what it offers."""
    labels = labels_of(node)
    offered = section(section(node, "status"), "allocatable")
    gpus = _gpus(offered, labels)
    return NodeSpec(
        id=name_of(node),
        gpus=gpus,
        kind=_first(labels, KIND_LABELS) or "gpu",
        gpu_memory_mib=_device_mib(labels) if gpus else 0,
        # To the core 0 is unknown and so without bound; a node that says 0 has next to nothing.
        cpu_milli=max(1, quantities.milli(offered["cpu"], "allocatable cpu", down=True))
        if "cpu" in offered
        else 0,
        memory_mib=max(1, quantities.mib(offered["memory"], "allocatable memory", down=True))
        if "memory" in offered
        else 0,
        switch=_first(labels, _SWITCH),
        workers=max(1, quantities.whole(offered["pods"], "allocatable pods", down=True))
        if "pods" in offered
        else 0,
        extras=_extras(offered),
        mixed=_is_mixed(node, labels),
        block=_first(labels, _BLOCK),
        zone=_first(labels, _ZONE),
    )


def level_of(label: str) -> Level | None:
    """The level of the domains of which nodes say by this label where they are; None: of none."""
    return _LEVEL_OF.get(label)


def name_of(node: Object) -> NodeId:
    """The name of a node, which is its id."""
    name = text(section(node, "metadata"), "name")
    if not name:
        raise InvalidSpec("a node must have a name")
    return NodeId(name)


def is_ready(node: Object) -> bool:
    """Whether its kubelet says that it can run pods."""
    for condition in sections(section(node, "status"), "conditions"):
        if condition.get("type") == "Ready":
            return condition.get("status") == "True"
    return False


def is_open(node: Object) -> bool:
    """Whether it takes new pods: it is not cordoned, and nobody is about to remove it."""
    if section(node, "metadata").get("deletionTimestamp") is not None:
        return False
    if is_doomed(node):
        return False
    return section(node, "spec").get("unschedulable") is not True


def facts_of(node: Object) -> NodeFacts:
    """What decides which pods a node may take."""
    labels = labels_of(node)
    if not all(isinstance(value, str) for value in labels.values()):
        labels = {key: value for key, value in labels.items() if isinstance(value, str)}
    offered = section(section(node, "status"), "allocatable")
    # A plug-in that slices time may count the turns under the plain name.
    turns = TURN in offered or labels.get(_SHARING, "none") != "none"
    given_as = labels.get(_GPUS_AS)
    split = not turns and _gpus(offered, labels) > 0 and given_as != "whole"
    return NodeFacts(
        name=name_of(node),
        labels=labels,
        taints=_taints(node, {"NoSchedule", "NoExecute"}),
        deterrents=_taints(node, {"PreferNoSchedule"}),
        offers={
            name: quantities.whole(amount, name, down=True)
            for name, amount in offered.items()
            if name not in {"cpu", "memory", "pods"}
        },
        usable=is_ready(node) and is_open(node),
        whole=given_as != "shares",
        split=split,
        sized=split and _device_mib(labels) > 0,
    )


def _taints(node: Object, effects: AbstractSet[str]) -> tuple[Taint, ...]:
    """The taints of a node that have one of these effects."""
    return tuple(
        Taint(text(taint, "key"), text(taint, "value"), effect)
        for taint in sections(section(node, "spec"), "taints")
        if (effect := text(taint, "effect")) in effects
    )


def _extras(offered: Object) -> Extras:
    """What is counted by its name; devices are not, and of what is 0 there is none."""
    found = {
        name: quantities.whole(amount, name, down=True)
        for name, amount in offered.items()
        if name not in _COUNTED_APART
    }
    found.update(EVERY_PORT)
    found[f"{APART}*"] = 1
    found[f"{CLASSES}*"] = _ALL_DEVICES
    return _one(tuple(sorted((name, amount) for name, amount in found.items() if amount)))


@lru_cache(maxsize=1024)
def _one(extras: Extras) -> Extras:
    """The one object of all that are equal to this: most nodes of a cluster are alike."""
    return extras


def has_agent(node: Object) -> bool:
    """Whether Roost's agent gives out its devices.

    While an agent is replaced there are none to be had, and the kubelet still names them.
    """
    return SHARED_GPUS in section(section(node, "status"), "allocatable")


def _is_mixed(node: Object, labels: Object) -> bool:
    given_as = labels.get(_GPUS_AS)
    return has_agent(node) if given_as is None else given_as == "both"


def _gpus(offered: Object, labels: Object) -> int:
    found = _counted(offered)
    try:
        # Of several places on each device there are fewer devices; of what is away there is none.
        return min(found, digits(labels[GPU_COUNT], GPU_COUNT, MOST_DEVICES))
    except (KeyError, InvalidSpec):
        return found


def _counted(offered: Object) -> int:
    for name in _COUNTED:
        if name in offered:
            found = quantities.whole(offered[name], name, down=True)
            if found > MOST_DEVICES:
                raise InvalidSpec(f"{name}: a node with {found} devices cannot be right")
            if found:
                return found
    return 0


def _device_mib(labels: Object) -> int:
    try:
        if "nvidia.com/gpu.memory" in labels:
            return digits(labels["nvidia.com/gpu.memory"], "nvidia.com/gpu.memory", _MOST_MIB)
        if "amd.com/gpu.vram" in labels:
            return quantities.mib(labels["amd.com/gpu.vram"], "amd.com/gpu.vram", down=True)
    except InvalidSpec:
        pass
    return 0


def _first(labels: Object, names: tuple[str, ...]) -> str:
    for name in names:
        found = labels.get(name)
        if isinstance(found, str) and found:
            return found
    return ""
