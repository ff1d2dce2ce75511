"""Actions become orders, which the engine gets one after the other.

Actions come here only when the journal has what led to them. They are carried out also while the
journal cannot be written: nothing here needs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from roost.core import Action, JobId, Launch, Resume, Stop
from roost.engines import Ended, Engine, Report, RunOrder, SentFolder
from roost.failpoints import hit
from roost.jobs.clock import WallClock
from roost.jobs.record import JobRecord
from roost.live.private_files import PrivateFiles
from roost.live.sent_folders import SentFolders
from roost.live.snapshot_files import SnapshotFiles

_log = logging.getLogger(__name__)

#: How long to wait when a job's files are out of reach, in seconds.
_PAUSE_S = 0.5


class Effects:
    """Gives the engine its orders, one after the other."""

    def __init__(
        self,
        engine: Engine,
        private_files: PrivateFiles,
        snapshot_files: SnapshotFiles,
        clock: WallClock,
        report: Callable[[Report], None],
    ) -> None:
        self._engine, self._private_files, self._files = engine, private_files, snapshot_files
        self._folders = SentFolders(private_files.home)
        self._clock, self._report = clock, report
        self._actions: asyncio.Queue[tuple[Action, JobRecord | None]] = asyncio.Queue()
        #: The Unix accounts of users as they are now; None: all share the server's.
        self.accounts: dict[str, str] | None = None

    @property
    def idle(self) -> bool:
        """Whether all orders were given."""
        return self._actions.empty()

    def put(self, action: Action, records: Mapping[JobId, JobRecord]) -> None:
        """Let an action be carried out."""
        self._actions.put_nowait((action, records.get(action.run.job)))

    async def run(self) -> None:
        """Give orders for ever."""
        while True:
            action, record = await self._actions.get()
            hit("effect.before-perform")
            try:
                await self._engine.perform(await self._built(action, record))
            except Exception as error:  # noqa: BLE001 - the loop goes on, whatever it is
                _log.exception("%s was not carried out", action)
                if isinstance(action, Launch | Resume):
                    why = f"{type(error).__name__}: {error}"
                    self._report(Ended(self._clock.now(), action.run, (), "never-started", why))
            hit("effect.after-perform")

    async def _built(self, action: Action, record: JobRecord | None) -> RunOrder:
        while True:
            try:
                return await asyncio.to_thread(self.order, action, record)
            except OSError as error:
                _log.warning("%s has to wait: %s", action, error)
                await asyncio.sleep(_PAUSE_S)

    def order(self, action: Action, record: JobRecord | None) -> RunOrder:
        """An action with all that an engine needs for it; reads the job's files."""
        if record is None or isinstance(action, Stop):
            return RunOrder(action)
        unix = record.unix
        if self.accounts is not None:
            unix = self.accounts.get(record.user, record.unix)
        return RunOrder(
            action,
            record.program,
            self._private_files.secrets(action.run.job),
            record.user,
            unix,
            self._private_files.payload(action.run.job),
            self._restore(action, record),
            self._sent(action, record),
        )

    def _sent(self, action: Action, record: JobRecord) -> SentFolder | None:
        """The folder that every attempt begins with."""
        name = record.program.sent
        if not name or not isinstance(action, Launch):
            return None
        return self._folders.place(record.user, name)

    def _restore(self, action: Action, record: JobRecord) -> Path | None:
        """The files that a clone begins with; once it has begun, its own folder has them."""
        if not isinstance(action, Launch) or not record.clone_of or record.restored:
            return None
        return self._files.files(record.clone_of)
