"""Snapshots of jobs: taking them, deleting them, and jobs that begin from one.

A snapshot is what a job had saved, with its job file: whatever a new job needs to go on from there.
It stays until it is deleted, also when its job is. Copying may last: the answer comes later, to the
same request with the same key.

A clone gets the pickled function of its original, and its secrets as long as the original has them
(``reruns``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from roost.api.jobs import FUNCTION_MODULE
from roost.api.snapshots import reference
from roost.core import JobId, RunId
from roost.engines import SnapshotInfo
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable, RoostError
from roost.failpoints import hit
from roost.jobfile import JobFile
from roost.jobs.amounts import shown_bytes
from roost.jobs.changes import seconds
from roost.jobs.requests import CloneRequest, changed_document
from roost.live.snapshot_files import SnapshotFiles, check_name, trouble
from roost.store.rows import JobRow, RestorePointRow

if TYPE_CHECKING:
    from roost.live.driver import Driver

T = TypeVar("T")

#: How long one answer waits for a snapshot, how long a job has to save itself, and for how long
#: the outcome is remembered for the same request.
WAIT_S = 10.0
SAVE_S = 120.0
_REMEMBER_S = 120.0
_AGAIN_S = 5.0


class StoreQuery(Protocol):
    """Asks the store in a thread."""

    def __call__(self, call: Callable[..., T], *given: Any, **named: Any) -> Awaitable[T]:
        """What the store answers."""
        ...


@dataclass(slots=True)
class _Taking:
    key: str
    task: asyncio.Task[RestorePointRow]


class SnapshotService:
    """Takes, keeps and hands out the snapshots of a cluster's jobs."""

    def __init__(self, driver: Driver, snapshot_files: SnapshotFiles, ask: StoreQuery) -> None:
        self._driver, self._files, self._ask = driver, snapshot_files, ask
        #: Refuses what takes more space than its user may have.
        self.check_room: Callable[[str], None] = lambda _user: None
        self._taking: dict[str, _Taking] = {}
        #: Held while a clone is submitted or a snapshot is deleted.
        self.lock = asyncio.Lock()

    async def sweep(self) -> None:
        """Remove what a server that was killed left behind."""
        await asyncio.to_thread(self._files.sweep, self._is_known)

    async def close(self) -> None:
        """Give up what is under way; the next start removes what there is of it."""
        for taking in self._taking.values():
            taking.task.cancel()
            with suppress(asyncio.CancelledError, RoostError, OSError):
                await taking.task
        self._taking.clear()

    async def take(
        self, row: JobRow, name: str, actor: str, key: str = ""
    ) -> RestorePointRow | None:
        """Take a snapshot of a job; None while it is under way: ask again with the same key.

        Raises Conflict where the job has one of that name, or has saved nothing yet.
        """
        ref = reference(row.id, check_name(name))
        taking = self._taking.get(ref)
        if taking is None or (taking.task.done() and (not key or taking.key != key)):
            if self.is_taking(row.id):
                raise Conflict(
                    f"a snapshot of job {row.id} is being taken already; try again later"
                )
            task = asyncio.create_task(self._take(row, name, actor), name=f"snapshot {ref}")
            taking = self._taking[ref] = _Taking(key, task)
            task.add_done_callback(lambda _: self._forget_later(ref, taking))
        elif not key or taking.key != key:
            raise Conflict(f"snapshot {ref} is being taken already")
        done, _ = await asyncio.wait([taking.task], timeout=WAIT_S)
        if taking.task.cancelled():
            raise Retryable(f"snapshot {ref} was not taken: the server stops", after=_AGAIN_S)
        return taking.task.result() if done else None

    def is_taking(self, job: str) -> bool:
        """Whether a snapshot of a job is under way."""
        return any(ref.startswith(f"{job}@") for ref in self._under_way())

    async def delete(self, point: RestorePointRow, actor: str) -> None:
        """Forget a snapshot with its files; raises Conflict while a clone has yet to begin."""
        ref = reference(point.job, point.name)
        async with self.lock:
            for job, record in self._driver.records.items():
                if record.clone_of == ref and not record.restored:
                    raise Conflict(f"job {job} is to start from snapshot {ref}: cancel it first")
            await self._ask(
                self._driver.store.restore_points.delete, point.job, point.name, actor=actor
            )
            hit("keep.before-removal")
            await asyncio.to_thread(self._files.drop, ref)

    async def check(self, ref: str) -> None:
        """Raise where no job can begin from a snapshot (any more)."""
        job, _, name = ref.partition("@")
        if await self._ask(self._driver.store.restore_points.get, job, name) is None:
            raise NotFound(f"no snapshot {ref}")
        if not await asyncio.to_thread(self._files.has, ref):
            raise Conflict(f"the files of snapshot {ref} are not in the home of this server")

    async def job_of(self, clone: CloneRequest) -> JobFile:
        """The job file of a clone: its checkpoints have a folder of their own."""
        document = dict(clone.point.document)
        name = document.get("name", JobFile.model_fields["name"].default)
        document.setdefault("application", name)
        if isinstance(document.get("checkpoint"), dict):
            saving = {k: v for k, v in document["checkpoint"].items() if k != "path"}
            document["checkpoint"] = saving or None
        changed = changed_document(document, clone.changes)
        what = f"clone of {reference(clone.point.job, clone.point.name)}"
        file = await asyncio.to_thread(JobFile.from_document, changed, what)
        if file.checkpoint is not None and file.checkpoint.path:
            raise InvalidSpec("checkpoint.path: a clone has a checkpoint folder of its own")
        return file

    async def payload_of(self, point: RestorePointRow) -> bytes | None:
        """The function of a clone; raises Conflict where it was not kept."""
        ref = reference(point.job, point.name)
        payload = await asyncio.to_thread(self._files.payload, ref)
        if payload is None and FUNCTION_MODULE in point.document.get("command", ()):
            raise Conflict(
                f"the function of {ref} was not kept: it was gone when the snapshot was taken"
            )
        return payload

    # -- how it is done ------------------------------------------------------------------------

    async def _take(self, row: JobRow, name: str, actor: str) -> RestorePointRow:
        store, job = self._driver.store, JobId(row.id)
        attempt = self._attempts(row)
        if not attempt:
            raise Conflict(f"job {job} has not run yet: there is nothing to take a snapshot of")
        self.check_room(row.user)
        await self._ask(store.restore_points.check, job, name)
        began = time.monotonic()
        draft = await asyncio.to_thread(self._files.draft, job)
        try:
            copied = await self._driver.engine.snapshot(
                RunId(job, attempt), draft / "files", SAVE_S
            )
            hit("keep.after-copy")
            payload = await asyncio.to_thread(self._driver.private_files.payload, job)
            await asyncio.to_thread(self._files.keep, draft, name, payload)
        except OSError as error:
            await asyncio.to_thread(self._files.discard, draft)
            raise trouble("its files cannot be copied", error) from None
        except RoostError:
            await asyncio.to_thread(self._files.discard, draft)
            raise
        hit("keep.after-files")
        took_s = time.monotonic() - began
        point = replace(self._point(row, name, copied, took_s), function=payload is not None)
        try:
            await self._ask(store.restore_points.add, point, actor=actor, text=_told(point))
        except Conflict:  # any other outcome is unknown; the next start sees
            await asyncio.to_thread(self._files.drop, reference(job, name))
            raise
        hit("keep.after-row")
        return point

    def _point(
        self, row: JobRow, name: str, copied: SnapshotInfo, took_s: float
    ) -> RestorePointRow:
        record = self._driver.records.get(JobId(row.id))
        step = row.view.get("step") if record is None else record.step
        saved = row.view.get("saved") if record is None else record.saved
        done = row.view.get("progress") if record is None else record.progress
        if saved is not None and not copied.fresh:  # it holds what was saved, not what was done
            step = round(step * saved / done) if step is not None and done else None
            done = saved
        return RestorePointRow(
            row.id,
            name,
            row.user,
            row.name,
            self._driver.clock.now(),
            step,
            done,
            copied.files,
            copied.size_bytes,
            copied.fresh,
            took_s,
            document=row.document,
        )

    def _under_way(self) -> list[str]:
        return [ref for ref, taking in self._taking.items() if not taking.task.done()]

    def _attempts(self, row: JobRow) -> int:
        job = self._driver.core.jobs.get(JobId(row.id))
        return int(row.view.get("attempt") or 0) if job is None else job.attempts

    def _is_known(self, job: str, name: str) -> bool:
        try:
            return self._driver.store.restore_points.get(job, name) is not None
        except RoostError:
            return True

    def _forget_later(self, ref: str, taking: _Taking) -> None:
        def forget() -> None:
            if self._taking.get(ref) is taking:
                del self._taking[ref]

        if not taking.task.cancelled():
            taking.task.exception()  # mark it as seen: asyncio warns of errors that were not
        asyncio.get_running_loop().call_later(_REMEMBER_S, forget)


def _told(point: RestorePointRow) -> str:
    fresh = "saved for it" if point.fresh else "of the last checkpoint"
    files = f"{point.files} file{'' if point.files == 1 else 's'}"
    took = seconds(point.took_s)
    return f"{point.name} taken in {took}: {files}, {shown_bytes(point.size_bytes)}, {fresh}"
