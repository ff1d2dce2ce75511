from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from roost.errors import Conflict, Fatal, InvalidSpec
from roost.store import User, open_store
from roost.store.errors import StoreBroken
from roost.store.migrations import MIGRATIONS, Migration, migrate
from roost.store.sqlite import SqliteDatabase
from roost.testing.stores.database import fill

NEXT = MIGRATIONS[-1].number + 1
GOOD = Migration(
    NEXT, "colours", ("CREATE TABLE colours (name {text})", "CREATE TABLE more (a {key})")
)
BAD = Migration(NEXT, "colours", ("CREATE TABLE colours (name {text})", "CREATE TABEL more"))


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master").fetchall()
    return {name for (name,) in rows}


def take(path: Path, *steps: Migration) -> None:
    database = SqliteDatabase(path)
    try:
        migrate(database, (*MIGRATIONS, *steps))
    finally:
        database.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "roost.db"
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        fill(store, 3)
        store.accounts.add_user(User("ada"))
    return path


def test_numbers_grow_by_one() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_a_step_is_taken_once_and_the_old_database_is_kept(path: Path) -> None:
    take(path, GOOD)
    assert {"colours", "more"} <= tables(path)
    backup = path.with_name(f"roost.db.schema-{NEXT - 1}.bak")
    assert backup.stat().st_mode & 0o777 == 0o600
    backup.rename(path.with_name("restored.db"))
    take(path, GOOD)
    assert not backup.exists(), "nothing to do, nothing to keep"
    with open_store(f"sqlite://{path.with_name('restored.db')}") as store:
        assert len(list(store.journal.entries())) == 3
        assert store.accounts.users() == [User("ada")]
    assert not list(path.parent.glob(".*")), "no draft is left"


def test_a_step_that_fails_has_not_happened(path: Path) -> None:
    with pytest.raises(StoreBroken, match="TABEL"):
        take(path, BAD)
    assert "colours" not in tables(path)
    with open_store(f"sqlite://{path}") as store:
        assert len(list(store.journal.entries())) == 3
    take(path, GOOD)
    assert "more" in tables(path)


def test_a_new_database_needs_no_backup(tmp_path: Path) -> None:
    take(tmp_path / "roost.db", GOOD)
    assert {file.name for file in tmp_path.iterdir()} == {"roost.db"}


def test_a_running_server_keeps_its_tables(path: Path) -> None:
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        with pytest.raises(Conflict, match="stop it first"):
            take(path, GOOD)
    assert "colours" not in tables(path)


def test_a_newer_database_is_not_touched(path: Path) -> None:
    take(path, GOOD)
    before = path.read_bytes()
    with pytest.raises(Fatal, match=f"newer Roost .*schema {NEXT}"):
        open_store(f"sqlite://{path}")
    assert path.read_bytes() == before
    assert {file.suffix for file in path.parent.iterdir()} == {".db", ".lock", ".bak"}


def test_the_database_of_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE precious (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(InvalidSpec, match="not a Roost database"):
        open_store(f"sqlite://{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "spoil", ["DELETE FROM roost_meta", "UPDATE roost_meta SET schema = 'x'"], ids=["gone", "text"]
)
def test_a_database_that_does_not_say_its_format_is_broken(path: Path, spoil: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(spoil)
    with pytest.raises(StoreBroken, match="does not say its format"):
        open_store(f"sqlite://{path}")
