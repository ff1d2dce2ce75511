"""Stores under real faults: syncs that fail, full disks, damaged files, lost connections, kills.

The oracle is always the same: what was acknowledged is in the journal, once and in order. What was
not acknowledged may be there or not, and the store says which after it was reopened.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest
from tests.integration.unix_proxy import Proxy
from tests.support.postgres import PostgresServer

from roost.errors import Conflict, Fatal, RoostError
from roost.store import (
    EventQuery,
    EventRow,
    JobQuery,
    JournalEntry,
    Store,
    StoreBroken,
    StoreBusy,
    StoreLost,
    User,
    open_store,
)
from roost.testing.stores.database import entry, fill, job_row

#: Appends entries until there are enough, and says what it was promised.
WRITER = """
import sys
from roost.store import JournalEntry, StoreBroken, StoreBusy, StoreFull, StoreLost, open_store

path, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def say(*words):
    print(*words, flush=True)
try:
    store = open_store(f"sqlite://{path}")
    store.journal.serve()
    last = store.journal.last()
    seq = last.seq if last else 0
    tries = 0
    while seq < count:
        made = JournalEntry(seq + 1, f"e{seq + 1}", float(seq), {"n": seq + 1, "pad": "x" * size})
        try:
            store.journal.append([made])
        except (StoreFull, StoreBusy, StoreLost) as error:
            tries += 1
            if tries > 20:
                raise
            say("unknown", made.seq, type(error).__name__)
            store.journal.reopen()
            found = store.journal.last()
            if found is None or found.id != made.id:
                continue
        seq += 1
        say("ack", seq)
    store.close()
except Exception as error:
    say("stopped", type(error).__name__, error)
    sys.exit(3)
"""
COUNT = 60


def writer(path: Path, *before: str, size: int = 9000, **env: str) -> tuple[list[str], int]:
    """Run the writer; the lines it said, and how it ended."""
    found = subprocess.run(  # noqa: S603 - our own
        [*before, sys.executable, "-c", WRITER, str(path), str(COUNT), str(size)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=60,
    )
    return found.stdout.splitlines(), found.returncode


def acked(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("ack")]


def journal(path: Path) -> list[int]:
    with open_store(f"sqlite://{path}") as store:
        entries = list(store.journal.entries())
    assert [one.id for one in entries] == [f"e{one.seq}" for one in entries]
    assert [one.body["n"] for one in entries] == [one.seq for one in entries]
    return [one.seq for one in entries]


@cache
def can_trace() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    command = [strace, "-f", "-e", "inject=fdatasync:error=EIO:when=9999", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


@cache
def can_mount() -> bool:
    tried = subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True)  # noqa: S607
    return tried.returncode == 0


FAULTS = [
    "fdatasync:error=EIO:when=12",
    "fdatasync:error=EIO:when=30+",
    "fdatasync:error=ENOSPC:when=25",
    "fsync,fdatasync:error=EIO:when=20+3",
    "pwrite64:error=EIO:when=90",
    "pwrite64:error=EIO:when=150+",
    "pwrite64:error=ENOSPC:when=101",
    "pwrite64:error=ENOSPC:when=120+40",
    "pwrite64:error=ENOSPC:when=200+",
]


@pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")
@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_acknowledged_survives_a_failing_disk(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    lines, status = writer(
        path, "strace", "-f", "--seccomp-bpf", "-qq", "-o", str(tmp_path / "trace"),
        "-e", f"trace={fault.partition(':')[0]}", "-e", f"inject={fault}",
    )  # fmt: skip
    assert "INJECTED" in (tmp_path / "trace").read_text(), "the fault never happened"
    promised = acked(lines)
    assert promised == list(range(1, len(promised) + 1))
    if len(promised) < COUNT:
        assert status == 3, lines
        assert lines[-1].startswith(("stopped StoreBroken", "stopped StoreFull")), lines
    found = journal(path)
    assert found == list(range(1, len(found) + 1))
    assert len(promised) <= len(found) <= len(promised) + 1

    lines, status = writer(path)

    assert status == 0
    assert acked(lines) == list(range(len(found) + 1, COUNT + 1))
    assert journal(path) == list(range(1, COUNT + 1))


FULL = """
import os, sys
from pathlib import Path
from roost.store import JournalEntry, JobQuery, JobRow, StoreFull, User, open_store
from roost.errors import Retryable

folder = Path(sys.argv[1])
ballast = folder / "ballast"
ballast.write_bytes(b"x" * (5 << 20))
store = open_store(f"sqlite://{folder}/roost.db")
store.journal.serve()
store.accounts.add_user(User("ada"))
_, secret = store.accounts.add_token("ada", "laptop")
made = []
def append():
    seq = len(made) + 1
    one = JournalEntry(seq, f"e{seq}", float(seq), {"pad": "x" * 50_000})
    store.journal.append([one], [JobRow(f"j{seq}", "j", "ada", "q", "queued", rev=seq)])
    made.append(one)
try:
    while len(made) < 1000:
        append()
except StoreFull as error:
    assert "make room" in str(error) and error.after > 0
else:
    raise SystemExit("the disk was never full")
for _ in range(3):
    try:
        store.journal.reopen()
        append()
    except Retryable:
        pass
    else:
        break
assert list(store.journal.entries()) == made, "reads go on"
assert store.jobs.find(JobQuery()).total == len(made)
assert store.accounts.find_token(secret) is not None, "and so do logins"
other = folder / "other"
other.mkdir()
rest = os.open(folder / "rest", os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(rest, b"x" * 4096)
except OSError:
    pass
try:
    open_store(f"sqlite://{other}/roost.db")
except StoreFull:
    pass
else:
    raise SystemExit("a store on a full disk")
before = len(made)
ballast.unlink()
store.journal.reopen()
assert [one.id for one in store.journal.entries()] == [one.id for one in made]
for _ in range(20):
    append()
store.close()
with open_store(f"sqlite://{folder}/roost.db") as store:
    assert list(store.journal.entries()) == made
print("fine", before, len(made))
"""


@pytest.mark.skipif(not can_mount(), reason="needs unshare and mount")
def test_a_full_disk_stops_appends_and_nothing_else(tmp_path: Path) -> None:
    shell = 'mount -t tmpfs -o size=8m tmpfs "$1" && exec "$2" -c "$3" "$1"'
    found = subprocess.run(  # noqa: S603 - our own
        ["unshare", "-Urm", "bash", "-c", shell, "-", str(tmp_path), sys.executable, FULL],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr + found.stdout
    assert found.stdout.startswith("fine")


@pytest.mark.parametrize(("point", "kept"), [("before", 4), ("after", 5)])
def test_killed_around_the_commit(point: str, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    lines, status = writer(path, ROOST_FAILPOINT=f"journal.{point}-commit:5")
    assert status == -signal.SIGKILL
    assert acked(lines) == [1, 2, 3, 4]
    assert journal(path) == list(range(1, kept + 1))
    lines, status = writer(path)
    assert (status, acked(lines)) == (0, list(range(kept + 1, COUNT + 1)))


def test_a_log_that_went_missing_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    writer(path, ROOST_FAILPOINT="journal.after-commit:9")
    (tmp_path / "roost.db-wal").unlink()
    with pytest.raises(Fatal, match=r"an older state|is empty"):
        _serve(path)
    (tmp_path / "roost.db.lock").unlink()
    with open_store(f"sqlite://{path}") as store:  # as the message says
        store.journal.serve()


def _serve(path: Path) -> list[JournalEntry]:
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        return list(store.journal.entries())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[JournalEntry]]:
    """A journal whose older half is in the database and the younger in its write-ahead log."""
    folder, kept = tmp_path_factory.mktemp("recorded"), tmp_path_factory.mktemp("kept")
    url = f"sqlite://{folder}/roost.db"
    chance = random.Random(3)
    for half in (0, 1):
        with open_store(url) as store:
            store.journal.serve()
            for seq in range(half * 30 + 1, half * 30 + 31):
                body = {"v": 1, "pad": "y" * chance.randrange(3000)}
                job = job_row(
                    f"j{seq % 9}", labels={"team": f"t{seq % 2}"}, view={"exit_code": seq}
                )
                line = EventRow(seq, 0, seq / 3, job=job.id, kind="state", text=f"line {seq}")
                store.journal.append([JournalEntry(seq, f"e{seq}", seq / 3, body)], [job], [line])
            entries = list(store.journal.entries())
            if half:
                for file in folder.iterdir():
                    shutil.copy(file, kept)
    (kept / "roost.db-shm").unlink()
    return kept, entries


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder where syncing costs nothing, if there is one."""
    memory = Path("/dev/shm")  # noqa: S108 - removed at the end
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="roost-", dir=memory) as folder:
        yield Path(folder)


def _mutate(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    place = chance.randrange(len(content))
    kind = chance.choice(["bit", "bit", "bytes", "zeros", "cut", "cut out"])
    match kind:
        case "bit":
            content[place] ^= 1 << chance.randrange(8)
        case "bytes":
            length = chance.choice([1, 4, 200])
            content[place : place + length] = chance.randbytes(len(content[place : place + length]))
        case "zeros":
            start = place // 4096 * 4096
            content[start : start + 4096] = bytes(len(content[start : start + 4096]))
        case "cut":
            del content[chance.choice([0, place, place // 4096 * 4096]) :]
        case "cut out":
            del content[place : place + 4096]
    file.write_bytes(content)
    return f"{kind} at {place} of {file.name}"


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "without note"])
def test_no_damage_is_silent(
    noted: bool,  # noqa: FBT001
    recorded: tuple[Path, list[JournalEntry]],
    quick: Path,
) -> None:
    kept, entries = recorded
    chance = random.Random(5)
    seen = {"whole": 0, "found": 0, "shorter": 0}
    for number in range(220 if noted else 80):
        folder = quick / str(number)
        shutil.copytree(kept, folder)
        if not noted:
            (folder / "roost.db.lock").unlink()
        what = _mutate(folder / chance.choice(["roost.db", "roost.db-wal"]), chance)
        try:
            found = _serve(folder / "roost.db")
        except RoostError:
            seen["found"] += 1
        else:
            assert found == entries[: len(found)], what
            seen["whole" if len(found) == len(entries) else "shorter"] += 1
        shutil.rmtree(folder)
    assert seen["found"] > 5, seen
    assert seen["whole"] > 5, seen
    # The note in the lock file knows how long the journal was.
    assert bool(seen["shorter"]) != noted, seen


def _lists(path: Path) -> tuple[object, ...]:
    """What people see of jobs and events."""
    with open_store(f"sqlite://{path}") as store:
        return (
            store.jobs.find(JobQuery(sort="id")),
            store.jobs.find(JobQuery(labels={"team": "t1"}, sort="id")),
            store.events.find(EventQuery(limit=200)),
        )


def test_no_damage_of_a_list_is_silent(
    recorded: tuple[Path, list[JournalEntry]], quick: Path
) -> None:
    kept, entries = recorded
    whole = quick / "whole"
    shutil.copytree(kept, whole)
    assert _serve(whole / "roost.db") == entries
    right = _lists(whole / "roost.db")
    content = (whole / "roost.db").read_bytes()
    assert not (whole / "roost.db-wal").exists()
    chance = random.Random(8)
    seen = {"right": 0, "found": 0}
    for _ in range(400):
        bad = bytearray(content)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        (whole / "roost.db").write_bytes(bad)
        try:
            with open_store(f"sqlite://{whole}/roost.db") as store:
                list(store.journal.entries())
                store.jobs.verify()
                store.events.verify()
            assert _lists(whole / "roost.db") == right
            seen["right"] += 1
        except RoostError:
            seen["found"] += 1
    assert seen["found"] > 20, seen
    assert seen["right"] > 20, seen


def test_a_database_swapped_while_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        fill(store, 3)
    shutil.copy(path, tmp_path / "older")
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        fill(store, 3)
        (tmp_path / "older").replace(path)
        with pytest.raises(StoreBroken, match="moved or replaced"):
            store.journal.append([entry(7)])
        with pytest.raises(Fatal):
            store.journal.reopen()
    found = list[JournalEntry]()
    with suppress(Fatal):
        found = _serve(path)
    # The log of the newer one may fit the older one: then nothing is missing.
    assert [one.seq for one in found] in ([], [1, 2, 3, 4, 5, 6])


def test_a_log_deleted_while_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        fill(store, 3)
        (tmp_path / "roost.db-wal").unlink()
        with pytest.raises(StoreBroken, match="moved or replaced"):
            store.journal.append([entry(4)])


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_database_held_by_another_process_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        store.accounts.add_user(User("ada"))
        _, secret = store.accounts.add_token("ada", "laptop")
        store._database.patience_s = 0.2
        holder = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-c", HOLDER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with holder:
            assert holder.stdout is not None
            assert holder.stdin is not None
            holder.stdout.readline()
            with pytest.raises(StoreBusy, match="locked by another process"):
                store.journal.append([entry(1)])
            assert store.journal.last() is None
            assert store.accounts.find_token(secret) is not None
            holder.stdin.close()
        store.journal.reopen()
        fill(store, 2)
        assert [one.seq for one in store.journal.entries()] == [1, 2]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if reason := PostgresServer.missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite://{tmp_path}/roost.db"
    else:
        url = request.getfixturevalue("server").database()
    with open_store(url) as store:
        store.journal.serve()
        yield store


def test_readers_see_whole_commits_and_do_not_wait(store: Store) -> None:
    done, wrong = threading.Event(), list[object]()

    def read() -> None:
        seen = 0
        try:
            while not done.is_set():
                page = store.jobs.find(JobQuery(limit=3, sort="id"))
                revs = {job.rev for job in page.items}
                last = store.journal.last()
                if len(revs) > 1 or last is None or last.seq < max(revs) or max(revs) < seen:
                    wrong.append((revs, last, seen))
                seen = max(revs)
                count = sum(1 for _ in store.journal.entries(after=seen - 1))
                if count < 1:
                    wrong.append((seen, count))
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(error)

    def write(seq: int) -> None:
        jobs = [job_row(name, rev=seq, view={"seq": seq}) for name in "abc"]
        store.journal.append([entry(seq)], jobs)

    write(1)
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for seq in range(2, 120):
        write(seq)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    # A transaction that is not committed is not seen.
    with store._database.writing() as session:
        session.run("UPDATE jobs SET rev = 0")
        assert {job.rev for job in store.jobs.find(JobQuery()).items} == {119}
        session.run("UPDATE jobs SET rev = 119")


def _resume(store: Store, made: JournalEntry) -> None:
    """What the server does after an unknown outcome."""
    store.journal.reopen()
    last = store.journal.last()
    if last is None or last.id != made.id:
        store.journal.append([made])


def test_postgres_killed_and_started_again(server: PostgresServer) -> None:
    with open_store(server.database()) as store:
        store.journal.serve()
        fill(store, 5)
        server.kill()
        with pytest.raises(StoreLost) as lost:
            store.journal.append([entry(6)])
        assert "\n" not in str(lost.value)
        with pytest.raises(StoreLost, match="reopen"):
            store.journal.append([entry(6)])
        with pytest.raises(StoreLost):
            store.journal.reopen()
        with pytest.raises(StoreLost):
            store.journal.last()
        server.start()
        _resume(store, entry(6))
        fill(store, 2)
        assert [one.seq for one in store.journal.entries()] == list(range(1, 9))


def test_postgres_sessions_that_are_ended(server: PostgresServer) -> None:
    url = server.database()
    name = urlsplit(url).path.removeprefix("/")
    end = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    with open_store(url) as store:
        store.journal.serve()
        for seq in range(1, 6):
            fill(store, 1)
            server.run(name, f"{end} AND datname = current_database()")
            assert store.journal.last() == list(store.journal.entries())[-1], (
                "readers come back by themselves"
            )
            with pytest.raises(StoreLost):
                store.journal.append([entry(seq + 1)])
            store.journal.reopen()
        assert [one.seq for one in store.journal.entries()] == [1, 2, 3, 4, 5]


def test_a_session_of_postgres_lost_by_another_write_costs_the_journal_nothing(
    server: PostgresServer,
) -> None:
    url = server.database()
    name = urlsplit(url).path.removeprefix("/")
    end = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    with open_store(url) as store:
        store.journal.serve()
        fill(store, 2)
        server.run(name, f"{end} AND datname = current_database()")
        with pytest.raises(StoreLost):
            store.accounts.add_user(User("ada"))
        fill(store, 1)
        assert [one.seq for one in store.journal.entries()] == [1, 2, 3]
        store.accounts.add_user(User("ada"))
        with open_store(url) as other, pytest.raises(Conflict, match="another server"):
            other.journal.serve()


def test_a_row_of_postgres_held_by_another_is_busy(server: PostgresServer) -> None:
    import psycopg  # noqa: PLC0415 - an extra

    url = server.database()
    with open_store(url) as store, psycopg.connect(url) as other:
        store.journal.serve()
        store._database.patience_s = 0.2
        other.execute("SELECT * FROM roost_meta FOR UPDATE")
        with pytest.raises(StoreBusy):
            store.journal.append([entry(1)])
        other.rollback()
        fill(store, 1)
        assert [one.seq for one in store.journal.entries()] == [1]


def test_a_connection_cut_at_the_commit(server: PostgresServer) -> None:
    chance = random.Random(17)
    url = server.database()
    name = urlsplit(url).path.removeprefix("/")
    outcomes = {mode: set[bool]() for mode in Proxy.MODES}
    with Proxy(server.socket) as proxy, open_store(proxy.url(name)) as store:
        store.journal.serve()
        for seq in range(1, 61):
            mode = chance.choice(Proxy.MODES)
            proxy.cut_at_commit(mode)
            made = entry(seq)
            with pytest.raises(StoreLost):
                store.journal.append([made])
            store.journal.reopen()
            last = store.journal.last()
            there = last is not None and last.id == made.id
            outcomes[mode].add(there)
            if not there:
                store.journal.append([made])
        assert [one.id for one in store.journal.entries()] == [
            entry(seq).id for seq in range(1, 61)
        ]
    assert outcomes["before"] == {False}
    assert outcomes["after"] == {True}
    assert outcomes["held"] == {False}, "our own session was ended, with what it had under way"


def test_the_journal_can_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "roost.db"
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        fill(store, 3)
        with closing(sqlite3.connect(path)) as other:
            rows = other.execute("SELECT seq, body FROM journal ORDER BY seq").fetchall()
        assert [(seq, json.loads(body)["v"]) for seq, body in rows] == [(1, 1), (2, 1), (3, 1)]
