"""The way of a new job into the journal: checks, an id of its own, and one answer per request.

A request with an idempotency key is answered with the job that it made before, if there is one.
What the store has to be asked for that, it is asked for many requests at once: for all that came
while the last question was answered. Under load a submission costs a part of a thread's turn.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from roost.core import JobId, JobSpec, Submitted
from roost.errors import Conflict, InvalidSpec, Retryable, RoostError
from roost.jobfile.program import Program
from roost.jobs import explain as explaining
from roost.jobs.health import IntakeHealth
from roost.jobs.profiles import too_small
from roost.jobs.record import JobRecord
from roost.jobs.requests import JobSubmission, check_submission
from roost.live.intake import Command
from roost.live.queue_rows import QueueRows
from roost.live.snapshots import StoreQuery
from roost.store.jobs import JobTable, RequestKey, RequestTrace
from roost.store.rows import JobRow

if TYPE_CHECKING:
    from roost.live.driver import Driver
    from roost.live.user_bounds import BoundService

_CHANCE = random.Random()  # noqa: S311 - ids are no secrets; its own, for others may be seeded
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
_ID_LETTERS = 5
#: When a submission may be tried again that came while no run could begin, in seconds.
_AGAIN_S = 5.0
#: Requests that the store is asked for at once, at most: other readers want a turn, too.
_AT_ONCE = 256


class SubmissionService:
    """Takes jobs of users, each once."""

    def __init__(
        self,
        driver: Driver,
        bounds: BoundService,
        queues: QueueRows,
        ask: StoreQuery,
        health: Callable[[], IntakeHealth],
    ) -> None:
        self._driver, self._bounds, self._queues, self._health = driver, bounds, queues, health
        self._folders = bounds.folders
        self._requests = _RequestReader(driver.store.jobs, ask)
        #: Requests with a key that have no answer yet.
        self._under_way: dict[tuple[str, str], asyncio.Future[JobRow]] = {}

    async def submit(self, request: JobSubmission) -> tuple[JobRow, bool]:
        """Accept a job; the row, and whether it is new: a repeated request finds the first one."""
        if not request.key:
            return await self._submit(request), True
        known = (request.user, request.key)
        under_way = self._under_way.get(known)
        if under_way is not None:
            return _same(await asyncio.shield(under_way), request), False
        answer = self._under_way[known] = asyncio.get_running_loop().create_future()
        try:
            row, new = await self._submit_once(request)
            answer.set_result(row)
        except BaseException as error:
            cut_off = Retryable("the first of these requests was cut off; try again", after=1.0)
            answer.set_exception(error if isinstance(error, RoostError) else cut_off)
            answer.exception()  # mark it as seen: asyncio warns of errors that were not
            raise
        finally:
            del self._under_way[known]
        return row, new

    def refusal(self, spec: JobSpec, program: Program) -> str:
        """Why the engine, or what is known of the application, speaks against a job."""
        return self._driver.engine.refuses(spec, program) or too_small(self._driver.core, spec)

    async def _submit_once(self, request: JobSubmission) -> tuple[JobRow, bool]:
        """Submit a job, unless the request made one before."""
        drawn = _drawn(request.job.name)
        known = await self._requests.look_up(RequestKey(request.user, request.key, drawn))
        if known.row is not None:
            return _same(known.row, request), False
        if known.spent:
            raise Conflict(
                f"this request made job {known.spent}, which was deleted; "
                "for a new job, send another Idempotency-Key"
            )
        return await self._submit(request, None if known.taken else drawn), True

    async def _submit(self, request: JobSubmission, free: JobId | None = None) -> JobRow:
        """Submit a new job, under an id that is free, if one is known."""
        self._check_room()
        self._bounds.check_job(request.user)
        check_submission(request, await self._queues.all())
        file = request.job
        spec, program = file.spec(request.user), file.program()  # refuses what cannot be run
        self._check_possible(file.name, spec, program)
        job_id = free or await self._new_id(file.name)
        document = file.document()
        record = JobRecord(job_id, file, request.user, request.unix, request.key, document)
        record.clone_of, record.rerun_of = request.clone_of, request.rerun_of
        wanted = {name: request.secrets[name] for name in file.secrets}
        private_files = self._driver.private_files
        if wanted or request.payload is not None:
            await asyncio.to_thread(private_files.keep, job_id, wanted, request.payload)
        try:
            if program.sent:
                await asyncio.to_thread(self._folders.hold, request.user, program.sent, job_id)
            answer = asyncio.get_running_loop().create_future()
            batch = await self._driver.ask(
                Command(
                    lambda now: Submitted(now, job_id, spec),
                    request.actor or request.user,
                    answer,
                    record,
                    {"document": document, "request": request.key, "unix": request.unix},
                )
            )
        except RoostError:  # where it was cut off, the outcome is unknown, and they may be needed
            if job_id not in self._driver.core.jobs:
                private_files.drop(job_id)
                await asyncio.to_thread(self._folders.release, request.user, job_id)
            raise
        sizes = len(json.dumps(document)), len(request.payload or b"")
        self._bounds.accepted(job_id, request.user, *sizes)
        return batch.rows[job_id]

    def _check_room(self) -> None:
        """Refuse new work while no run can begin: it would only be more to keep."""
        health = self._health()
        if not health.ok:
            raise health.refusal(_AGAIN_S)

    def _check_possible(self, name: str, spec: JobSpec, program: Program) -> None:
        """Refuse what can never run here."""
        never = explaining.impossible(self._driver.core, spec, self._driver.placer)
        if never is not None:
            raise InvalidSpec(f"job {name!r} can never run here: {never}")
        if refused := self.refusal(spec, program):
            raise InvalidSpec(f"job {name!r} is refused: {refused}")

    async def _new_id(self, name: str) -> JobId:
        while True:
            drawn = _drawn(name)
            known = await self._requests.look_up(RequestKey("", "", drawn))
            if not known.taken and drawn not in self._driver.core.jobs:
                return drawn


class _RequestReader:
    """Looks requests up in the store: those that come while it is asked, all at once."""

    def __init__(self, jobs: JobTable, ask: StoreQuery) -> None:
        self._jobs, self._ask = jobs, ask
        self._waiting: list[tuple[RequestKey, asyncio.Future[RequestTrace]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def look_up(self, asked: RequestKey) -> RequestTrace:
        """What the store knows of a request."""
        answer: asyncio.Future[RequestTrace] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="requests")
        return await answer

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
                await self._ask_for(some)
        finally:
            self._asking = None

    async def _ask_for(self, some: list[tuple[RequestKey, asyncio.Future[RequestTrace]]]) -> None:
        try:
            found = await self._ask(self._jobs.known_requests, [asked for asked, _ in some])
        except Exception as error:  # noqa: BLE001 - whatever it is, each of them is told
            for _, answer in some:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), known in zip(some, found, strict=True):
            if not answer.done():  # else the caller has gone
                answer.set_result(known)


def _drawn(name: str) -> JobId:
    """An id by chance. The system is not asked for it: that takes time, and it is no secret."""
    number, letters = _CHANCE.randrange(len(_LETTERS) ** _ID_LETTERS), ""
    for _ in range(_ID_LETTERS):
        number, letter = divmod(number, len(_LETTERS))
        letters += _LETTERS[letter]
    return JobId(f"{name}-{letters}")


def _same(row: JobRow, request: JobSubmission) -> JobRow:
    """The job of an earlier request with the same key, if both ask for the same.

    Pickled functions are not compared: another process may pickle the same one in another way.
    """
    begins = str(row.view.get("clone_of") or "")
    if dict(row.document) != request.job.document() or begins != request.clone_of:
        raise Conflict(
            f"the same Idempotency-Key made job {row.id}, of another job file; "
            "give each job a key of its own"
        )
    return row
