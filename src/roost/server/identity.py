"""Whether a home is the one: its id, and the place where that id was last at home.

A copy of a home has the same id, database and records of runs as the original. A server on it would
take the original's processes for its own: kill what it cannot adopt, and start it again. So
``home.json`` says where the home is: the machine, and the device and inode of its folder. A home
that finds itself elsewhere does nothing until a person says what it is:

- *moved*: the original is gone. It goes on as the same home, one generation later.
- *a copy*: it gets an id of its own, and nothing that began in the original is its concern. Until
  that has been settled with the journal, ``copy_of`` names the original's id.

A folder that is renamed keeps device and inode. Where a file system is mounted anew its device may
get another number: then the same path and inode will do. An inode is given out again only when the
folder that had it is gone.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from roost.errors import Conflict, InvalidSpec, NotFound
from roost.files import load, save_private
from roost.store.rows import HomeRow

#: What a person says of a home that is not where it was.
Origin = Literal["", "copy", "moved"]

#: The format of ``home.json``.
FORMAT = 1
_ID = re.compile("[0-9a-f]{32}")
#: The generation of a home that was made before homes knew their place.
_UNPLACED = 0
#: What tells machines apart; the second one also tells clones of a virtual machine apart.
_MACHINE = ("/etc/machine-id", "/sys/class/dmi/id/product_uuid")


class HomePlace(NamedTuple):
    """Where a home is; zeros and empty texts where that is not known."""

    machine: str = ""
    device: int = 0
    inode: int = 0
    path: str = ""
    host: str = ""

    def is_at(self, other: HomePlace) -> bool:
        """Whether two places are one."""
        if self.machine and other.machine and self.machine != other.machine:
            return False
        same_folder = self.device == other.device or self.path == other.path
        return bool(self.inode) and self.inode == other.inode and same_folder


NOWHERE = HomePlace()


@dataclass(frozen=True, slots=True)
class HomeIdentity:
    """What tells a home from all others, copies of it included."""

    id: str
    generation: int = 1
    place: HomePlace = NOWHERE
    copy_of: str = ""

    @property
    def row(self) -> HomeRow:
        """The same, as a database knows its home."""
        return HomeRow(self.id, self.place.path, self.place.host, self.generation)


def claim(home: Path, origin: Origin = "") -> HomeIdentity:
    """Who a home is, written down; raises Conflict where only a person can tell.

    ``origin`` is what the person said. Nothing is written where it is refused.
    """
    known, here = read(home), place_of(home)
    if known is None:
        found = HomeIdentity(secrets.token_hex(16), place=here)
    elif known.generation == _UNPLACED and not origin:
        return replace(known, place=here)  # written when its database agrees
    elif known.place.is_at(here):
        found = replace(known, place=here)
        if origin == "copy" and not known.copy_of:
            raise Conflict(f"{home} is no copy: it is where it was; start it without --as-copy")
    else:
        found = _elsewhere(home, known, here, origin)
    if found != known:
        _write(home, found)
    return found


def settle(home: Path, identity: HomeIdentity) -> None:
    """Note that a server came up: a copy has left behind what was the original's."""
    settled = replace(identity, copy_of="", generation=max(identity.generation, 1))
    if settled != identity:
        _write(home, settled)


def misplace(home: Path, known: HomeIdentity) -> None:
    """Have a home that was restored say that it is nowhere, however much it looks like the one."""
    lost = HomePlace(path=known.place.path, host=known.place.host)
    _write(home, replace(known, place=lost, generation=max(known.generation, 1)))


def read(home: Path) -> HomeIdentity | None:
    """What ``home.json`` says; None where there is none. Older homes have a file ``id``."""
    file = home / "home.json"
    try:
        told = json.loads(load(file).text)
        if told.get("format", 0) > FORMAT:
            raise InvalidSpec(
                f"{file} was written by a newer Roost (format {told['format']}; this one knows "
                f"{FORMAT}): upgrade Roost"
            )
        place = HomePlace(**{name: told["place"][name] for name in HomePlace._fields})
        found = HomeIdentity(told["id"], told["generation"], place, told["copy_of"])
        known = bool(_ID.fullmatch(found.id)) and isinstance(found.generation, int)
    except NotFound:
        return _read_old(home)
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise InvalidSpec(f"{file} is damaged: restore it, or remove it and use --adopt-home")
    return found


def place_of(home: Path) -> HomePlace:
    """Where a folder is now."""
    status = home.stat()
    return HomePlace(_machine(), status.st_dev, status.st_ino, str(home), socket.gethostname())


def _elsewhere(home: Path, known: HomeIdentity, here: HomePlace, origin: Origin) -> HomeIdentity:
    """Who a home is that is not where it was."""
    there = f"{known.place.path or 'an unknown place'} on {known.place.host or 'another machine'}"
    if origin == "copy":
        original = known.copy_of or known.id
        return HomeIdentity(secrets.token_hex(16), place=here, copy_of=original)
    if origin == "moved":
        if (original_path := _still_there(known, home)) is not None:
            raise Conflict(
                f"{home} was not moved: the original is still at {original_path}. Start that one, "
                "or remove it first, or start this one with: roost up --as-copy"
            )
        found = known.copy_of or known.id
        return HomeIdentity(found, known.generation + 1, here)
    raise Conflict(
        f"{home} is not where it was ({there}): it was copied, restored or moved, and nothing was "
        "done. If the original is gone: roost up --moved (takes over; what ran there starts again "
        "from its last checkpoints). If the original is still in use: roost up --as-copy (a home "
        "of its own; what began in the original stays there and is cancelled here)"
    )


def _still_there(known: HomeIdentity, home: Path) -> str | None:
    """Where the original can still be seen on this machine."""
    path = Path(known.place.path)
    if not known.place.path or path == home:
        return None
    with suppress(OSError, InvalidSpec):
        other = read(path)
        if other is not None and other.id == known.id and place_of(path).is_at(other.place):
            return str(path)
    return None


def _machine() -> str:
    """What tells this machine from others; empty where nothing does."""
    found = []
    for name in _MACHINE:
        with suppress(OSError):
            found.append(Path(name).read_text(encoding="ascii", errors="replace").strip())
    text = "\n".join(found)
    return hashlib.sha256(text.encode()).hexdigest()[:32] if text.strip() else ""


def _read_old(home: Path) -> HomeIdentity | None:
    """The identity of a home that was made before it knew its place."""
    file = home / "id"
    try:
        known = load(file).text.strip()
    except NotFound:
        return None
    if not _ID.fullmatch(known):
        raise InvalidSpec(f"{file} is damaged: restore it, or remove it and use --adopt-home")
    return HomeIdentity(known, _UNPLACED)


def _write(home: Path, identity: HomeIdentity) -> None:
    body = {"format": FORMAT, **asdict(identity), "place": identity.place._asdict()}
    save_private(home / "home.json", json.dumps(body, indent=2))
    with suppress(FileNotFoundError):
        (home / "id").unlink()  # of an older Roost; it would outlive a change of the id
