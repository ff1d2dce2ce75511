"""A private PostgreSQL server to throw away, from the binaries of the machine.

    with PostgresServer() as server:
        store = open_store(server.database())

It listens on a Unix socket in a folder of its own, and on a port of the loopback interface if it is
asked to. PostgreSQL refuses to run as root; then another account is used. Syncing is off: processes
may be killed, the machine may not.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

_ACCOUNTS = ("postgres", "nobody")
_USER = "roost"
_START_S = 60.0
_SETTINGS = (
    "fsync=off",
    "full_page_writes=off",
    "max_connections=60",
    "shared_buffers=32MB",
    "dynamic_shared_memory_type=mmap",  # in its own folder, so that nothing outlives a kill
)


class PostgresServer:
    """A server with an empty cluster; started by ``with``, stopped and removed at its end."""

    def __init__(self, *, tcp: bool = False) -> None:
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port() if tcp else 5432
        self._addresses = "127.0.0.1" if tcp else ""

    @staticmethod
    def missing() -> str:
        """Why there can be no server here; empty if there can."""
        if _binary("initdb") is None or _binary("postgres") is None:
            return "needs PostgreSQL's initdb and postgres"
        if os.geteuid() == 0 and _account() is None:
            return "PostgreSQL does not run as root, and there is no other account"
        return ""

    def __enter__(self) -> Self:
        # Not below pytest's folders: the path of a socket may only have 107 letters.
        self._folder = Path(tempfile.mkdtemp(prefix="roost-pg-", dir="/tmp"))
        try:
            account = _account()
            if account is not None:
                os.chown(self._folder, account.pw_uid, account.pw_gid)
            words = ["--auth=trust", f"--username={_USER}", "--no-sync", "--encoding=UTF8"]
            initdb = [str(_binary("initdb")), *words, "--locale=C", "-D", str(self._data)]
            subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **_as_account())  # noqa: S603 - ours
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process of the server itself."""
        if self._process is None:
            raise ProcessLookupError("the server does not run")
        return self._process.pid

    @property
    def socket(self) -> Path:
        """Where clients of this machine connect."""
        return self._folder / f".s.PGSQL.{self.port}"

    def start(self) -> None:
        """Start the server on the data there is, and wait until it answers."""
        settings = (*_SETTINGS, f"listen_addresses={self._addresses}", f"port={self.port}")
        command = [str(_binary("postgres")), "-D", str(self._data), "-k", str(self._folder)]
        for setting in settings:
            command += ["-c", setting]
        if (setpriv := shutil.which("setpriv")) is not None:
            # So that it ends with the test, even if the test is killed.
            command = [setpriv, "--pdeathsig", "QUIT", "--", *command]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - ours
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_as_account()
            )
        self._wait()

    def stop(self) -> None:
        """Stop the server and everything it does at once, in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_START_S)
            self._process = None

    def kill(self) -> None:
        """Kill every process of the server, as a crash would."""
        pid = self.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for one in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_START_S)
            self._process = None

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"roost_{uuid4().hex[:12]}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        """The URL of a database by name."""
        return f"postgresql://{_USER}@/{name}?host={self._folder}&port={self.port}"

    def run(self, name: str, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement as the database's keeper, outside any transaction."""
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(self.url(name), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _wait(self) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        end = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                gone = self._process is None or self._process.poll() is not None
                if gone or time.monotonic() > end:
                    log = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
                    raise RuntimeError(f"PostgreSQL does not start:\n{log}") from None
                time.sleep(0.02)
            else:
                return


def _binary(name: str) -> Path | None:
    """A program of PostgreSQL, the newest one of the machine."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
    for folder in reversed(versions):
        if os.access(folder / name, os.X_OK):
            return folder / name
    found = shutil.which(name)
    return None if found is None else Path(found)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


def _account() -> pwd.struct_passwd | None:
    """Whom to run as instead of root; None: nobody else, or not needed."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _as_account() -> dict[str, Any]:
    account = _account()
    if account is None:
        return {"cwd": "/"}
    return {"cwd": "/", "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
