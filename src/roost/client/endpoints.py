"""Where the server is, and the token to show it.

``ROOST_URL`` and ``ROOST_TOKEN`` say so; otherwise the files that ``roost up`` leaves in
``ROOST_HOME`` do. The token of the home is shown to the server of that home and to no other: it is
an administrator's.
"""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from roost.client.errors import NoServer
from roost.errors import InvalidSpec

_OTHERS_WRITE = 0o022
#: Where a server listens unless it was told otherwise.
USUAL = "http://127.0.0.1:8610"


class Endpoint(NamedTuple):
    """A server: its address, the token, and whether it runs on this machine."""

    url: str
    token: str
    local: bool


def home(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the server on this machine."""
    return Path(given or os.environ.get("ROOST_HOME") or usual_home()).expanduser()


def usual_home() -> str:
    """Where a server lives unless it was told otherwise: of root, where other accounts can go."""
    return "/var/lib/roost" if os.geteuid() == 0 else "~/.local/share/roost"


def find(
    url: str | None = None,
    token: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Endpoint:
    """The server that is meant; raises NoServer if nothing tells of one."""
    base = home(folder)
    named = url or os.environ.get("ROOST_URL") or ""
    own = _served(base, known=bool(named))
    address = (named or own).rstrip("/")
    if not address:
        raise NoServer(USUAL)
    shown = token if token is not None else os.environ.get("ROOST_TOKEN", "")
    if not shown and address == own:
        shown = _read(base / "token").strip()
    return Endpoint(address, shown, address == own or is_loopback(address))


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine; raises InvalidSpec if it is none at all."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port  # a port that is no number shows only when it is asked for
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.username is not None or parts.password is not None:  # neither is to be shown
        raise InvalidSpec(f"the address of a server has no user and password: it is like {USUAL}")
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not (host and plain) or "?" in url or "#" in url:
        raise InvalidSpec(f"{url!r} is not the address of a server, such as {USUAL}")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _served(base: Path, *, known: bool) -> str:
    """The address of the server that runs from this home, or nothing.

    Where it is not asked for, a server that is gone or a note that is damaged is no error.
    """
    try:
        return _noted(base)
    except (NoServer, InvalidSpec):
        if not known:
            raise
        return ""


def _noted(base: Path) -> str:
    text = _read(base / "server.json", trusted=True)
    if not text:
        return ""
    try:
        note = json.loads(text)
        url, pid, ticks = str(note["url"]), note.get("pid"), note.get("ticks")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSpec(f"{base / 'server.json'} is damaged; roost up writes it anew") from None
    # Without /proc (macOS) the process cannot be checked, and the note is believed.
    if isinstance(ticks, int) and Path("/proc/self/stat").exists() and _ticks(pid) != ticks:
        raise NoServer(url)
    return url.rstrip("/")


def _ticks(pid: object) -> int | None:
    """When a process began: a process that took the port of a server that is gone gets no token."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _read(path: Path, *, trusted: bool = False) -> str:
    """What a file says; ``trusted``: only if no other user can have written it."""
    try:
        with path.open(encoding="utf-8") as file:
            # Of the open file: what is checked is what is read.
            status = os.fstat(file.fileno())
            if trusted and status.st_mode & _OTHERS_WRITE:
                raise InvalidSpec(f"others can write {path}: it may lead anywhere")
            if trusted and status.st_uid not in (0, os.geteuid(), path.parent.stat().st_uid):
                raise InvalidSpec(f"{path} belongs to somebody else: it may lead anywhere")
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidSpec(f"cannot read {path}: {why}") from None
