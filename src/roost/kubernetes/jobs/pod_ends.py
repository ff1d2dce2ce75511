"""How pods of a Job ended, and what is stuck before it begins; how pods stand is in ``pods``."""

from __future__ import annotations

from typing import NamedTuple

from roost.engines import WorkerExit
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import CONTAINER
from roost.kubernetes.jobs.launch_command import SETUP_FAILED
from roost.kubernetes.objects.gang_refs import INDEX, ROLE
from roost.kubernetes.objects.plans import ATTEMPT
from roost.kubernetes.operator.status import moment

#: Why a container does not begin, though it has a node: what nobody but its user can mend comes
#: with no patience, the rest may be a registry that has a bad minute.
_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_WAITING = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "CreateContainerError"),
        *("CreateContainerConfigError", "RunContainerError", "CreateSandboxError"),
    }
)
_PATIENCE_S = 120.0


class PodEnd(NamedTuple):
    """How a pod ended; ``lost``: by no doing of the job, and how."""

    at: float
    exit: WorkerExit
    lost: str = ""


class StuckPod(NamedTuple):
    """A pod that does not begin, why, and how long it may go on like this."""

    why: str
    patience_s: float


def end_of(pod: Object) -> PodEnd | None:
    """How a pod ended that is over."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    role, index = place_of(pod)
    ended = _terminated(status)
    at = moment(ended.get("finishedAt")) or 0.0
    if status["phase"] == "Succeeded":
        return PodEnd(at, WorkerExit(role, index, 0, None))
    if not ended or status.get("reason"):  # evicted, preempted by a node, out of time
        name = pod["metadata"]["name"]
        said = status.get("message") or status.get("reason") or "it failed"
        return PodEnd(at, WorkerExit(role, index, None, None), f"pod {name}: {said}")
    if ended.get("message") == SETUP_FAILED:
        role, index = "setup", 0
    code, signal = ended.get("exitCode"), ended.get("signal") or None
    exit_ = WorkerExit(role, index, None if signal else code, signal)
    if ended.get("reason") == "OOMKilled":
        exit_ = WorkerExit(role, index, exit_.code, exit_.signal, oom=True)
    return PodEnd(at, exit_)


def stuck(pod: Object) -> StuckPod | None:
    """Why a pod with a node does not begin, if it says so."""
    status = pod.get("status") or {}
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason")
        if reason in _HOPELESS or reason in _WAITING:
            why = ": ".join(filter(None, (reason, waiting.get("message"))))
            return StuckPod(why, 0.0 if reason in _HOPELESS else _PATIENCE_S)
    return None


def place_of(pod: Object) -> tuple[str, int]:
    """The role of a pod and its number in it."""
    labels = pod["metadata"].get("labels") or {}
    number = labels.get(INDEX, "0")
    return labels.get(ROLE, ""), int(number) if number.isdigit() else 0


def attempt_of(pod: Object) -> int:
    """The attempt that a pod is of."""
    number = (pod["metadata"].get("labels") or {}).get(ATTEMPT, "0")
    return int(number) if number.isdigit() else 0


def _terminated(status: Object) -> Object:
    """How the worker's container ended, or the one before it that failed."""
    for one in status.get("initContainerStatuses") or ():
        ended: Object = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return ended
    for one in status.get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if one.get("name") == CONTAINER and ended:
            return ended
    return {}
