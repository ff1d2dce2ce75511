"""Small JSON records written in place: space is set aside first, so a full disk cannot stop them.

A file holds two slots of equal size. Each write goes to the older one, in one call and with a sum.
A reader takes the newest slot that is whole: a torn write leaves the one before.
"""

from __future__ import annotations

import binascii
import os

from roost.engines.local.shim.stdlib_subset import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Bytes of a slot: a page, so that most records are written whole or not at all.
PAGE = 4096


def create(name: str, folder: int, slot: int = PAGE) -> int:
    """Set space aside for a new record and open it; an older one there is kept as it is."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        if not os.fstat(fd).st_size:
            os.posix_fallocate(fd, 0, 2 * slot)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write(fd: int, body: dict[str, object]) -> None:
    """Put a record in the place of the older of the two."""
    slot = os.fstat(fd).st_size // 2
    # The older slot: the newest record is never touched while the next one is written.
    newest = max((number for number, _ in _slots(fd, slot)), default=0) + 1
    text = b"%010d %s" % (newest, dumps(body).encode())
    line = b"%08x %s\n" % (binascii.crc32(text), text)
    if len(line) > slot:
        raise ValueError(f"a record of {len(line)} bytes in a slot of {slot}")
    os.pwrite(fd, line, newest % 2 * slot)


def read(fd: int) -> dict[str, Any] | None:
    """The newest whole record, if there is one."""
    slot = os.fstat(fd).st_size // 2
    found = sorted(_slots(fd, slot))
    return loads(found[-1][1].decode()) if found else None


def _slots(fd: int, slot: int) -> list[tuple[int, bytes]]:
    found = []
    for place in (0, slot):
        line = os.pread(fd, slot, place).partition(b"\n")[0]
        crc, text = line[:8], line[9:]
        if text and b"%08x" % binascii.crc32(text) == crc:
            found.append((int(text[:10]), text[11:]))
    return found
