"""What the rules of alerts find in a cluster at one moment; no clock, no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from roost.live.alerts.rules import AlertRule, Condition


class RunFigures(NamedTuple):
    """A job that runs: since when, how busy its devices are, when it last got on."""

    job: str
    user: str
    queue: str
    since: float
    gpus: float
    busy: float | None = None
    moved_at: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """What is measured of a cluster; nodes and queues as their views tell."""

    runs: Sequence[RunFigures] = ()
    nodes: Sequence[Mapping[str, Any]] = ()
    oldest: Mapping[str, float] = field(default_factory=dict)
    disk_free: float | None = None
    intake: str = ""


class Finding(NamedTuple):
    """Something that a rule is about: what, in words; since when, where that is known."""

    subject: str
    text: str
    since: float | None = None
    job: str = ""
    user: str = ""
    node: str = ""
    queue: str = ""


def findings(rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    """What the condition of a rule holds for now."""
    return _FINDERS[rule.when](rule, seen)


def _unused(rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    for run in seen.runs:
        if run.gpus and run.busy is not None and run.busy < rule.bound:
            yield _of(run, f"the GPUs of {run.job} are at work {run.busy:.0%} of the time")


def _stuck(_rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    for run in seen.runs:
        if run.moved_at is not None:
            text = f"{run.job} runs and reports nothing new"
            yield _of(run, text, max(run.since, run.moved_at))


def _of(run: RunFigures, text: str, since: float | None = None) -> Finding:
    return Finding(f"job {run.job}", text, since, run.job, run.user, queue=run.queue)


def _lost(_rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    for node in seen.nodes:
        if node["state"] == "lost":
            yield Finding(f"node {node['id']}", f"node {node['id']} is lost", node=node["id"])


def _failed(_rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    for node in seen.nodes:
        for device in node["devices"]:
            notice = device["notice"]
            # What a person disabled is no news to people.
            if device["healthy"] or (notice and notice["user"]):
                continue
            why = f": {notice['reason']}" if notice and notice["reason"] else ""
            yield Finding(
                f"GPU {node['id']}/{device['index']}",
                f"GPU {device['index']} of {node['id']} is not used any more{why}",
                notice and notice["since"],
                node=node["id"],
            )


def _waits(_rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    for queue, since in seen.oldest.items():
        yield Finding(f"queue {queue}", f"a job waits long in queue {queue}", since, queue=queue)


def _full(rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    if seen.disk_free is not None and seen.disk_free < rule.bound:
        yield Finding("disk", f"{seen.disk_free:.1%} of the server's disk is free")


def _refuses(_rule: AlertRule, seen: ClusterFigures) -> Iterator[Finding]:
    if seen.intake:
        yield Finding("intake", seen.intake)


_FINDERS: Mapping[Condition, Callable[[AlertRule, ClusterFigures], Iterator[Finding]]] = {
    "idle-gpu": _unused,
    "low-use": _unused,
    "stuck": _stuck,
    "node-lost": _lost,
    "gpu-failed": _failed,
    "queue-wait": _waits,
    "disk": _full,
    "intake": _refuses,
}
