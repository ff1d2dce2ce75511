"""Where the server is, and the token to show it.

The first of these that says so:

    1. a name: of a login (``on``, ``ROOST_ON``), or an address that the program gives
    2. ``ROOST_URL``, with ``ROOST_TOKEN``
    3. the files that ``roost up`` leaves in ``ROOST_HOME``, while that server runs
    4. the default login

The token of the home is shown to the server of that home and to no other: it is an
administrator's. The token of a login is shown to its server alone.
"""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from roost.client import logins
from roost.client.certificates import TrustedCertificates, from_file
from roost.client.errors import NoServer
from roost.errors import InvalidSpec

_OTHERS_WRITE = 0o022
#: Whom to trust: a file of certificates, or such as were read already.
Trust = str | os.PathLike[str] | TrustedCertificates
#: Where a server listens unless it was told otherwise.
USUAL = "http://127.0.0.1:8610"


class Endpoint(NamedTuple):
    """A server: its address, the token, whether it runs on this machine, and whom to trust."""

    url: str
    token: str
    local: bool
    trusted: TrustedCertificates = TrustedCertificates()


class ServerNote(NamedTuple):
    """What the server of a home says of itself."""

    url: str
    token_file: Path
    certificate: str


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
    *,
    on: str | None = None,
    ca: Trust | None = None,
) -> Endpoint:
    """The server that is meant; raises NoServer if nothing tells of one."""
    if url and on:
        raise InvalidSpec(f"{url} and the login {on!r} are two servers: name one of them")
    login = on or ("" if url else os.environ.get("ROOST_ON", ""))
    if login:
        return _with_ca(_logged_in(login, token), ca)
    base = home(folder)
    named = url or os.environ.get("ROOST_URL") or ""
    own = _served(base, known=bool(named))
    if not named and own is None:
        usual = "" if folder else logins.read().default
        if not usual:
            raise NoServer(USUAL)
        return _with_ca(_logged_in(usual, token), ca)
    address = named.rstrip("/") or (own.url if own else "")
    shown = token if token is not None else os.environ.get("ROOST_TOKEN", "")
    if own is None or address != own.url:
        return _with_ca(Endpoint(address, shown, is_loopback(address)), ca)
    shown = shown or _read(own.token_file).strip()
    return _with_ca(
        Endpoint(
            address, shown, local=True, trusted=TrustedCertificates(own.certificate, exact=True)
        ),
        ca,
    )


def _logged_in(name: str, token: str | None) -> Endpoint:
    login = logins.read().named(name)
    trusted = TrustedCertificates(login.ca)
    return Endpoint(login.url, token or login.token, is_loopback(login.url), trusted)


def _with_ca(place: Endpoint, given: Trust | None) -> Endpoint:
    """The same server, with the CA that is given, or else that of the environment."""
    if isinstance(given, TrustedCertificates):
        return place._replace(trusted=given)
    file = given or ("" if place.trusted.text else os.environ.get("ROOST_CA", ""))
    return place._replace(trusted=from_file(file)) if file else place


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


def _served(base: Path, *, known: bool) -> ServerNote | None:
    """The server that runs from this home, if there is one.

    Where it is not asked for, a server that is gone or a note that is damaged is no error.
    """
    try:
        return _noted(base)
    except (NoServer, InvalidSpec):
        if not known:
            raise
        return None


def _noted(base: Path) -> ServerNote | None:
    text = _read(base / "server.json", trusted=True)
    if not text:
        return None
    try:
        note = json.loads(text)
        url, pid, ticks = str(note["url"]), note.get("pid"), note.get("ticks")
        token_file = Path(str(note.get("token_file") or base / "token"))
        certificate = str(note.get("certificate") or "")
        elsewhere = note.get("inode", 0) not in (0, base.stat().st_ino)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSpec(f"{base / 'server.json'} is damaged; roost up writes it anew") from None
    if elsewhere:  # it came with a copy of the home, and names the original's server
        raise NoServer(url, others=sorted(logins.read().servers))
    # Without /proc (macOS) the process cannot be checked, and the note is believed.
    if isinstance(ticks, int) and Path("/proc/self/stat").exists() and _ticks(pid) != ticks:
        raise NoServer(url, others=sorted(logins.read().servers))
    return ServerNote(url.rstrip("/"), token_file, certificate)


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
