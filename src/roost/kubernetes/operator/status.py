"""What a Job object says of itself: the view of the core as status and conditions.

Pure functions: the view that every interface shows (``roost.jobs.views``) becomes the status, and
what was said before decides since when each condition holds. How it gets to the API server is for
``jobs.status_writer``.

    Admitted    it was given devices, and has them or is done with them
    Running     all its workers are up
    Succeeded, Failed    it is over
    Blocked     it cannot start until something is changed; the message says what
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from roost.core import JobState
from roost.kubernetes.client.kinds import Object

#: How the evidence begins where a request was refused: with the name of the error.
_REFUSAL = re.compile(r"(Forbidden|Unpermitted|InvalidSpec|Conflict|NotFound): ")
#: How much of a sentence fits.
_MESSAGE = 1024
#: What is still so when a job has to wait outside of the core.
_LASTING = ("workers", "attempt", "failures", "progress")
_ON_DEVICES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RESIZING})
_UP = frozenset({JobState.RUNNING, JobState.RESIZING})


class Obstacle(NamedTuple):
    """Why a Job is not handed to the core: a word for programs, a sentence for people.

    ``final``: it will not be, whatever else changes.
    """

    cause: str
    sentence: str
    final: bool = False


class LastStatus(NamedTuple):
    """What was said before, and what it is said of."""

    status: Mapping[str, Any]
    generation: int
    selector: str


def status_of(view: Mapping[str, Any], said: LastStatus, now: float) -> Object:
    """The status of a job that the core knows, or knew when it ended."""
    state = JobState(view["state"])
    view = {**view, "reason": _with_evidence(view)}
    found = {
        "observedGeneration": said.generation,
        "state": state.value,
        "reason": str(view["reason"] or "")[:_MESSAGE],
        "cause": view["cause"],
        "workers": dict(view["workers"]),
        "replicas": view["workers"]["now"],
        "selector": said.selector,
        "gpus": view["gpus_held"],
        "attempt": view["attempt"],
        "failures": view["failures"],
        "nodes": list(dict.fromkeys(part["node"] for part in view["placement"])),
        "progress": view["progress"],
        "view": dict(view),
    }
    return {**found, "conditions": conditions_of(_of_view(view, state), said, now)}


def _with_evidence(view: Mapping[str, Any]) -> str:
    """The reason, and what the API server said where that is why it has not run."""
    reason, verdict = str(view["reason"] or ""), view.get("verdict") or {}
    waits = view["cause"] == "back-off" or view["state"] == JobState.FAILED.value
    evidence = str(verdict.get("evidence") or "")
    refused = _REFUSAL.match(evidence) if waits and verdict.get("code") is None else None
    return f"{reason}: {evidence[refused.end() :]}" if refused else reason


def status_without(trouble: Obstacle, name: str, said: LastStatus, now: float) -> Object:
    """The status of a job that the core does not know, and why."""
    state = JobState.FAILED if trouble.final else JobState.QUEUED
    sentence = trouble.sentence[:_MESSAGE]
    before = dict(said.status.get("view") or {"id": name, "finished_at": None})
    if trouble.final and before.get("finished_at") is None:
        before["finished_at"] = now
    view = {**before, "state": state.value, "cause": trouble.cause, "reason": sentence}
    return {
        # Attempts that were made stay made: their pods have these numbers.
        **{name: said.status[name] for name in _LASTING if name in said.status},
        "observedGeneration": said.generation,
        "state": state.value,
        "reason": sentence,
        "cause": trouble.cause,
        "replicas": 0,
        "selector": said.selector,
        "gpus": 0,
        "nodes": [],
        "view": view,
        "conditions": conditions_of(_of_trouble(trouble, sentence), said, now),
    }


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """The merge patch that makes one of the other; empty if they are the same."""
    patch: Object = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            patch[name] = difference(old, value)
        elif value is not None or name in before:
            patch[name] = value
    return patch


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> float | None:
    """A time that Kubernetes wrote, in seconds since the epoch."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def word(cause: str) -> str:
    """A cause as conditions and Events spell it: no-capacity, NoCapacity."""
    return "".join(part.capitalize() for part in cause.replace("_", "-").split("-") if part)


class Condition(NamedTuple):
    """Something that is so, or not."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def _of_view(view: Mapping[str, Any], state: JobState) -> Sequence[Condition]:
    reason, sentence = word(view["cause"]) or word(state.value), str(view["reason"] or "")
    admitted = state in _ON_DEVICES or (state.over and view["started_at"] is not None)
    verdict = view.get("verdict") or {}
    failed = state is JobState.FAILED
    why = word(str(verdict.get("kind") or "failed"))
    told = str(verdict.get("sentence") or sentence)
    if failed and sentence not in told and told not in sentence:
        told = f"{told} ({sentence})"
    return (
        Condition("Admitted", admitted, word(state.value) if admitted else reason, sentence),
        Condition("Running", state in _UP, word(state.value), sentence),
        Condition("Succeeded", state is JobState.SUCCEEDED, word(state.value)),
        Condition("Failed", failed, why if failed else word(state.value), told if failed else ""),
        Condition("Blocked", holds=False, reason=word(state.value)),
    )


def _of_trouble(trouble: Obstacle, sentence: str) -> Sequence[Condition]:
    reason = word(trouble.cause)
    return (
        Condition("Admitted", holds=False, reason=reason, message=sentence),
        Condition("Running", holds=False, reason=reason),
        Condition("Succeeded", holds=False, reason=reason),
        Condition("Failed", trouble.final, reason, sentence if trouble.final else ""),
        Condition("Blocked", not trouble.final, reason, "" if trouble.final else sentence),
    )


def conditions_of(found: Sequence[Condition], said: LastStatus, now: float) -> list[Object]:
    """Conditions as objects have them, each since it became so."""
    before = {one.get("type"): one for one in said.status.get("conditions") or ()}
    conditions = []
    for condition in found:
        status = "True" if condition.holds else "False"
        old = before.get(condition.type) or {}
        kept = old.get("status") == status and old.get("lastTransitionTime")
        conditions.append(
            {
                "type": condition.type,
                "status": status,
                "reason": condition.reason or "Unknown",
                "message": condition.message[:_MESSAGE],
                "lastTransitionTime": kept or stamp(now),
                "observedGeneration": said.generation,
            }
        )
    return conditions
