"""Requests for new jobs, as every driver takes them, and the checks that come before all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.errors import Conflict, Forbidden, InvalidSpec
from roost.jobfile import JobFile
from roost.store.rows import JobRow, QueueRow, RestorePointRow

_MAX_SECRET_LETTERS = 1 << 20
_MERGED = ("env", "labels")
_SAME = {
    "command": ("run",),
    "run": ("command",),
    "nodes": ("workers",),
    "elastic": ("workers",),
}
#: Queues that a refusal names at most.
_MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """A job that a user hands in; ``key`` tells a repeated request from a second job."""

    job: JobFile
    user: str
    unix: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    payload: bytes | None = field(default=None, repr=False)
    key: str = ""
    #: The snapshot that it begins from, as JOB@NAME.
    clone_of: str = ""
    #: The user who hands it in for its user; empty: that user.
    actor: str = ""
    #: The job that it runs once more.
    rerun_of: str = ""


@dataclass(frozen=True, slots=True)
class CloneRequest:
    """A job to be made from a snapshot: its user, and what comes on top of the job file."""

    point: RestorePointRow
    user: str
    unix: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A job to be run again as a new one: its user, who asks, and changes to its job file."""

    row: JobRow
    user: str
    actor: str
    unix: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: str = ""

    def file(self) -> JobFile:
        """The job file of the new job; raises JobFileErrors, or Conflict where there is none."""
        if not self.row.document:
            raise Conflict(
                f"job {self.row.id} was not made from a job file: submit what it was made from"
            )
        document = {**self.row.document, "name": self.row.name}
        if "name" in self.changes:  # what was learned of the application still holds
            document.setdefault("application", self.row.name)
        changed = changed_document(document, self.changes)
        return JobFile.from_document(changed, f"rerun of {self.row.id}")


def changed_document(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A job file with changes: env and labels are added to, others replaced, null takes away.

    What says the same in other words goes: a command replaces a script, gpus those of resources.
    """
    changed = dict(document)
    for field_, others in _SAME.items():
        if changes.get(field_) is not None:
            for other in others:
                changed.pop(other, None)
    if changes.get("gpus") is not None and isinstance(changed.get("resources"), Mapping):
        changed["resources"] = {k: v for k, v in changed["resources"].items() if k != "gpu"}
    for field_, value in changes.items():
        merged = field_ in _MERGED and isinstance(value, Mapping)
        changed[field_] = {**changed.get(field_, {}), **value} if merged else value
    return changed


def check_submission(request: JobSubmission, queues: Iterable[QueueRow]) -> None:
    """Refuse a queue that is not the user's, and secrets that are not those of the job file.

    A queue that does not exist and one of others look the same: Forbidden. Raises InvalidSpec for
    secrets.
    """
    open_to = sorted(queue.id for queue in queues if queue.admits(request.user))
    if request.job.queue not in open_to:
        named = f"one of: {', '.join(open_to[:_MAX_NAMED])}"
        raise Forbidden(
            f"you may not submit to the queue {request.job.queue!r}",
            hint=named if open_to else "ask an administrator",
        )
    check_secrets(request.job, request.secrets)
    if missing := sorted(set(request.job.secrets) - set(request.secrets)):
        raise InvalidSpec(f"secrets: {missing[0]} has no value")


def check_secrets(job: JobFile, secrets: Mapping[str, str]) -> None:
    """Refuse too much, and what the job does not ask for."""
    if sum(map(len, secrets.values())) > _MAX_SECRET_LETTERS:
        raise InvalidSpec(f"secrets: more than {_MAX_SECRET_LETTERS} characters")
    if extra := sorted(set(secrets) - set(job.secrets)):
        raise InvalidSpec(f"secrets: {extra[0]} is not among the job's secrets")
