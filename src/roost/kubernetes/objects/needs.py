"""What a pod needs: resources, the nodes that will do, its priority.

Requests are those that Kubernetes' own scheduler counts: the sum over the containers and over the
init containers that keep running (``restartPolicy: Always``), or more if a plain init container,
with those that were started before it, needs more; what the pod as a whole asks for takes the place
of its containers' CPU and memory; the overhead of its runtime class comes on top. A limit without a
request is a request.

Devices, and parts of them, are read in ``shares``, ports of the node in ``ports``. Everything else
that a pod may ask for (slices of devices, network devices, huge pages, local disk) is counted by
its name: the core subtracts it from what the node has of that name.

What Roost cannot do it refuses in a sentence, and never leaves out silently. What pods demand of
each other is for filters, as are devices that a pod claims (``resourceClaims``): they are none of
those that it asks for here.
"""

from __future__ import annotations

from typing import NamedTuple

from roost.core.extras import Extras
from roost.core.spec import Resources
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.constraints import Constraints, constraints_of
from roost.kubernetes.objects.neighbours import wishes_of
from roost.kubernetes.objects.ports import host_ports
from roost.kubernetes.objects.shares import PARTS, UNDERSTOOD, devices_asked
from roost.kubernetes.objects.values import annotations_of, integer, section, sections, text

_COUNTED = UNDERSTOOD | {"cpu", "memory"}
_MOST_PRIORITY = 2_147_483_647


class Need(NamedTuple):
    """What a pod needs.

    ``resources`` carries the name of the pool of ``constraints``. ``preempts``: whether others may
    have to go for it. ``claims`` are the volumes that must be there. ``kept_off`` says why
    filters keep it off some nodes.
    """

    resources: Resources
    constraints: Constraints
    priority: int = 0
    preempts: bool = True
    claims: tuple[str, ...] = ()
    kept_off: str = ""

    @property
    def pool(self) -> str:
        """The pool of nodes that will do."""
        return self.constraints.name


def needs(pod: Object) -> Need:
    """What a pod needs; InvalidSpec with a sentence if it cannot be had here."""
    spec = section(pod, "spec")
    wishes_of(pod)  # what makes no sense is refused here; the rest is for filters
    requests = _requests(spec)
    asked = devices_asked(annotations_of(pod), requests)
    offers = ((asked.offer, 1),) if asked.offer else ()  # how many is for the core to count
    constraints = constraints_of(spec, offers, asked.needs or ("whole" if asked.gpus else ""))
    memory_mib = -(-requests.get("memory", 0) // quantities.MIB)
    resources = Resources(
        gpus=asked.gpus,
        share_milli=asked.share_milli,
        gpu_memory_mib=asked.memory_mib,
        qos=asked.qos,
        kinds=asked.kinds,
        cpu_milli=requests.get("cpu", 0),
        memory_mib=memory_mib,
        way=asked.way,
        pool=constraints.name,
        extras=_extras(spec, requests),
    )
    return Need(
        resources,
        constraints,
        priority_of(spec),
        spec.get("preemptionPolicy") != "Never",
        _claims(spec),
    )


def _extras(spec: Object, requests: dict[str, int]) -> Extras:
    """What is counted by its name."""
    found = {name: amount for name, amount in requests.items() if name not in _COUNTED and amount}
    found.update(host_ports(spec))
    return tuple(sorted(found.items())) if found else ()


def priority_of(spec: Object) -> int:
    """The priority that the API server worked out from a pod's priority class."""
    found = integer(spec, "priority")
    if abs(found) > _MOST_PRIORITY + 1:
        raise InvalidSpec(f"priority must fit in 32 bits, got {found}")
    return found


def _requests(spec: Object) -> dict[str, int]:
    """The effective requests: CPU in thousandths, all others in ones."""
    containers = sections(spec, "containers")
    total: dict[str, int] = {}
    sharing = 0
    for container in containers:
        amounts = _amounts(section(container, "resources"), "a container")
        sharing += not PARTS.isdisjoint(amounts)
        _add(total, amounts)
    if spec.get("initContainers"):
        sharing += _with_init(spec, total)
    if sharing > 1:
        raise InvalidSpec("a part of a device can be asked for by one container only")
    if spec.get("resources"):
        _put_whole(section(spec, "resources"), total)
    if spec.get("overhead"):
        _add(
            total,
            {
                name: _amount(name, value, "overhead")
                for name, value in section(spec, "overhead").items()
            },
        )
    return total


def _with_init(spec: Object, total: dict[str, int]) -> int:
    """Raise the sums to what init containers need; how many of these ask for a part of a device."""
    staying: dict[str, int] = {}
    most: dict[str, int] = {}
    sharing = 0
    for container in sections(spec, "initContainers"):
        amounts = _amounts(section(container, "resources"), "an init container")
        sharing += not PARTS.isdisjoint(amounts)
        if container.get("restartPolicy") == "Always":
            _add(staying, amounts)
            amounts = staying
        else:
            amounts = dict(amounts)
            _add(amounts, staying)
        _raise(most, amounts)
    _add(total, staying)
    _raise(total, most)
    return sharing


def _put_whole(resources: Object, total: dict[str, int]) -> None:
    """What the pod as a whole asks for counts in place of the sum over its containers."""
    for name, value in section(resources, "requests").items():
        if name in {"cpu", "memory"} or name.startswith("hugepages-"):
            total[name] = _amount(name, value, "the pod")


def _amounts(resources: Object, whose: str) -> dict[str, int]:
    limits, requests = section(resources, "limits"), section(resources, "requests")
    asked = requests if not limits else {**limits, **requests}
    return {name: _amount(name, value, whose) for name, value in asked.items()}


def _amount(name: str, value: object, whose: str) -> int:
    if name == "cpu":
        return quantities.milli(value, f"{name} of {whose}")
    return quantities.whole(value, f"{name} of {whose}")


def _add(total: dict[str, int], amounts: dict[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], amounts: dict[str, int]) -> None:
    for name, amount in amounts.items():
        if amount > total.get(name, 0):
            total[name] = amount


def _claims(spec: Object) -> tuple[str, ...]:
    """The volume claims that a pod mounts."""
    return tuple(
        text(section(volume, "persistentVolumeClaim"), "claimName")
        for volume in sections(spec, "volumes")
        if "persistentVolumeClaim" in volume
    )
