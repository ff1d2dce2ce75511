from __future__ import annotations

import sys

import pytest

psycopg = pytest.importorskip("psycopg")

from psycopg import errors  # noqa: E402 - after the skip

from roost.errors import Conflict, Fatal, InvalidSpec, RoostError  # noqa: E402
from roost.store import StoreBroken, StoreBusy, StoreFull, StoreLost, open_store  # noqa: E402
from roost.store.postgres import PostgresDatabase  # noqa: E402

URL = "postgresql://ada:hunter2@db.example:5433/roost"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.DiskFull("no space"), StoreFull),
        (errors.SerializationFailure("again"), StoreBusy),
        (errors.DeadlockDetected("again"), StoreBusy),
        (errors.LockNotAvailable("held"), StoreBusy),
        (errors.QueryCanceled("took long"), StoreBusy),
        (errors.TooManyConnections("many"), StoreBusy),
        (errors.AdminShutdown("going"), StoreLost),
        (errors.CrashShutdown("going"), StoreLost),
        (errors.CannotConnectNow("starting"), StoreLost),
        (errors.ReadOnlySqlTransaction("standby"), StoreLost),
        (psycopg.OperationalError("server closed the connection\nunexpectedly"), StoreLost),
        (errors.IoError("disk"), StoreBroken),
        (errors.DataCorrupted("page"), StoreBroken),
        (errors.UniqueViolation("twice"), Conflict),
        (errors.NumericValueOutOfRange("large"), InvalidSpec),
        (psycopg.DataError("NUL"), InvalidSpec),
        (errors.InsufficientPrivilege("no"), Fatal),
        (errors.UndefinedTable("none"), Fatal),
    ],
)
def test_what_errors_mean(error: Exception, kind: type[RoostError]) -> None:
    found = PostgresDatabase(URL)._translate(error)
    assert type(found) is kind
    assert "\n" not in str(found)
    assert "hunter2" not in str(found)
    assert "db.example:5433/roost" in str(found)


def test_other_errors_are_let_through() -> None:
    assert PostgresDatabase(URL)._translate(ZeroDivisionError()) is None


def test_statements_in_its_dialect() -> None:
    database = PostgresDatabase(URL)
    assert database.dialect("a LIKE ? ESCAPE '!' AND b % 2 = ?") == (
        "a LIKE %s ESCAPE '!' AND b %% 2 = %s"
    )


def test_nobody_at_home() -> None:
    with pytest.raises(StoreLost, match="no connection to postgresql://roost@127"):
        open_store("postgresql://roost:hunter2@127.0.0.1:9/none")


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "roost.store.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidSpec, match=r"pip install 'roost\[postgres\]'"):
        open_store(URL)
