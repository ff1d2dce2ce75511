"""A store in PostgreSQL, through psycopg: one server by an advisory lock of its session.

The lock and all writes belong to one session. So a server that holds the lock knows that the
session of the server before it has ended, with everything that was under way there: after a lost
connection, what the journal says is final. Poolers that share sessions between clients break this;
connect directly.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, ClassVar
from uuid import uuid4

from roost.errors import Conflict, Fatal, InvalidSpec, RoostError
from roost.store.database import PATIENCE_S, Database, Session
from roost.store.errors import Fenced, StoreBroken, StoreBusy, StoreFull, StoreLost

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError:
    raise InvalidSpec(
        "PostgreSQL needs the package psycopg: pip install 'roost[postgres]'"
    ) from None

_SERVER, _MIGRATOR = 0x526F6F73, 0x526F6F74
_PAUSE_S = 0.02
#: How long the session of a server that was killed may take to end.
_GRACE_S = 0.5
#: Without these a server that vanished from the network would be waited for without end.
_DEFAULTS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_SETTINGS = (
    f"SET lock_timeout = '{round(PATIENCE_S * 1000)}ms'",
    "SET statement_timeout = '30s'",
    "SET client_min_messages = 'error'",
    "SET default_transaction_read_only = off",
    # Without these the session of a client that vanished would hold the lock for hours.
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    """
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'
    """,
    # Stricter settings are kept.
    """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')
    """,
)
#: The sessions that hold the server's lock of this database and schema.
_HOLDERS = """
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND classid::bigint = %s
    AND objid::bigint = (hashtext(current_schema())::bigint & 4294967295)
    AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
#: The start of an SQLSTATE, and what it means; the longest one counts.
_BUSY = ("40", "53", "55P03", "57014")
_LOST = ("08", "25006", "25P03", "57P")
_FULL = ("53100",)
_BROKEN = ("58", "XX")
_INVALID = ("22",)
_CONFLICT = ("23",)


class PostgresDatabase(Database):
    """One schema of a database."""

    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    begin_writing = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    words: ClassVar[dict[str, str]] = {"key": "BIGINT PRIMARY KEY", "text": 'TEXT COLLATE "C"'}
    older_advice = (
        "put the newer database back, or start the server again to go on without what is missing"
    )

    def __init__(self, url: str) -> None:
        try:
            self._parameters: dict[str, Any] = {**_DEFAULTS, **conninfo_to_dict(url)}
        except psycopg.Error:
            raise InvalidSpec(
                "this PostgreSQL URL cannot be read; write postgresql://user@host:5432/name"
            ) from None
        # How this process recognises its own sessions, and people each other's.
        me = f"roost {uuid4().hex[:8]} process {os.getpid()} on {socket.gethostname()}"
        self._name = self._parameters["application_name"] = me[:60]
        super().__init__(_told(self._parameters))

    def claim(self) -> None:
        """Take the lock in the session that writes."""
        with self._write_lock, self._translated():
            if self._writer is None or self._writer.closed:
                self._writer = self._connect()
            end = time.monotonic() + _GRACE_S
            while not (locked := _try_lock(self._writer)) and time.monotonic() < end:
                time.sleep(_PAUSE_S)
            if not locked:
                row = self._writer.execute(
                    f"SELECT application_name {_HOLDERS}",
                    (_SERVER,),
                ).fetchone()
                holder = f"another server ({row[0]})" if row else "another server"
                raise Conflict(f"{holder} serves {self.where}; stop it first")
            self.claimed = True

    def release(self) -> None:
        """Give the lock back; a session that is lost has none."""
        if self.claimed and self._writer is not None and not self._writer.closed:
            with suppress(psycopg.Error):
                self._writer.execute(
                    "SELECT pg_advisory_unlock(%s, hashtext(current_schema()))", (_SERVER,)
                )
        self.claimed = False

    def wait_for_migrator(self, session: Session) -> None:
        """Wait for the other process that changes the tables."""
        session.all("SELECT pg_advisory_xact_lock(?, hashtext(current_schema()))", (_MIGRATOR,))

    def dialect(self, sql: str) -> str:
        """With psycopg's placeholders."""
        return _dialect(sql)

    def tables(self, session: Session) -> set[str]:
        """The names of the tables there are."""
        rows = session.all("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        return {row[0] for row in rows}

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._parameters, autocommit=True)
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin(self, connection: Any, patience_s: float) -> None:
        connection.execute(self.begin_writing)
        if patience_s != PATIENCE_S:
            # Zero would mean for ever.
            connection.execute(f"SET LOCAL lock_timeout = '{max(1, round(patience_s * 1000))}ms'")

    def _commit(self, connection: Any) -> None:
        # A transaction that failed is rolled back by this, and no error is raised.
        cursor = connection.execute("COMMIT", prepare=False)
        if cursor.statusmessage != "COMMIT":
            raise StoreLost(f"{self.where}: the transaction was rolled back; trying again")

    def _in_transaction(self, connection: Any) -> bool:
        return bool(connection.info.transaction_status != TransactionStatus.IDLE)

    def _after_reopening(self, connection: Any) -> None:
        """Take the lock again, from our own session of before if need be; raises Fenced."""
        if not self.claimed:
            return
        end = time.monotonic() + PATIENCE_S
        while not _try_lock(connection):
            ours = connection.execute(
                f"SELECT pg_terminate_backend(pid) {_HOLDERS} AND application_name = %s",
                (_SERVER, self._name),
            ).fetchall()
            holders = connection.execute(f"SELECT pid {_HOLDERS}", (_SERVER,)).fetchall()
            if holders and not ours:
                raise Fenced(f"another server took over {self.where}; stop this one")
            if time.monotonic() > end:
                raise StoreLost(f"{self.where}: our lost session does not end; trying again")
            time.sleep(_PAUSE_S)

    def _translate(self, error: Exception) -> RoostError | None:
        if not isinstance(error, psycopg.Error):
            return None
        state, told = error.sqlstate or "", f"{self.where}: {_line(error)}"
        if state.startswith(_FULL):
            return StoreFull(f"the disk of {self.where} is full; make room on it")
        if state.startswith(_LOST) or (not state and isinstance(error, psycopg.OperationalError)):
            return StoreLost(f"no connection to {told}; check that the database runs")
        if state.startswith(_BUSY):
            return StoreBusy(f"{told}; try again")
        if state.startswith(_BROKEN):
            return StoreBroken(f"{told}; check the database server, then start again")
        if state.startswith(_CONFLICT):
            return Conflict(told)
        if state.startswith(_INVALID) or (not state and isinstance(error, psycopg.DataError)):
            return InvalidSpec(told)
        return Fatal(told)


def _try_lock(connection: Any) -> bool:
    row = connection.execute(
        "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))", (_SERVER,)
    ).fetchone()
    return bool(row[0])


@lru_cache(maxsize=1024)
def _dialect(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _told(parameters: dict[str, Any]) -> str:
    """The database's address, without its password."""
    user = f"{parameters['user']}@" if "user" in parameters else ""
    host = parameters.get("host") or parameters.get("hostaddr") or ""
    port = f":{parameters['port']}" if "port" in parameters else ""
    return f"postgresql://{user}{host}{port}/{parameters.get('dbname', '')}"


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
