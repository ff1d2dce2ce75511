from __future__ import annotations

import errno
import os
import resource
import sqlite3
import stat
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from roost.errors import Conflict, Fatal, InvalidSpec, RoostError
from roost.store import JobQuery, Store, StoreBroken, StoreBusy, StoreFull, StoreLost, open_store
from roost.store.database import Parameters, Row, Session
from roost.store.rows import JOB_SORTS, EventQuery, EventRow, QueueRow, User
from roost.store.sqlite import SqliteDatabase
from roost.testing.stores.database import entry, fill, job_row


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/roost.db"


def test_only_the_owner_can_read_the_files(url: str, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with open_store(url) as store:
            store.journal.serve()
            fill(store, 1)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(
        ("roost.db", "roost.db-wal", "roost.db-shm", "roost.db.lock"), 0o600
    )


def test_every_commit_is_synced(url: str) -> None:
    with open_store(url) as store, store._database.reading() as session:
        assert session.one("PRAGMA synchronous") == (2,)
        assert session.one("PRAGMA journal_mode") == ("wal",)
        assert session.one("PRAGMA foreign_keys") == (1,)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("roost.db", "sqlite:///path"),
        ("sqlite://roost.db", "absolute path"),
        ("sqlite:///", "absolute path"),
        ("sqlite:///a.db?mode=ro", "absolute path"),
        ("sqlite:///:memory:", "absolute path"),
        ("sqlit:///a.db", "did you mean 'sqlite'"),
        ("xyz://host/name", "one of: postgres, postgresql, sqlite"),
        ("postgresql://host:notaport/x?nonsense=1&y", "postgresql://user@host"),
        ("sqlite:///tmp/\0", "sqlite:///path"),
    ],
)
def test_urls_that_name_no_database(url: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^[^\n]*$") as refused:
        open_store(url)
    assert says in str(refused.value)


def test_odd_letters_in_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b%?#é"
    folder.mkdir()
    quoted = str(folder).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    with open_store(f"sqlite://{quoted}/roost.db") as store:
        store.journal.serve()
        fill(store, 2)
        store.journal.reopen()
        fill(store, 1)
    assert (folder / "roost.db").exists()


def test_files_that_are_no_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database at all" * 100)
    (tmp_path / "folder").mkdir()
    for name, says in (("text", "damaged"), ("folder", "regular"), ("none/x.db", "No such file")):
        with pytest.raises(StoreBroken, match=says):
            open_store(f"sqlite://{tmp_path}/{name}")


def _sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as SQLite\nputs it")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_sqlite_error(sqlite3.SQLITE_FULL), StoreFull),
        (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), StoreFull),
        (OSError(errno.EACCES, "Permission denied"), StoreBroken),
        (_sqlite_error(sqlite3.SQLITE_BUSY), StoreBusy),
        (_sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), StoreBusy),
        (_sqlite_error(sqlite3.SQLITE_LOCKED), StoreBusy),
        (_sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), StoreBroken),
        (_sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE), StoreBroken),
        (_sqlite_error(sqlite3.SQLITE_CORRUPT), StoreBroken),
        (_sqlite_error(sqlite3.SQLITE_NOTADB), StoreBroken),
        (_sqlite_error(sqlite3.SQLITE_READONLY), StoreBroken),
        (_sqlite_error(sqlite3.SQLITE_CANTOPEN), StoreBroken),
        (sqlite3.OperationalError("Could not decode to UTF-8"), StoreBroken),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), Conflict),
        (sqlite3.ProgrammingError("closed"), Fatal),
        (OverflowError("too large"), InvalidSpec),
        (UnicodeDecodeError("utf-8", b"\xe2", 0, 1, "invalid"), StoreBroken),
    ],
)
def test_what_errors_mean(error: Exception, kind: type[RoostError], tmp_path: Path) -> None:
    found = SqliteDatabase(tmp_path / "roost.db")._translate(error)
    assert type(found) is kind
    assert "\n" not in str(found)


def test_side_files_fail_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = SqliteDatabase(tmp_path / "roost.db")
    monkeypatch.setattr(database, "_is_scarce", lambda: True)
    for code in (sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_CANTOPEN):
        assert isinstance(database._translate(_sqlite_error(code)), StoreFull)
    assert isinstance(database._translate(_sqlite_error(sqlite3.SQLITE_IOERR_WRITE)), StoreBroken)


class Failing:
    """A connection whose commits fail, whatever became of them."""

    def __init__(self, connection: sqlite3.Connection, code: int, *, done: bool) -> None:
        self._connection, self._code, self._done = connection, code, done

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self._connection.execute("COMMIT" if self._done else "ROLLBACK")
            raise _sqlite_error(self._code)
        return self._connection.execute(sql, parameters)


@pytest.mark.parametrize("done", [True, False], ids=["done", "undone"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [(sqlite3.SQLITE_FULL, StoreFull), (sqlite3.SQLITE_IOERR_FSYNC, StoreBroken)],
)
def test_after_a_failed_commit_nothing_is_written_until_it_is_reopened(
    code: int,
    kind: type[RoostError],
    done: bool,  # noqa: FBT001
    url: str,
) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 2)
        database = store._database
        database._writer = Failing(database._writer, code, done=done)
        with pytest.raises(kind):
            store.journal.append([entry(3)])
        with pytest.raises(StoreLost, match="reopen before writing again"):
            store.journal.append([entry(3)])
        store.journal.reopen()
        last = store.journal.last()
        assert last is not None
        assert last.seq == (3 if done else 2)
        fill(store, 1)
        assert [one.seq for one in store.journal.entries()] == list(range(1, last.seq + 2))


@pytest.mark.parametrize("done", [True, False], ids=["done", "undone"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [(sqlite3.SQLITE_FULL, StoreFull), (sqlite3.SQLITE_IOERR_FSYNC, StoreBroken)],
)
def test_the_journal_goes_on_after_another_write_failed(
    code: int,
    kind: type[RoostError],
    done: bool,  # noqa: FBT001
    url: str,
) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 2)
        database = store._database
        for write in (
            lambda: store.accounts.add_user(User("bob")),
            lambda: store.journal.save_snapshot(2, "{}"),
            lambda: store.accounts.set_queue(QueueRow("q")),
        ):
            database._writer = Failing(database._writer, code, done=done)
            with pytest.raises(kind):
                write()
            fill(store, 1)
        assert [one.seq for one in store.journal.entries()] == [1, 2, 3, 4, 5]
        assert [user.name for user in store.accounts.users()] == (["bob"] if done else [])
        store.accounts.add_user(User("eve"))


def test_a_failed_note_of_use_is_nobodys_trouble(url: str) -> None:
    with open_store(url) as store:
        store.journal.serve()
        store.accounts.add_user(User("ada"))
        _, secret = store.accounts.add_token("ada", "laptop")
        database = store._database
        database._writer = Failing(database._writer, sqlite3.SQLITE_FULL, done=False)
        assert store.accounts.find_token(secret) is not None
        assert store.accounts.tokens()[0].last_used_at is None
        store.accounts.add_user(User("bob"))
        fill(store, 1)


def test_no_write_hides_that_the_journal_is_unsure(url: str) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 1)
        database = store._database
        database._writer = Failing(database._writer, sqlite3.SQLITE_FULL, done=True)
        with pytest.raises(StoreFull):
            store.journal.append([entry(2)])
        with pytest.raises(StoreLost, match="reopen before writing again"):
            store.accounts.add_user(User("bob"))
        with pytest.raises(StoreLost, match="reopen before writing again"):
            store.journal.append([entry(2)])


def test_nothing_is_written_to_a_database_that_was_put_back(url: str) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 2)
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as other, other:
            other.execute("UPDATE roost_meta SET last_seq = 1")
        with pytest.raises(Fatal, match="put back to an older state"):
            store.accounts.add_user(User("bob"))
        assert store.accounts.users() == []


def test_the_lines_of_the_log_are_counted_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    real = Session.all

    def noting(self: Session, sql: str, parameters: Parameters = ()) -> list[Row]:
        if "COUNT" in sql:
            asked.append(tuple(parameters))
        return real(self, sql, parameters)

    def line(seq: int) -> EventRow:
        return EventRow(seq, 0, 0.0, "", "j", "u" if seq % 2 else "v", "", "k")

    with open_store(url) as store:
        store.journal.serve()
        store.accounts.add_user(User("ada"))
        for seq in range(1, 10):
            store.journal.append([entry(seq)], [], [line(seq)])
        monkeypatch.setattr(Session, "all", noting)
        assert store.events.find(EventQuery(limit=1)).total == 10
        assert store.events.find(EventQuery(limit=1, after=0)).total == 9
        assert store.events.find(EventQuery(limit=1, user="u")).total == 5
        store.accounts.add_user(User("bob"))
        store.journal.append([entry(10)], [], [line(10)])
        asked.clear()
        assert store.events.find(EventQuery(limit=1)).total == 12
        assert store.events.find(EventQuery(offset=20)).total == 12
        assert all(isinstance(seq, int) and seq >= 8 for seq, *_ in asked), asked
        asked.clear()
        assert store.events.find(EventQuery(offset=10)).total == 12
        assert store.events.find(EventQuery(user="u")).total == 5
        assert not asked, "a last page says how many there are"
        assert store.events.find(EventQuery(after=5, limit=1)).total == 6


def test_what_fails_before_the_commit_leaves_the_store_as_it_was(url: str) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 1)
        with suppress(ZeroDivisionError), store._database.writing() as session:
            session.run("DELETE FROM journal")
            raise ZeroDivisionError
        fill(store, 1)
        assert [one.seq for one in store.journal.entries()] == [1, 2]


def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    store.close()
    store.close()
    for call in (store.journal.last, store.accounts.users, store.journal.reopen):
        with pytest.raises(Fatal, match="is closed"):
            call()


def test_reopening_waits_for_readers(url: str) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 3)
        store._database._readers._patience_s = 0.05
        reading = store.journal.entries()
        next(reading)
        store.journal.reopen()  # a reader between two chunks holds nothing
        assert [one.seq for one in reading] == [2, 3]
        with store._database.reading() as session:
            store.journal.reopen()  # one in the middle is waited for, but not for ever
            assert session.one("SELECT MAX(seq) FROM journal") == (3,)


def _plan(session: Session, order: str) -> str:
    rows = session.all(f"EXPLAIN QUERY PLAN SELECT id FROM jobs ORDER BY {order} LIMIT 50")  # noqa: S608
    return " ".join(row[3] for row in rows)


@pytest.mark.parametrize("field", JOB_SORTS)
def test_every_order_has_its_index(field: str, url: str) -> None:
    column = "owner" if field == "user" else field
    with open_store(url) as store, store._database.reading() as session:
        for turn in ("", " DESC"):
            order = f"id{turn}" if column == "id" else f"{column}{turn}, id{turn}"
            plan = _plan(session, order)
            assert "COVERING INDEX" in plan
            assert "TEMP B-TREE" not in plan


def _listed(store: Store, **query: object) -> list[str]:
    return [job.id for job in store.jobs.find(JobQuery(**query)).items]  # type: ignore[arg-type]


def test_few_among_many_are_found_through_their_own_index(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = list[str]()
    run = Session.all

    def watched(
        self: Session, sql: str, parameters: tuple[object, ...] = ()
    ) -> list[tuple[object, ...]]:
        statements.append(sql)
        return run(self, sql, parameters)

    with open_store(url) as store:
        store.journal.serve()
        jobs = [job_row(f"j{n}", user="bob" if n else "ada") for n in range(50)]
        store.journal.append([entry(1)], jobs)
        monkeypatch.setattr(Session, "all", watched)
        assert _listed(store, users=("ada",)) == ["j0-00000"]
        assert any("WHERE owner IN" in sql for sql in statements)
        statements.clear()
        assert len(_listed(store, users=("bob",))) == 49
        assert any("(owner || '') IN" in sql for sql in statements)


def test_a_claim_leaves_every_byte_as_it_is(url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 3)
    before = (tmp_path / "roost.db").read_bytes()
    with open_store(url) as store:
        store.journal.claim()
        assert [entry.seq for entry in store.journal.entries()] == [1, 2, 3]
    assert (tmp_path / "roost.db").read_bytes() == before


def test_a_refused_server_leaves_every_byte_as_it_is(url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 3)
        older = (tmp_path / "roost.db").read_bytes()
    file, newer = tmp_path / "roost.db", (tmp_path / "roost.db").read_bytes()
    assert older != newer
    file.write_bytes(older)
    with open_store(url) as store, pytest.raises(StoreBroken, match="put back to an older state"):
        store.journal.serve()
    assert file.read_bytes() == older
    file.write_bytes(newer)
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 1)


def test_a_log_that_is_emptied_is_noticed_before_anything_is_answered(
    url: str, tmp_path: Path
) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 3)
        os.truncate(tmp_path / "roost.db-wal", 0)
        with pytest.raises(StoreBroken, match="put back to an older state"):
            store.journal.append([entry(4)])
    with open_store(url) as store, pytest.raises(StoreBroken, match="put back to an older state"):
        store.journal.serve()


def test_a_log_without_its_beginning_is_noticed_after_a_commit(url: str, tmp_path: Path) -> None:
    log = tmp_path / "roost.db-wal"
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 3)
        with log.open("r+b") as file:
            file.write(bytes(32))
        with pytest.raises(StoreBroken, match="was emptied while in use"):
            store.journal.append([entry(4)])


def test_a_log_that_a_tool_wrote_back_is_no_harm(url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 3)
        with closing(sqlite3.connect(tmp_path / "roost.db")) as tool:
            assert tool.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        fill(store, 1)
        assert [one.seq for one in store.journal.entries()] == [1, 2, 3, 4]


def test_too_few_descriptors_are_trouble_to_wait_out(url: str) -> None:
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 1)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            with ExitStack() as held, pytest.raises(StoreLost, match="too many files are open"):
                _ = [held.enter_context(store._database.reading()) for _ in range(64)]
            # The entry may be there or not: asked again, the store says so.
            with pytest.raises(StoreLost, match="too many files are open"):
                store.journal.append([entry(2)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        store.journal.reopen()
        assert store.accounts.users() == []
        last = store.journal.last()
        assert last is not None
        assert last.seq in {1, 2}
