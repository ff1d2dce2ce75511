"""Statuses of Jobs on their way to the API server: as few patches as will do, never two at once.

A change of state is written at once, mere progress every two seconds at most. Each patch is the
difference to what the object says, and carries its uid: no patch meets another object of the same
name, and nothing that others write is overwritten. It carries the version, too, to which it is the
difference: a patch that comes late, of a leader that leads no longer, changes no verdict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from roost.core import JobId
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable, RoostError
from roost.failpoints import hit
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.pods import pause
from roost.kubernetes.operator.status import difference
from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: How often mere progress of a job is written, in seconds.
PROGRESS_S = 2.0


class WantedStatus(NamedTuple):
    """An object, and the status that it should have."""

    object: Object
    status: Object


class _Written(NamedTuple):
    """A status as it is known to be, of which object, and in which version of it."""

    uid: str
    version: int
    status: Object


class JobStatusWriter:
    """Writes statuses. ``wanted`` says what a job's should be; None: there is nothing to write."""

    def __init__(
        self, context: OperatorContext, wanted: Callable[[JobId], WantedStatus | None]
    ) -> None:
        self._context, self._wanted = context, wanted
        #: What is to be written, and what was written last.
        self._open: set[JobId] = set()
        self._written: dict[JobId, _Written] = {}
        self._at: dict[JobId, float] = {}
        self._tasks: dict[JobId, asyncio.Task[None] | None] = {}

    def mark(self, job: JobId) -> None:
        """Something is to be said about a job."""
        self._open.add(job)
        if job not in self._tasks:
            self._tasks[job] = self._context.spawn(self._write(job), f"the status of {job}")

    def is_told(self, job: JobId) -> bool:
        """Whether all that was marked is written."""
        return job not in self._open and job not in self._tasks

    def forget(self, job: JobId) -> None:
        """A job is no more."""
        self._open.discard(job)
        self._written.pop(job, None)
        self._at.pop(job, None)

    def said(self, job: JobId, found: Object) -> Object:
        """What an object says of itself: what was written last, or what others made of it."""
        return self._latest(job, found).status

    def _latest(self, job: JobId, found: Object) -> _Written:
        came, written = _as_found(found), self._written.get(job)
        if written is None or written.uid != came.uid or written.version < came.version:
            return came
        return written

    async def _write(self, job: JobId) -> None:
        tried = 0
        try:
            while job in self._open:
                self._open.discard(job)
                try:
                    await self._once(job)
                    tried = 0
                except Deposed:
                    raise
                except Retryable as error:
                    self._open.add(job)
                    await pause(error, tried)
                    tried += 1
                except NotFound:
                    self.forget(job)
                except Conflict:  # it was written by another, or another of that name is there
                    await self._look(job)
                except (InvalidSpec, RoostError) as error:
                    _log.warning("the status of %s cannot be written: %s", job, error)
        finally:
            self._tasks.pop(job, None)
            self._context.requeue(job)

    async def _look(self, job: JobId) -> None:
        """See what an object says in truth, and say the rest again."""
        wanted = self._wanted(job)
        if wanted is None:
            return
        meta = wanted.object["metadata"]
        try:
            found = await self._context.api.get(JOBS, meta["name"], meta["namespace"])
        except Retryable as error:
            await pause(error, 0)
        except NotFound:
            self.forget(job)
            return
        else:
            if found["metadata"]["uid"] != meta["uid"]:
                self.forget(job)
                return
            self._written[job] = _as_found(found)
        self._open.add(job)

    async def _once(self, job: JobId) -> None:
        wanted = self._wanted(job)
        if wanted is None:
            return
        before = self._latest(job, wanted.object)
        if before.status.get("state") == wanted.status.get("state"):
            left = self._at.get(job, 0.0) + PROGRESS_S - self._context.now()
            if left > 0 and _is_progress(difference(before.status, wanted.status)):
                await asyncio.sleep(left)
                wanted = self._wanted(job) or wanted
                before = self._latest(job, wanted.object)
        patch = difference(before.status, wanted.status)
        if not patch:
            return
        meta = wanted.object["metadata"]
        body = {
            "metadata": {"uid": meta["uid"], "resourceVersion": str(before.version)},
            "status": patch,
        }
        hit("status.before-write")
        found = await self._context.binder.tell(
            lambda: self._context.api.patch(
                JOBS, meta["name"], body, meta["namespace"], sub="status"
            )
        )
        hit("status.after-write")
        self._written[job] = _as_found(found)._replace(status=wanted.status)
        self._at[job] = self._context.now()


def _as_found(found: Object) -> _Written:
    meta = found["metadata"]
    return _Written(meta["uid"], int(meta["resourceVersion"]), found.get("status") or {})


def _is_progress(patch: Object) -> bool:
    """Whether a patch tells nothing but how far a job is."""
    if set(patch) - {"progress", "view"}:
        return False
    told = {"progress", "saved", "step", "loss", "step_s", "samples_per_s", "busy", "rev", "noise"}
    return not set(patch.get("view") or {}) - told
