"""A real server in a folder of its own: started, asked, killed and started again.

What it prints goes to a file beside its home. A request that is not answered has an unknown
outcome, and says so (None); whoever asked has to ask again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from roost.errors import Fatal
from roost.store import open_store
from roost.store.rows import JobQuery, JobRow, JournalEntry

#: The command that serves, as users type it.
UP = (sys.executable, "-c", "import sys; from roost.cli import main; sys.exit(main())", "up")
_READY_S = 60.0
_ANSWER_S = 30.0
_POLL_S = 0.02
_NOTHING: Mapping[str, str] = {}


class ServerProcess:
    """A server of one home, and the way to it; ``store`` is a database instead of the home's.

    Without ``slots`` it offers the GPUs of this machine.
    """

    def __init__(self, home: Path, slots: int | None, store: str = "") -> None:
        self.home, self.slots, self.store = home, slots, store
        self.points = home.with_name(f"{home.name}.failpoints")
        self.out = home.with_name(f"{home.name}.out")
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(timeout=_ANSWER_S)
        home.parent.mkdir(parents=True, exist_ok=True)

    # -- life ----------------------------------------------------------------------------------

    def start(
        self,
        failpoint: str = "",
        before: Sequence[str] = (),
        env: Mapping[str, str] = _NOTHING,
        options: Sequence[str] = (),
    ) -> None:
        """Start a server, which dies at that failpoint (``NAME:COUNT``).

        ``before`` are words before its command (a program that becomes the server in the end, in
        the same process), ``env`` further variables, ``options`` further ones of ``roost up``.
        """
        if self.alive:
            raise Fatal(f"a server of {self.home} is there already")
        env = {
            **os.environ,
            "ROOST_HOME": str(self.home),
            "ROOST_FAILPOINT_LOG": str(self.points),
            **env,
        }
        env.pop("ROOST_TOKEN", None)
        env.pop("ROOST_URL", None)
        if failpoint:
            env["ROOST_FAILPOINT"] = failpoint
        command = [*before, *UP, "--port", "0"]
        if self.slots is not None:
            command += ["--slots", str(self.slots)]
        if self.store:
            command += ["--store", self.store]
        command += options
        with self.out.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ready(self, *, want: int = 200) -> bool:
        """Wait until it answers so; False if it died before. 503: it takes nothing new."""
        deadline = time.monotonic() + _READY_S
        while self.alive:
            answer = self.ask("GET", "/readyz") if self._found() else None
            if answer is not None and answer.status_code == want:
                return True
            if time.monotonic() > deadline:
                raise Fatal(f"the server was not ready in {_READY_S:g} s; see {self.home}")
            time.sleep(_POLL_S)
        return False

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid if self._process is not None else 0

    @property
    def status(self) -> int | None:
        """How the last process ended; None while it lives."""
        return self._process.poll() if self._process is not None else None

    def kill(self) -> None:
        """End it with SIGKILL, wherever it is."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop, and wait."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """Leave nothing of the server behind."""
        self.kill()
        self._client.close()

    def send(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def ended(self, within_s: float = _READY_S) -> int | None:
        """Wait until it ends by itself; its status, None if it does not."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(within_s) if self._process is not None else None
        return None

    def said(self) -> str:
        """What all servers of this home have printed."""
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    def _end(self, number: int) -> None:
        if self._process is not None:
            self.send(number)
            try:
                self._process.wait(_READY_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise Fatal(f"the server did not stop; see {self.home}") from None

    def _found(self) -> bool:
        """Whether the files say where this very process listens."""
        try:
            told = json.loads((self.home / "server.json").read_text())
            token = (self.home / "token").read_text().strip()
        except (OSError, ValueError):
            return False
        if self._process is None or told["pid"] != self._process.pid:
            return False
        self._client.base_url = httpx.URL(told["url"])
        self._client.headers["Authorization"] = f"Bearer {token}"
        return True

    # -- questions -----------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> httpx.Response | None:
        """One request; None if nobody knows what became of it."""
        headers = {"Idempotency-Key": key} if key else {}
        try:
            return self._client.request(method, path, json=body, headers=headers)
        except httpx.TransportError:
            return None

    def get(self, path: str) -> Any:
        """The answer to a question, as JSON."""
        answer = self.ask("GET", f"/api/v1{path}")
        if answer is None or not answer.is_success:
            raise Fatal(f"GET {path}: {answer.text if answer is not None else 'no answer'}")
        return answer.json()

    def reached(self) -> list[str]:
        """The failpoints that were reached, by each process once, in order."""
        return self.points.read_text().split() if self.points.exists() else []

    def journal(self) -> StoredEntries:
        """What the store has; the server must not be there."""
        file = self.home / "roost.db"
        if not self.store and not file.exists():
            raise Fatal(f"no server ever came to serve {self.home}")
        return StoredEntries(self.store or f"sqlite://{file}")


class StoredEntries:
    """What a store has, read while nobody serves it."""

    def __init__(self, url: str) -> None:
        with open_store(url) as store:
            self.entries: list[JournalEntry] = list(store.journal.entries())
            self.snapshots: list[tuple[int, str]] = list(store.journal.snapshots())
            self.rows: dict[str, JobRow] = {}
            while True:
                query = JobQuery(sort="id", offset=len(self.rows), limit=200)
                page = store.jobs.find(query)
                self.rows.update((row.id, row) for row in page.items)
                if len(self.rows) >= page.total or not page.items:
                    break


def holders(folder: Path) -> list[int]:
    """Processes that have a file in a folder open, this one left out."""
    inside, found = f"{folder}{os.sep}", []
    for name in os.listdir("/proc"):  # noqa: PTH208 - by far the fastest
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            links = (os.readlink(f"/proc/{name}/fd/{fd}") for fd in os.listdir(f"/proc/{name}/fd"))  # noqa: PTH115, PTH208
            if any(link.startswith(inside) for link in links):
                found.append(int(name))
    return found
