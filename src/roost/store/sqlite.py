"""A store in one SQLite file: write-ahead log, every commit synced, one server by a file lock.

Beside ``roost.db`` stands ``roost.db.lock``: the server holds a lock on it, and notes in it its
process and the last number of the journal that it answered for. The note is not synced and needs
not be: it tells a database that was put back, or lost its write-ahead log, from one that is whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from roost.errors import Conflict, Fatal, InvalidSpec, RoostError
from roost.store.database import PATIENCE_S, Database, Session
from roost.store.errors import StoreBroken, StoreBusy, StoreFull, StoreLost

_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA temp_store = MEMORY",
    f"PRAGMA journal_size_limit = {64 << 20}",
)
_INCREMENTAL = 2
#: So many free pages are given back at a time, a few milliseconds of work.
_PAGES = 200
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_FILES = {errno.EMFILE, errno.ENFILE}
#: With fewer free descriptors than this, one that was missing is the likely cause.
_FEW_FILES = 32
#: Failures to make or grow a side file; SQLite does not say whether the disk is full.
_SIDE_FILES = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMMAP,
}
#: Twice the step in which SQLite grows its shared memory.
_SCARCE_BYTES = 64 << 10
#: How every write-ahead log begins; a bit of the fourth byte tells the order of bytes.
_WAL = b"\x37\x7f\x06"
_NOTE = re.compile(rb"\s*(\d+)\s+(\d+)\n")

_Identity = tuple[int, int]


class SqliteDatabase(Database):
    """One file, and the two that SQLite keeps beside it."""

    kind = "sqlite"
    begin_reading = "BEGIN"
    begin_writing = "BEGIN IMMEDIATE"
    words: ClassVar[dict[str, str]] = {"key": "INTEGER PRIMARY KEY", "text": "TEXT"}
    older_advice = (
        "put the newer database back (with its -wal file), "
        "or remove its .lock file to go on without what is missing"
    )

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._lock: int | None = None
        self._identity: _Identity | None = None
        self._wal_identity: _Identity | None = None
        self._wal_size = 0
        with self._translated():
            _make(path)
            if self._lock_path.exists():
                _, self.acknowledged = _note(self._lock_path.read_bytes())

    def prepare(self) -> None:
        """Turn on the write-ahead log."""
        self._readers.drain()  # one that looked before would remember the old mode
        with self._translated(), closing(self._connect()) as connection:
            # Before the first table: pages that get free can be given back a few at a time.
            if not connection.execute("PRAGMA page_count").fetchone()[0]:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise Fatal(f"{self.where}: its file system cannot do write-ahead logs; move it")

    def claim(self) -> None:
        """Lock the file beside the database, for as long as this process lives."""
        with self._translated():
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid, _ = _note(os.pread(lock, 64, 0))
            os.close(lock)
            holder = f"another server (process {pid})" if pid else "another server"
            raise Conflict(f"{holder} serves {self.where}; stop it first") from None
        _, self.acknowledged = _note(os.pread(lock, 64, 0))
        self._lock, self.claimed = lock, True
        self._write_note()

    def settle(self) -> None:
        """Empty the write-ahead log into the database."""
        # After a failed sync, the log may hold entries that are not on disk yet: now they are.
        self._wal_size = 0
        with self._translated(), closing(self._connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def release(self) -> None:
        """Unlock; the note stays for the next server."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock, self.claimed = None, False

    def committed(self, seq: int) -> None:
        """Make sure that the file we wrote to is the one that others will find."""
        self._check_files()
        self._check_log()
        self.acknowledged = seq
        self._write_note()

    def rebuild(self) -> None:
        """Have free pages listed, which an older database does not do."""
        with self._translated(), closing(self._connect()) as connection:
            if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("VACUUM")

    def size_bytes(self) -> int | None:
        """The file and its write-ahead log."""
        return _size(self._path) + _size(self._wal)

    def free_bytes(self) -> int | None:
        """What is left on the disk for who is not root."""
        try:
            found = os.statvfs(self._path.parent)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def shrink(self) -> bool:
        """Give some free pages at the end of the file back to the disk."""
        with self.writing() as session:
            session.all(f"PRAGMA incremental_vacuum({_PAGES})")
            left = session.one("PRAGMA freelist_count")
        return bool(left and left[0])

    def backup(self, label: str) -> None:
        """Copy the database to a file beside it, all or nothing."""
        target = self._path.with_name(f"{self._path.name}.{label}.bak")
        draft = self._path.with_name(f".{uuid4().hex}.tmp")
        with self._translated():
            try:
                _make(draft)
                with (
                    closing(self._connect()) as source,
                    closing(sqlite3.connect(draft, isolation_level=None)) as copy,
                ):
                    source.backup(copy)
                _sync(draft)
                draft.replace(target)
                _sync(target.parent)
            finally:
                with suppress(OSError):
                    draft.unlink()

    def dialect(self, sql: str) -> str:
        """Statements are written for SQLite."""
        return sql

    def tables(self, session: Session) -> set[str]:
        """The names of the tables there are."""
        return {row[0] for row in session.all("SELECT name FROM sqlite_master")}

    def _connect(self) -> sqlite3.Connection:
        # Never made anew here: a file that is gone must not be replaced by an empty one.
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            address, PATIENCE_S, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            identity = _identity(self._path)
            if self._identity is None:
                self._identity = identity
        except BaseException:
            connection.close()
            raise
        return connection

    def _after_reopening(self, connection: Any) -> None:
        # A failed commit may have left a rest in the log. It is now either counted in or removed:
        # it must not come back at the next start. Readers elsewhere may hinder the truncation; then
        # it stays.
        self._wal_identity, self._wal_size = None, 0
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._check_files()

    def _is_suspect(self) -> bool:
        # The log was emptied: another program moved it into the database, or cut it off.
        same = _identity(self._wal) == self._wal_identity
        return same and _size(self._wal) < self._wal_size

    def _begin(self, connection: Any, patience_s: float) -> None:
        self._check_files()
        connection.execute(f"PRAGMA busy_timeout = {round(patience_s * 1000)}")
        connection.execute(self.begin_writing)

    def _in_transaction(self, connection: Any) -> bool:
        return bool(connection.in_transaction)

    def _check_files(self) -> None:
        wal = _identity(self._wal)
        if self._wal_identity is None:
            self._wal_identity = wal
        if _identity(self._path) != self._identity or wal != self._wal_identity:
            raise StoreBroken(
                f"{self.where} or its -wal file was moved or replaced while in use; "
                "stop the server, put the files back, and start again"
            )

    def _check_log(self) -> None:
        """Check that the log still has its header: without it, the rest cannot be read."""
        with self._translated(), self._wal.open("rb") as log:
            start = log.read(4)
        if start and start[:3] != _WAL:
            raise StoreBroken(
                f"the -wal file of {self.where} was emptied while in use; "
                "stop the server, put the files back, and start again"
            )
        self._wal_size = _size(self._wal)

    def _write_note(self) -> None:
        if self._lock is not None:
            note = f"{os.getpid():>10} {self.acknowledged:>20}\n".encode()
            with suppress(OSError):  # it only helps to explain
                os.pwrite(self._lock, note, 0)

    def _translate(self, error: Exception) -> RoostError | None:
        if isinstance(error, OSError):
            if error.errno in _NO_SPACE:
                return self._full()
            if error.errno in _NO_FILES:
                return self._no_files()
            return StoreBroken(f"cannot open {self.where}: {error.strerror}")
        if isinstance(error, sqlite3.IntegrityError):
            return Conflict(f"{self.where}: {_line(error)}")
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
            return Fatal(f"{self.where}: {_line(error)}")
        if isinstance(error, OverflowError):
            return InvalidSpec("a number is too large for the store")
        if isinstance(error, UnicodeDecodeError):  # a message that quotes damage
            return StoreBroken(f"{self.where} is damaged; restore a backup")
        if isinstance(error, sqlite3.Error):
            return self._translate_code(error)
        return None

    def _translate_code(self, error: sqlite3.Error) -> RoostError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        match code & 0xFF:
            case sqlite3.SQLITE_FULL:
                return self._full()
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreBusy(f"{self.where} is locked by another process; try again")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return StoreBroken(f"{self.where} cannot be written to; check owner and mode")
        unopened = code & 0xFF in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
        if unopened and _few_files():
            return self._no_files()
        if code in _SIDE_FILES and self._is_scarce():
            return self._full()
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
            return StoreBroken(f"cannot open {self.where}; check that it is there, owner and mode")
        if code & 0xFF == sqlite3.SQLITE_IOERR:
            return StoreBroken(f"{self.where}: {_line(error)}; check the disk, then start again")
        return StoreBroken(f"{self.where} is damaged ({_line(error)}); restore a backup")

    def _full(self) -> StoreFull:
        return StoreFull(f"the disk that holds {self.where} is full; make room on it")

    def _no_files(self) -> StoreLost:
        # Others close some of theirs sooner or later; whether a commit came through is not known.
        return StoreLost(f"too many files are open to work with {self.where}; raise ulimit -n")

    def _is_scarce(self) -> bool:
        """Whether there is no room for side files; only writing tells, because of quotas."""
        draft = self._path.with_name(f".{uuid4().hex}.tmp")
        try:
            draft.write_bytes(bytes(_SCARCE_BYTES))
        except OSError as error:
            return error.errno in _NO_SPACE
        finally:
            with suppress(OSError):
                draft.unlink()
        return False


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as it is at one moment, also while a server writes to it."""
    if not source.is_file():
        raise InvalidSpec(f"there is no database {source}")
    try:
        _make(target)
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as found,
            closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            # All pages in one step: of one moment, however much is written meanwhile.
            found.backup(copy, pages=-1)
            # A file of its own, without the log beside it that the original has.
            copy.execute("PRAGMA journal_mode = DELETE")
            wrong = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    except (OSError, sqlite3.Error) as error:
        raise StoreBroken(f"{source} cannot be copied: {_line(error)}") from None
    if wrong != "ok":
        raise StoreBroken(f"{source} is damaged ({wrong}); restore an older backup")


def _make(path: Path) -> None:
    """An empty file that only its owner may read, if there is none."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not path.is_file():
            raise IsADirectoryError(errno.EISDIR, "it is not a regular file") from None
    else:
        _sync(path.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _few_files() -> bool:
    """Whether descriptors are so few that SQLite, which does not say, has lacked one."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError as error:
        return error.errno in _NO_FILES
    return most != resource.RLIM_INFINITY and used + _FEW_FILES > most


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _note(content: bytes) -> tuple[int, int]:
    """The process and the last number in a lock file; zeros where it does not say."""
    found = _NOTE.fullmatch(content)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
