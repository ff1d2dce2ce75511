"""The folder of a server: its token, and the note that says where it runs.

``token`` is an administrator's, readable by its owner alone; a file that others can read is refused
rather than repaired: it may have been read. ``server.json`` names the process by its
number *and* the moment it began, so that a number used again is never taken for the server; and the
inode of its folder, so that the note in a copy of a home does not name the original's server.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from select import select

from roost.errors import Conflict, InvalidSpec
from roost.files import save, save_private

_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that runs: its address, and the process that it is."""

    url: str
    pid: int
    ticks: int
    started_at: float
    version: str = ""
    #: For the command line of the same account: where the token is, and what TLS to expect.
    token_file: str = ""
    certificate: str = ""
    inode: int = 0
    #: Whether SIGHUP has it read its config file again.
    reloads: bool = False

    def send(self, number: signal.Signals, wait_s: float) -> bool:
        """Signal the server, and no other process; whether it has ended by then."""
        try:
            process = os.pidfd_open(self.pid)
        except OSError:
            return True
        try:
            # After the pidfd: from there on the number cannot pass to another process unnoticed.
            if ticks_of(self.pid) != self.ticks:
                return True
            signal.pidfd_send_signal(process, number)
            ended, _, _ = select([process], [], [], wait_s)
            return bool(ended)
        except PermissionError:
            raise Conflict(f"the server with pid {self.pid} belongs to somebody else") from None
        except ProcessLookupError:
            return True
        finally:
            os.close(process)


class Home:
    """The folder of a server."""

    def __init__(self, path: Path, token: Path | None = None) -> None:
        self.path = path.expanduser().absolute()
        self.token_file = token.expanduser().absolute() if token else self.path / "token"
        self.log_file = self.path / "server.log"
        self._note = self.path / "server.json"

    def prepare(self) -> None:
        """Make the folder; as root others may pass through it, to the folders of their jobs."""
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            if not self.path.exists():
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.path.chmod(mode)  # whatever the umask says
            status = self.path.stat()
        except OSError as error:
            raise InvalidSpec(f"cannot use {self.path}: {error.strerror}") from None
        if status.st_uid != os.geteuid():
            raise InvalidSpec(f"{self.path} belongs to another account; set ROOST_HOME")
        if status.st_mode & 0o022:
            raise InvalidSpec(f"others can write to {self.path}; run: chmod go-w {self.path}")

    def token(self) -> str | None:
        """The administrator's token, if there is one; raises InvalidSpec if others can read it."""
        try:
            file = os.open(self.token_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidSpec(f"cannot read {self.token_file}: {error.strerror}") from None
        with os.fdopen(file, encoding="ascii", errors="replace") as text:
            # Of the open file: the one with this name may be another by now.
            status = os.fstat(text.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise InvalidSpec(f"{self.token_file} is not a file of yours")
            if status.st_mode & 0o077:
                raise InvalidSpec(
                    f"others can read {self.token_file}: remove it, and the next start makes a new "
                    "token; then revoke the old one"
                )
            return text.read(_MOST_BYTES).strip()

    def keep_token(self, secret: str) -> None:
        """Write the token for its owner alone."""
        save_private(self.token_file, secret)

    def leave_probe(self) -> tuple[str, str]:
        """Write a file by which clients know that they are on this machine; it and its words."""
        words = secrets.token_hex(16)
        save(self.path / "probe", f"{words}\n", 0o644)
        return str(self.path / "probe"), words

    def running(self) -> RunningServer | None:
        """The server that runs from here, if its process is still the one that said so."""
        try:
            told = json.loads(self._note.read_text(encoding="utf-8"))
            found = RunningServer(
                str(told["url"]),
                int(told["pid"]),
                int(told["ticks"]),
                float(told["started_at"]),
                str(told.get("version", "")),
                str(told.get("token_file", "")),
                str(told.get("certificate", "")),
                int(told.get("inode", 0)),
                bool(told.get("reloads", False)),
            )
            ours = found.inode in (0, self.path.stat().st_ino)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if ours and ticks_of(found.pid) == found.ticks else None

    def refuse_second(self) -> None:
        """Raise Conflict if a server runs from here."""
        other = self.running()
        if other is not None and other.pid != os.getpid():
            raise Conflict(
                f"a server runs from {self.path} already: pid {other.pid}, {other.url}; "
                "stop it with: roost down"
            )

    def note(
        self, url: str, version: str, certificate: str = "", *, reloads: bool = False
    ) -> RunningServer:
        """Say that this process is the server, and by which certificate it is known."""
        pid, token = os.getpid(), str(self.token_file)
        inode = self.path.stat().st_ino
        began = ticks_of(pid) or 0
        running = RunningServer(
            url, pid, began, time.time(), version, token, certificate, inode, reloads
        )
        # A user that could change it could send clients, and their tokens, elsewhere.
        save(self._note, json.dumps(asdict(running), indent=2) + "\n", 0o644)
        return running

    def forget(self) -> None:
        """The server has ended; the note of one that took over stays."""
        found = self.running()
        if found is not None and found.pid == os.getpid():
            with suppress(OSError):
                self._note.unlink()


def ticks_of(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; ``None`` if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after = text.rpartition(")")[2].split()  # a name may contain anything
    return None if after[0] == "Z" else int(after[19])
