"""A store: the journal, the views that follow from it, and the accounts beside it.

Calls block. Any thread may call; appends come from one thread, because each follows the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from roost.errors import InvalidSpec, RoostError, unknown
from roost.store import events
from roost.store.accounts import Accounts
from roost.store.database import Database
from roost.store.events import EventLog
from roost.store.jobs import JobTable
from roost.store.journal import Journal
from roost.store.migrations import migrate
from roost.store.restore_points import RestorePoints
from roost.store.rows import EventRow

_SCHEMES = ("sqlite", "postgresql", "postgres")


class Store:
    """Everything that outlives the server, in one database; made by ``open_store``.

    ``journal`` is the truth. ``jobs`` and ``events`` are lists that follow from it; the journal
    writes them. ``accounts`` and ``restore_points`` stand beside it, and write by its leave.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self.journal = Journal(database)
        self.jobs = JobTable(database)
        self.events = EventLog(database)
        self.accounts = Accounts(database, self.journal, clock)
        self.restore_points = RestorePoints(database, self.journal, clock)

    @property
    def where(self) -> str:
        """The database, as messages name it."""
        return self._database.where

    def note(self, line: EventRow) -> EventRow:
        """Add a line to the event log that follows from no entry of the journal."""
        with self._database.writing() as session:
            self.journal.fence(session)
            return events.note(session, line)

    @property
    def kind(self) -> str:
        """What keeps it: ``sqlite`` or ``postgresql``."""
        return self._database.kind

    def size_bytes(self) -> int | None:
        """How much space the database takes, where it can tell."""
        return self._database.size_bytes()

    def free_bytes(self) -> int | None:
        """How much room is left where the database is, if that is on this machine."""
        return self._database.free_bytes()

    def shrink(self) -> bool:
        """Give some free space back to the disk; whether there may be more."""
        return self._database.shrink()

    def close(self) -> None:
        """Let go of the database, and of being its server."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(url: str, clock: Callable[[], float] = time.time) -> Store:
    """Open ``sqlite:///path/to.db`` or ``postgresql://...``, with the newest schema.

    Raises InvalidSpec for a URL that names no database, Fatal where a newer Roost wrote it.
    """
    database = _database(url)
    try:
        migrate(database)
    except BaseException:
        with suppress(RoostError):
            database.close()
        raise
    return Store(database, clock)


def _database(url: str) -> Database:
    scheme, colon, rest = url.partition("://")
    if not colon or "\0" in url:
        raise InvalidSpec("a store's URL is sqlite:///path/to.db or postgresql://host/name")
    if scheme == "sqlite":
        from roost.store.sqlite import SqliteDatabase  # noqa: PLC0415 - only what is used

        return SqliteDatabase(_path(rest))
    if scheme in _SCHEMES:
        from roost.store.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        return PostgresDatabase(url)
    raise InvalidSpec(str(unknown("kind of store", scheme, _SCHEMES)))


def _path(rest: str) -> Path:
    found = urlsplit(f"//{rest}")
    path = Path(unquote(found.path))
    if found.netloc or found.query or found.fragment or path.name in ("", ":memory:"):
        raise InvalidSpec(f"sqlite://{rest}: give an absolute path, as in sqlite:///var/roost.db")
    return path
