"""The seam between the store and a database: transactions on SQL that both kinds understand.

A database has one connection that writes, behind a lock, and a few that read. What it raises is
translated into the errors of ``roost.store.errors``; SQL is for others. When the outcome of a write
is unknown, the next one begins on a new connection. When that was a write to the journal, nothing
more is written until the database is reopened: the failed write may be there after all, and only a
fresh read tells which entry comes next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, ClassVar

from roost.errors import Fatal, RoostError
from roost.store.errors import StoreBroken, StoreBusy, StoreFull, StoreLost
from roost.store.reader_pool import ReaderPool

#: How long a transaction waits for another one, in seconds.
PATIENCE_S = 5.0
#: How many connections for reading there are at most.
READERS = 8

Row = tuple[Any, ...]
Parameters = Sequence[Any]


class Session:
    """One transaction: statements with ``?`` for their parameters."""

    def __init__(self, connection: Any, database: Database) -> None:
        self._connection, self._database = connection, database

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; how many rows it touched."""
        cursor = self._connection.execute(self._database.dialect(sql), parameters)
        return int(cursor.rowcount)

    def run_many(self, sql: str, rows: Sequence[Parameters]) -> None:
        """Run a statement for each row of parameters."""
        if rows:
            self._connection.cursor().executemany(self._database.dialect(sql), rows)

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Everything that a query finds; keep it bounded."""
        found: list[Row] = self._connection.execute(
            self._database.dialect(sql), parameters
        ).fetchall()
        return found

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row that a query finds."""
        rows = self.all(sql, parameters)
        return rows[0] if rows else None


class Database(ABC):
    """A database to keep a store in; ``where`` names it in messages, without secrets."""

    #: The statements that begin a transaction for reading and one for writing.
    begin_reading: ClassVar[str]
    begin_writing: ClassVar[str]
    #: What it is called in lists.
    kind: ClassVar[str]
    #: Words of this database's own: ``{key}`` a column of numbers as key, ``{text}`` by bytes.
    words: ClassVar[dict[str, str]]
    #: The advice to people when the database is older than it was.
    older_advice: ClassVar[str]

    def __init__(self, where: str) -> None:
        self.where = where
        self.claimed = False
        self.patience_s = PATIENCE_S
        #: The last number of the journal that a server is known to have answered for.
        self.acknowledged = 0
        self._readers = ReaderPool(self._connect, READERS, PATIENCE_S)
        # One writer at a time: SQLite has one write lock anyway, and with PostgreSQL the session
        # that writes is also the one that holds the server's lock.
        self._write_lock = Lock()
        self._writer: Any = None
        #: The connection that writes is to be replaced before its next use.
        self._stale = False
        #: The error of a write to the journal with an unknown outcome, until ``reopen``.
        self._unsure = ""
        self._closed = False

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that sees one committed state throughout and changes nothing."""
        connection = self._ready_reader()
        try:
            with self._translated():
                yield Session(connection, self)
                connection.execute("COMMIT")
        except BaseException:
            self._readers.discard(connection)
            raise
        self._readers.give(connection)

    @contextmanager
    def writing(
        self, patience_s: float | None = None, *, journal: bool = False
    ) -> Iterator[Session]:
        """A transaction that is committed at the end, or undone if anything is raised.

        Waits at most ``patience_s`` for other writers of this process, and again for those of
        others. After a failed commit to the ``journal``, and after a connection lost in the middle
        of it, only ``reopen`` helps.
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        if not self._write_lock.acquire(timeout=patience_s):
            raise StoreBusy(f"{self.where}: another write takes long; try again")
        try:
            self._check_open()
            # Under the lock, because the write before this one may have just failed.
            if self._unsure:
                raise StoreLost(f"{self.where}: reopen before writing again: {self._unsure}")
            if self._stale or self._is_suspect():
                self._reconnect()
            yield from self._transaction(patience_s, journal=journal)
        finally:
            self._write_lock.release()

    def reopen(self) -> None:
        """Drop all connections and connect again; the lock stays ours, or Fenced is raised."""
        if not self._write_lock.acquire(timeout=2 * PATIENCE_S):
            raise StoreBusy(f"{self.where}: a write that hangs keeps it from being reopened")
        try:
            self._check_open()
            # Set before reconnecting: if that fails, writing stays forbidden.
            self._unsure = self._unsure or "it is being reopened"
            self._reconnect()
            self._unsure = ""
        finally:
            self._write_lock.release()

    def close(self) -> None:
        """Let go of the database; nothing works afterwards."""
        with self._write_lock:
            if not self._closed:
                self.release()
                self._closed = True
                self._drop()

    @abstractmethod
    def claim(self) -> None:
        """Become the one server of this database; raises Conflict that names the other.

        Nothing is written to the database.
        """

    @abstractmethod
    def release(self) -> None:
        """Be the server no more."""

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Called before the server's first write: what was found shall be there for good."""

    @abstractmethod
    def dialect(self, sql: str) -> str:
        """A statement as this database wants it."""

    @abstractmethod
    def tables(self, session: Session) -> set[str]:
        """The names of the tables there are."""

    def wait_for_migrator(self, session: Session) -> None:  # noqa: B027 - writers are alone
        """Called in a transaction that changes the schema: no other may do so meanwhile."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Called before the first write, once it is known that this may be written to."""

    def committed(self, seq: int) -> None:  # noqa: B027 - most have nothing to do
        """Called after a commit that ended the journal at ``seq``; raises StoreBroken."""

    def rebuild(self) -> None:  # noqa: B027 - most have nothing to do
        """Called by its only user after the schema has changed."""

    def size_bytes(self) -> int | None:
        """How much space it takes; None: it cannot tell."""
        return None

    def free_bytes(self) -> int | None:
        """How much room is left on its disk; None: that is elsewhere."""
        return None

    def shrink(self) -> bool:
        """Give some space back to the disk; whether there may be more."""
        return False

    def backup(self, label: str) -> None:  # noqa: B027 - most leave that to their keepers
        """Keep a copy before the database is changed for good."""

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection, in autocommit mode."""

    @abstractmethod
    def _translate(self, error: Exception) -> RoostError | None:
        """Translate an error of the database; None if it is not one."""

    def _begin(self, connection: Any, patience_s: float) -> None:
        """Start a transaction that writes."""
        del patience_s
        connection.execute(self.begin_writing)

    def _commit(self, connection: Any) -> None:
        """End a transaction that writes, for good."""
        connection.execute("COMMIT")

    def _is_suspect(self) -> bool:
        """Whether what connections remember may be other than what is there."""
        return False

    def _after_reopening(self, connection: Any) -> None:  # noqa: B027 - most have nothing to do
        """Called with a new connection for writing."""

    def _transaction(self, patience_s: float, *, journal: bool) -> Iterator[Session]:
        committing = False
        try:
            with self._translated():
                if self._writer is None:
                    self._writer = self._connect()
                self._begin(self._writer, patience_s)
                yield Session(self._writer, self)
                committing = True
                self._commit(self._writer)
        except BaseException as error:
            undone = self._undo()
            # A failed COMMIT may have happened, and so may anything on a connection that is lost.
            hopeless = isinstance(error, StoreBroken | StoreLost | StoreFull)
            if committing or hopeless or not undone:
                self._stale = True
                if journal:
                    self._unsure = " ".join(str(error).split()) or type(error).__name__
            raise

    def _undo(self) -> bool:
        """Roll back; whether that is certain."""
        if self._writer is None:
            return True
        try:
            if self._in_transaction(self._writer):
                self._writer.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - the first error counts
            return False
        return True

    @abstractmethod
    def _in_transaction(self, connection: Any) -> bool: ...

    def _ready_reader(self) -> Any:
        """A reader with a transaction begun; one that went stale is replaced once."""
        while True:
            self._check_open()
            with self._translated():
                connection, used = self._readers.take()
            try:
                with self._translated():
                    connection.execute(self.begin_reading)
            except BaseException as error:
                self._readers.discard(connection)
                if used and isinstance(error, StoreLost):
                    continue
                raise
            return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            known = self._translate(error)
            if known is None:
                raise
            raise known from error

    def _reconnect(self) -> None:
        self._stale = True
        self._drop()
        with self._translated():
            self._writer = self._connect()
            self._after_reopening(self._writer)
        self._stale = False

    def _drop(self) -> None:
        self._readers.drain()
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
            self._writer = None

    def _check_open(self) -> None:
        if self._closed:
            raise Fatal(f"{self.where} is closed")
