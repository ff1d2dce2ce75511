"""How pods of a Job ended, what is stuck before it begins, and the ends of their logs.

What a worker printed last says what caused a failure. Where pods stand is in ``objects.pods``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import NamedTuple, Self

from roost.engines import WorkerExit
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.jobs.failures.classify import DISPLACED
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import CONTAINER
from roost.kubernetes.jobs.containers import SETUP_FAILED
from roost.kubernetes.jobs.sent_folder import why_not_unpacked
from roost.kubernetes.objects.gang_refs import INDEX, ROLE
from roost.kubernetes.objects.kept_logs import LogEnd
from roost.kubernetes.objects.pods import ATTEMPT
from roost.kubernetes.operator.status import moment
from roost.kubernetes.operator.workload import OperatorContext

#: Why a container does not begin, though it has a node: what only its user can mend comes
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
    """How a pod ended.

    ``lost``: by no doing of the job, and how; ``bare``: why it has no folder.
    """

    at: float
    exit: WorkerExit
    lost: str = ""
    bare: str = ""


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
        displaced = why_deleted(name, pod)
        lost = displaced if DISPLACED in displaced else f"pod {name}: {said}"
        return PodEnd(at, WorkerExit(role, index, None, None), lost)
    if ended.get("message") == SETUP_FAILED:
        role, index = "setup", 0
    code, signal = ended.get("exitCode"), ended.get("signal") or None
    exit_ = WorkerExit(role, index, None if signal else code, signal)
    if ended.get("reason") == "OOMKilled":
        exit_ = WorkerExit(role, index, exit_.code, exit_.signal, oom=True)
    return PodEnd(at, exit_, bare=why_not_unpacked(status))


def why_deleted(name: str, pod: Object) -> str:
    """What is said of a pod that goes by no doing of Roost: who made it go, where that is known."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            told = condition.get("message") or condition.get("reason") or "no reason is given"
            return f"pod {name} {DISPLACED}{told}"
    return f"pod {name} was deleted, and not by Roost"


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


def worker_of(pod: Object) -> str:
    """What the worker in a pod is called."""
    role, index = place_of(pod)
    return f"{role}-{index}"


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


_log = logging.getLogger(__name__)

#: As many lines of a log are read at most.
LOG_LINES = 1000


async def tails_of(context: OperatorContext, pods: Iterable[Object]) -> dict[str, LogEnd]:
    """The ends of the logs of pods, by worker; those that are not to be had are left out.

    Nothing is written: this needs no lease.
    """
    asked = list(pods)
    found = await asyncio.gather(*(read_log(context, pod) for pod in asked))
    logs = zip(map(worker_of, asked), found, strict=True)
    return {worker: log for worker, log in logs if log is not None}


async def read_log(context: OperatorContext, pod: Object) -> LogEnd | None:
    """The end of the log of a pod; None if it is not to be had."""
    meta = pod["metadata"]
    try:
        text = await context.api.log(
            meta["namespace"], meta["name"], container=CONTAINER, tail_lines=LOG_LINES
        )
    except (NotFound, Forbidden, InvalidSpec, Conflict, Retryable) as error:
        _log.info("the log of %s is not to be had: %s", meta["name"], error)
        return None
    return LogEnd(text, text.count(b"\n") < LOG_LINES).bounded()


class PodLogTail:
    """What was read of a log."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def size(self) -> int:
        """Bytes there are."""
        return len(self._text)

    def read(self, offset: int, n: int) -> bytes:
        """At most ``n`` bytes from there."""
        return self._text[offset : offset + n]

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
