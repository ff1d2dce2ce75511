"""Where a pod stands, how it ended, and what Roost wrote on it when it was bound.

A bound pod carries its seat, its GPUs and its attempt, and at least one pod of a run carries the
plan of all. These notes can be edited with the pod: what is read back is checked.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.spec import WHOLE, NodeId
from roost.engines import WorkerExit
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.gang_refs import index_of, role_of
from roost.kubernetes.objects.nodes import MOST_DEVICES
from roost.kubernetes.objects.values import (
    annotations_of,
    digits,
    integer,
    quoted,
    section,
    sections,
    text,
)

_OVER = {"Succeeded", "Failed"}
#: An exit code above this is the number of the signal that ended it, by the shell's custom.
_SIGNALLED = 128
_HIGHEST_SIGNAL = 64
_MOST_ATTEMPTS = 1 << 31
_LONGEST_LIST = 5 * MOST_DEVICES


def phase_of(pod: Object) -> str:
    """Pending, Running, Succeeded, Failed or Unknown."""
    return text(section(pod, "status"), "phase", "Pending")


def is_over(pod: Object) -> bool:
    """Whether none of its containers will run again."""
    return phase_of(pod) in _OVER


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


def started_at(pod: Object) -> float | None:
    """When the first of its containers began; while there is none, when its node took it up."""
    status = section(pod, "status")
    times = [
        _time(section(section(container, "state"), name).get("startedAt"))
        for container in sections(status, "containerStatuses")
        for name in ("running", "terminated")
    ]
    begun = [time for time in times if time is not None]
    return min(begun) if begun else _time(status.get("startTime"))


def ended_at(pod: Object) -> float | None:
    """When the last of its containers ended; None unless all of them did."""
    ended = []
    for container in sections(section(pod, "status"), "containerStatuses"):
        found = _time(_terminated(container).get("finishedAt"))
        if found is None:
            return None
        ended.append(found)
    return max(ended) if ended else None


def reason_of(pod: Object) -> str:
    """In one word why it is as it is: Evicted, OOMKilled, ImagePullBackOff; "" if not said."""
    status = section(pod, "status")
    if found := text(status, "reason"):
        return found
    for name in ("initContainerStatuses", "containerStatuses"):
        for container in sections(status, name):
            state = section(container, "state")
            for part in ("waiting", "terminated"):
                found = text(section(state, part), "reason")
                if found and found not in {"Completed", "PodInitializing", "ContainerCreating"}:
                    return found
    return ""


def exits(pod: Object) -> tuple[WorkerExit, ...]:
    """How a pod that is over ended: one exit, of the container that tells most.

    That is the first init container that failed (role ``setup``), else the first container that
    failed, else the first. Empty while the pod is not over, and when no container of it ever ran:
    then ``reason_of`` knows more.
    """
    if not is_over(pod):
        return ()
    status = section(pod, "status")
    for container in sections(status, "initContainerStatuses"):
        if integer(_terminated(container), "exitCode"):
            return (_exit("setup", index_of(pod), _terminated(container)),)
    ended = [one for c in sections(status, "containerStatuses") if (one := _terminated(c))]
    if not ended:
        return ()
    worst = next((one for one in ended if integer(one, "exitCode")), ended[0])
    return (_exit(role_of(pod), index_of(pod), worst),)


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


def seat_of(pod: Object) -> tuple[str, int] | None:
    """Its place in the gang: a role and a number."""
    given = annotations_of(pod).get(SEAT)
    if given is None:
        return None
    role, dash, number = given.rpartition("-") if isinstance(given, str) else ("", "", "")
    if not role or not dash:
        raise InvalidSpec(f"annotation {SEAT} must be a role and a number, got {quoted(given)}")
    return role, digits(number, f"annotation {SEAT}", _MOST_ATTEMPTS)


def _terminated(container: Object) -> Object:
    return section(section(container, "state"), "terminated")


def _exit(role: str, index: int, ended: Object) -> WorkerExit:
    code, signal = integer(ended, "exitCode"), integer(ended, "signal")
    if not signal and _SIGNALLED < code <= _SIGNALLED + _HIGHEST_SIGNAL:
        signal = code - _SIGNALLED
    oom = ended.get("reason") == "OOMKilled"
    if signal:
        return WorkerExit(role, index, None, signal, oom=oom)
    return WorkerExit(role, index, code, None, oom=oom)


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
