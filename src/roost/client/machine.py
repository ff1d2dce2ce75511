"""Whether the server runs on this machine, and sees the same files.

Its address does not tell: 127.0.0.1 may be the end of a tunnel. So the server says since when its
machine runs, and names a file in its home; both have to be found here, too.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

from roost.api.machine import MachineView
from roost.api.manifests import CLUSTER_BOUND, SERVER_BOUND, FolderBound
from roost.api.schema import decode
from roost.client.conversations import Steps, ask, get
from roost.errors import NotFound

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST_BYTES = 200


class ServerMachine(NamedTuple):
    """Where the server is: ``same``, on this machine; and which folders can be sent to it."""

    same: bool
    takes_folders: bool
    bound: FolderBound = SERVER_BOUND


#: A pod has neither the caller's folder nor its interpreter.
POD = ServerMachine(same=False, takes_folders=True, bound=CLUSTER_BOUND)


def server_machine(guess: bool) -> Steps[ServerMachine]:  # noqa: FBT001 - the only thing given
    """Ask the server; of an older one, ``guess`` whether it is on this machine."""
    try:
        told = (yield from ask(get("/machine"))).json()
    except NotFound:
        return ServerMachine(guess, takes_folders=False)
    view = decode(MachineView, told)
    return ServerMachine(_is_here(view), view.takes_folders)


def _is_here(view: MachineView) -> bool:
    try:
        boot = hashlib.sha256(b"roost " + _BOOT.read_bytes().strip()).hexdigest()
    except OSError:  # no Linux: the file has to do
        boot = view.boot
    return bool(view.path and view.nonce) and boot == view.boot and _reads(view)


def _reads(view: MachineView) -> bool:
    """Whether the file that the server named is here; a pipe or a device is not waited for."""
    try:
        fd = os.open(view.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    with os.fdopen(fd, "rb") as file:
        plain = stat.S_ISREG(os.fstat(fd).st_mode)
        return plain and file.read(_MOST_BYTES).strip() == view.nonce.encode()
