"""Where a pod stands, and what Roost wrote on it when it was bound.

A bound pod carries its seat, its GPUs and its attempt, and at least one pod of a run carries the
plan of all. These notes can be edited with the pod: what is read back is checked.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.spec import WHOLE, NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.nodes import MOST_DEVICES
from roost.kubernetes.objects.values import (
    annotations_of,
    digits,
    quoted,
    section,
    text,
)

#: Why kubelets refuse pods, beside ``OutOf`` and the name of a resource.
_REJECTIONS = frozenset(
    {
        *("NodePorts", "NodeAffinity", "NodeName", "NodeSelector", "TaintToleration"),
        *("UnexpectedAdmissionError", "TopologyAffinityError", "SMTAlignmentError"),
        *("InvalidNodeInfo", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch"),
        *("PodLevelResourcesNotSupported", "AppArmor", "SysctlForbidden"),
    }
)
_OVER = {"Succeeded", "Failed"}
_MOST_ATTEMPTS = 1 << 31
_LONGEST_LIST = 5 * MOST_DEVICES


def phase_of(pod: Object) -> str:
    """Pending, Running, Succeeded, Failed or Unknown."""
    return text(section(pod, "status"), "phase", "Pending")


def is_over(pod: Object) -> bool:
    """Whether none of its containers will run again."""
    return phase_of(pod) in _OVER


def is_rejected(pod: Object) -> bool:
    """Whether its kubelet refused to run it: none of its containers was ever begun."""
    status = section(pod, "status")
    reason = text(status, "reason")
    if status.get("phase") != "Failed" or status.get("containerStatuses"):
        return False
    return reason in _REJECTIONS or reason.startswith("OutOf")


def is_running(pod: Object) -> bool:
    """Whether its containers were started."""
    return phase_of(pod) == "Running"


def is_bound(pod: Object) -> bool:
    """Whether it has a node."""
    return bool(section(pod, "spec").get("nodeName"))


def is_leaving(pod: Object) -> bool:
    """Whether it is being deleted."""
    return section(pod, "metadata").get("deletionTimestamp") is not None


def is_gated(pod: Object) -> bool:
    """Whether a gate keeps it from being placed."""
    return bool(section(pod, "spec").get("schedulingGates"))


def node_of(pod: Object) -> NodeId | None:
    """The node it is bound to."""
    name = text(section(pod, "spec"), "nodeName")
    return NodeId(name) if name else None


def scheduler_of(pod: Object) -> str:
    """The scheduler that it asks for."""
    return text(section(pod, "spec"), "schedulerName", "default-scheduler")


def uid_of(pod: Object) -> str:
    """What tells it from an earlier pod of its name."""
    return text(section(pod, "metadata"), "uid")


def created_at(pod: Object) -> float | None:
    """When it was created."""
    return _time(section(pod, "metadata").get("creationTimestamp"))


def devices_of(pod: Object) -> tuple[int, ...]:
    """The devices that it was given on its node, as written when it was bound."""
    given = annotations_of(pod).get(GPUS)
    if given is None or given == "":
        return ()
    if not isinstance(given, str) or len(given) > _LONGEST_LIST:
        raise InvalidSpec(f"annotation {GPUS} must be device numbers, got {quoted(given)}")
    found = tuple(
        digits(number, f"annotation {GPUS}: a device", MOST_DEVICES - 1)
        for number in given.split(",")
    )
    if len(set(found)) < len(found):
        raise InvalidSpec(f"annotation {GPUS} names a device twice: {quoted(given)}")
    return found


def attempt_of(pod: Object) -> int:
    """The run that it belongs to; 0 if that is not written on it."""
    given = annotations_of(pod).get(ATTEMPT)
    return 0 if given is None else digits(given, f"annotation {ATTEMPT}", _MOST_ATTEMPTS)


def _time(given: object) -> float | None:
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given) if isinstance(given, str) else None
        if found is not None and found.tzinfo is not None:
            return found.timestamp()
    except (ValueError, OverflowError):
        pass
    raise InvalidSpec(f"a time must be as in 2024-05-01T12:00:00Z, got {quoted(given)}")


GPUS = "roost.dev/gpus"
SEAT = "roost.dev/seat"
ATTEMPT = "roost.dev/attempt"
PLAN = "roost.dev/plan"

_DEFAULTS = (1, WORKER, WHOLE)
#: The longest text that annotations can be, and more workers than it could name nodes for.
_LONGEST = 262_144
_MOST_WORKERS = 100_000


def encode_plan(allocation: Allocation) -> str:
    """An allocation as the text of an annotation."""
    return json.dumps([_encoded(part) for part in allocation.parts], separators=(",", ":"))


def decode_plan(text: str) -> Allocation:
    """The allocation that an annotation tells of; raises InvalidSpec where it is none of ours."""
    if len(text) > _LONGEST:
        raise InvalidSpec(f"annotation {PLAN} is too long")
    try:
        parts = tuple(_decoded(data) for data in json.loads(text))
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise InvalidSpec(f"annotation {PLAN} cannot be read: {error}") from None
    if not 0 < sum(part.workers for part in parts) <= _MOST_WORKERS:
        raise InvalidSpec(f"annotation {PLAN} is of no workers, or of too many")
    return Allocation(parts)


def encode_gpus(gpus: tuple[int, ...]) -> str:
    """Devices as the text of an annotation."""
    return ",".join(map(str, gpus))


def _encoded(part: Part) -> list[Any]:
    tail: list[Any] = [part.workers, part.role, part.share_milli]
    for default in reversed(_DEFAULTS):
        if tail[-1] != default:
            break
        tail.pop()
    return [part.node, list(part.gpus), *tail]


def _decoded(data: list[Any]) -> Part:
    node, gpus, *tail = data
    workers, role, share_milli = tail + list(_DEFAULTS[len(tail) :])
    if not isinstance(node, str) or not isinstance(role, str):
        raise TypeError("senseless names")
    if not all(_within(gpu, 0, MOST_DEVICES - 1) for gpu in gpus) or not (
        _within(workers, 1, _MOST_WORKERS) and _within(share_milli, 0, WHOLE)
    ):
        raise ValueError("senseless amounts")
    return Part(NodeId(node), tuple(gpus), share_milli, workers, role)


def _within(number: object, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most
