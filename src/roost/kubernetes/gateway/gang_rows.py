"""Gangs of others as the rows of lists: what their pods tell, under the core's names for them.

A PyTorchJob or a RayCluster that Roost places is listed beside Roost's own Jobs. Its pods say where
they are, and why they wait: the operator wrote it on them. What it is made of belongs to its owner,
so a row has no job file, and is changed with kubectl.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from roost.api.jobs import JobView, PlacementView, StateName, WorkersView
from roost.api.schema import encode
from roost.core.reasons import Cause
from roost.core.spec import WHOLE, JobId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.gangs.discovery import SCHEDULER
from roost.kubernetes.gangs.seat_plans import queue_named, taken
from roost.kubernetes.gateway.rows import KIND
from roost.kubernetes.objects.gang_refs import ROOST, GangRef, alone, gang_of, role_of
from roost.kubernetes.objects.gang_sizes import completed
from roost.kubernetes.objects.needs import Need
from roost.kubernetes.objects.pods import (
    created_at,
    devices_of,
    is_bound,
    is_over,
    is_running,
    phase_of,
    scheduler_of,
)
from roost.kubernetes.objects.values import section, sections, text
from roost.kubernetes.operator.events import NO_ROOM
from roost.kubernetes.operator.status import moment
from roost.store.rows import JobRow

#: The mirrored objects of a kind, by namespace and name.
Owners = Callable[[ResourceKind], Mapping[tuple[str, str], Object]]


class GangRows:
    """The gangs of others, gathered from pods as these come and go."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        #: The pods of each gang by uid, and the gang of each pod.
        self._pods: dict[JobId, dict[str, Object]] = {}
        self._refs: dict[JobId, GangRef] = {}
        self._gang: dict[str, JobId] = {}
        self._changed: dict[JobId, None] = {}

    def changed(self, old: Object | None, new: Object | None) -> None:
        """A pod came, changed or is gone."""
        for pod in (old, new):
            if pod is not None and (known := self._gang.pop(_uid(pod), None)) is not None:
                self._pods[known].pop(_uid(pod), None)
                self._changed[known] = None
        if new is None:
            return
        ref = _ref(new, self._owners)
        if ref is not None:
            self._gang[_uid(new)] = ref.id
            self._refs[ref.id] = ref
            self._pods.setdefault(ref.id, {})[_uid(new)] = new
            self._changed[ref.id] = None

    def owner_changed(self) -> None:
        """An owner with parts is known now, or another: its pods may be of other gangs."""
        for gang in [gang for gang, ref in self._refs.items() if ref.part]:
            for pod in self.pods(gang):
                self.changed(pod, pod)

    def news(self, rev: int) -> tuple[list[JobRow], list[JobId]]:
        """The rows of gangs that changed, and the gangs that are no more."""
        changed, self._changed = self._changed, {}
        rows, gone = [], []
        for gang in changed:
            if self._pods.get(gang):
                rows.append(gang_row(self._refs[gang], list(self._pods[gang].values()), rev))
            else:
                self._pods.pop(gang, None)
                self._refs.pop(gang, None)
                gone.append(gang)
        return rows, gone

    def of_pod(self, uid: str) -> JobId | None:
        """The gang of a pod."""
        return self._gang.get(uid)

    def pods(self, gang: JobId) -> list[Object]:
        """The pods of a gang."""
        return list(self._pods.get(gang, {}).values())


def gang_row(ref: GangRef, pods: list[Object], rev: int) -> JobRow:
    """A gang as lists show it."""
    facts = _Facts.of(pods)
    created = min((created_at(pod) or 0.0 for pod in pods), default=0.0)
    labels = {KIND: ref.owner.kind if ref.owner is not None else "Pod"}
    view = JobView(
        id=ref.id,
        name=ref.name,
        user=ref.namespace,
        queue=queue_named(pods[0]),
        state=facts.state,
        cause=facts.cause,
        reason=facts.reason,
        priority=max(need.priority for need in facts.needs),
        labels=labels,
        workers=WorkersView(len(pods), len(pods), len(facts.placement)),
        gpus=sum(map(_gpus, facts.needs)),
        gpus_held=sum(
            _gpus(need) for need, held in zip(facts.needs, facts.held, strict=True) if held
        ),
        kinds=facts.needs[0].resources.kinds,
        share=facts.needs[0].resources.share_milli / WHOLE,
        placement=facts.placement,
        attempt=1 if facts.placement else 0,
        submitted_at=created,
        started_at=facts.started_at,
        finished_at=facts.finished_at,
        running_since=facts.started_at if facts.finished_at is None else None,
        rev=rev,
    )
    return JobRow(
        id=ref.id,
        name=ref.name,
        user=ref.namespace,
        queue=view.queue,
        state=view.state,
        cause=view.cause,
        priority=view.priority,
        gpus=view.gpus,
        submitted_at=created,
        started_at=view.started_at,
        finished_at=view.finished_at,
        labels=labels,
        rev=rev,
        view=encode(view),
    )


class _Facts(NamedTuple):
    """What the pods of a gang say together; ``held``: which of them have devices now."""

    needs: list[Need]
    held: list[bool]
    placement: tuple[PlacementView, ...]
    state: StateName
    cause: str
    reason: str
    started_at: float | None
    finished_at: float | None

    @classmethod
    def of(cls, pods: list[Object]) -> _Facts:
        needs = [taken(pod) for pod in pods]
        held = [is_bound(pod) and not is_over(pod) for pod in pods]
        placement = tuple(
            _placement(pod, need) for pod, need, has in zip(pods, needs, held, strict=True) if has
        )
        started = [at for pod in pods if (at := moment(section(pod, "status").get("startTime")))]
        ended = all(map(is_over, pods))
        cause, reason = ("", "") if ended or all(held) else _why(pods)
        return cls(
            needs,
            held,
            placement,
            _state(pods, ended=ended),
            cause,
            reason,
            min(started, default=None),
            _ended_at(pods) if ended else None,
        )


def _ref(pod: Object, owners: Owners) -> GangRef | None:
    """The gang of a pod that is Roost's to place, and not of a Job of Roost's own."""
    if scheduler_of(pod) != SCHEDULER:
        return None
    meta = pod["metadata"]
    try:
        ref = gang_of(pod)
        if ref.kind == ROOST:
            return None
        if not ref.part or ref.owner is None or ref.owner.resource_kind is None:
            return ref
        found = owners(ref.owner.resource_kind).get((ref.namespace, ref.owner.name))
        return ref if found is None else completed(ref, found)
    except InvalidSpec:
        return alone(meta["namespace"], meta["name"])


def _state(pods: Iterable[Object], *, ended: bool) -> StateName:
    pods = list(pods)
    if ended:
        return "failed" if any(phase_of(pod) == "Failed" for pod in pods) else "succeeded"
    if not any(is_bound(pod) and not is_over(pod) for pod in pods):
        return "queued"
    return "running" if any(map(is_running, pods)) else "starting"


def _why(pods: Iterable[Object]) -> tuple[str, str]:
    """What the operator said to the first pod that waits; a word, and the sentence."""
    for pod in pods:
        for condition in sections(section(pod, "status"), "conditions"):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                said = text(condition, "reason")
                cause = Cause.CAPACITY.token if said == NO_ROOM else _token(said)
                return cause, text(condition, "message")
    return "", ""


def _token(word: str) -> str:
    """A cause as users see it: NotItsTurn, not-its-turn."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", word).lower()


def _ended_at(pods: Iterable[Object]) -> float:
    """When the last container ended; where no kubelet said it, now."""
    ends = [
        moment(section(section(status, "state"), "terminated").get("finishedAt"))
        for pod in pods
        for status in sections(section(pod, "status"), "containerStatuses")
    ]
    return max((end for end in ends if end is not None), default=time.time())


def _placement(pod: Object, need: Need) -> PlacementView:
    try:
        devices = devices_of(pod)
    except InvalidSpec:
        devices = ()
    share = need.resources.share_milli / WHOLE
    return PlacementView(pod["spec"]["nodeName"], devices, share, 1, role_of(pod))


def _gpus(need: Need) -> float:
    return need.resources.gpu_milli / WHOLE


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])
