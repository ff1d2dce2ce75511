"""What a new job takes over from an earlier one: its job file, its function, and its secrets.

Functions are kept as long as their jobs are listed. Secrets are kept until their job is over, and
handed over to its own user only: an administrator who changes the command could read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from roost.api.jobs import FUNCTION_MODULE
from roost.core import JobId
from roost.errors import Conflict, InvalidSpec
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission, RerunRequest

if TYPE_CHECKING:
    from roost.live.driver import Driver


class RerunService:
    """Makes submissions of jobs that are to be run again."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def submission(self, rerun: RerunRequest) -> JobSubmission:
        """The new job as it is handed in; raises Conflict where its function was not kept.

        A clone begins from the same snapshot again.
        """
        job = JobId(rerun.row.id)
        file = await asyncio.to_thread(rerun.file)
        if job in self._driver.records and file.checkpoint is not None and file.checkpoint.path:
            raise Conflict(
                f"job {job} is not over, and two jobs must not save to one folder "
                f"({file.checkpoint.path}): wait until it is over, or cancel it"
            )
        own = rerun.actor == rerun.user
        return JobSubmission(
            file,
            rerun.user,
            rerun.unix,
            await self.secrets(job, file, rerun.secrets, own=own),
            await self._function(job, file),
            rerun.key,
            str(rerun.row.view.get("clone_of") or ""),
            rerun.actor,
            rerun.row.id,
        )

    async def secrets(
        self, job: JobId, file: JobFile, given: Mapping[str, str], *, own: bool
    ) -> dict[str, str]:
        """The given secrets, and those of the original, if it has them and its user asks.

        Raises InvalidSpec where one is missing.
        """
        kept: dict[str, str] = {}
        if own and job in self._driver.records:
            kept = await asyncio.to_thread(self._driver.private_files.secrets, job)
        found = {name: kept[name] for name in file.secrets if name in kept} | dict(given)
        if missing := [name for name in file.secrets if name not in found]:
            why = "it is over" if own else "it is another user's"
            raise InvalidSpec(
                f"secrets: {missing[0]} has no value, and that of job {job} cannot be had: {why}; "
                f"set it in your environment and say --secret {missing[0]}"
            )
        return found

    async def _function(self, job: JobId, file: JobFile) -> bytes | None:
        if FUNCTION_MODULE not in file.command:
            return None
        payload = await asyncio.to_thread(self._driver.private_files.payload, job)
        if payload is None:
            raise Conflict(f"the function of job {job} was not kept: submit it again from Python")
        return payload
