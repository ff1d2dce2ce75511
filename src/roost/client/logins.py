"""The servers that a user has logged in to, kept in a private file of the user's own.

``$XDG_CONFIG_HOME/roost/servers.json`` (``~/.config`` by default) holds addresses, tokens and
certificates, and which server is meant where none is named. Its folder and the file are for their
owner alone; a file that others could have read or written is refused rather than used.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roost.errors import InvalidSpec, NotFound, unknown
from roost.files import save

_OTHERS = 0o077
_MOST_BYTES = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Login:
    """A server that one has logged in to; ``ca`` is the text of the certificates to trust."""

    url: str
    token: str
    ca: str = ""
    user: str = ""


@dataclass(slots=True)
class LoginFile:
    """All logins by name, and which one is meant where none is named."""

    servers: dict[str, Login] = field(default_factory=dict)
    default: str = ""

    def named(self, name: str) -> Login:
        """The login of that name; raises NotFound with the nearest."""
        if name not in self.servers:
            if not self.servers:
                raise NotFound(f"no server is named {name!r}: log in with roost login URL")
            raise unknown("server", name, self.servers)
        return self.servers[name]

    def add(self, name: str, login: Login, *, default: bool | None) -> None:
        """Keep a login; the first becomes the default unless told otherwise."""
        self.servers[name] = login
        if default or (default is None and not self.default):
            self.default = name
        elif default is False and self.default == name:
            self.default = ""

    def remove(self, name: str) -> Login:
        """Forget a login; the only one that is left becomes the default."""
        gone = self.named(name)
        del self.servers[name]
        if self.default == name:
            self.default = next(iter(self.servers)) if len(self.servers) == 1 else ""
        return gone


def path() -> Path:
    """Where the logins are kept."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "roost" / "servers.json"


def read() -> LoginFile:
    """The logins of this user; none where there is no file. Raises InvalidSpec."""
    file = path()
    try:
        with file.open(encoding="utf-8") as opened:
            # Of the open file: what is checked is what is read.
            status = os.fstat(opened.fileno())
            if status.st_uid != os.geteuid():
                raise InvalidSpec(f"{file} belongs to somebody else: it may lead anywhere")
            if status.st_mode & _OTHERS:
                raise InvalidSpec(
                    f"others can read {file}, which holds tokens: run chmod 600 {file}, "
                    "and revoke them if others may have"
                )
            text = opened.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return LoginFile()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidSpec(f"cannot read {file}: {why}") from None
    try:
        return _understood(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSpec(f"{file} is damaged; remove it and log in again") from None


@contextmanager
def changing() -> Iterator[LoginFile]:
    """The logins, to be changed; written as a whole at the end, unless anything is raised."""
    folder = path().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidSpec(f"cannot use {folder}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise InvalidSpec(f"{folder} belongs to somebody else")
        if status.st_mode & _OTHERS:
            os.fchmod(descriptor, 0o700)
        # Two logins at once must not forget each other.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        found = read()
        yield found
        save(path(), json.dumps(asdict(found), indent=2) + "\n", 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checked_name(name: str) -> str:
    """A name that can be typed and printed anywhere; raises InvalidSpec."""
    if not _NAME.fullmatch(name):
        raise InvalidSpec(f"{name!r} cannot name a server: letters, digits, '.', '_' and '-' can")
    return name


def _understood(told: Mapping[str, Any]) -> LoginFile:
    servers = {
        checked_name(str(name)): Login(
            str(one["url"]),
            str(one["token"]),
            str(one.get("ca", "")),
            str(one.get("user", "")),
        )
        for name, one in told["servers"].items()
    }
    default = str(told.get("default", ""))
    return LoginFile(servers, default if default in servers else "")
