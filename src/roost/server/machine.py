"""Which machine this is, so that a client knows whether it sees the same files.

An address says nothing of it: through a tunnel another machine is 127.0.0.1, and so is a container
of the same one. A client is on the same machine if that was started at the same time as this one,
and if it finds there what the server has left in its home.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Response

from roost.api.machine import MachineView
from roost.api.schema import encode
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.roles import RoutePermission

router = APIRouter(prefix="/api/v1", tags=["health"], route_class=CheckedRoute)

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@router.get("/machine", response_model=MachineView, responses=answers(), operation_id="get_machine")
async def get_machine(
    here: Here, _caller: Annotated[Caller, needs(RoutePermission.SELF)]
) -> Response:
    """How to find out whether the caller is on the same machine, with the same files."""
    path, nonce = here.options.probe
    takes = here.cluster.folders is not None
    return json(encode(MachineView(boot_digest(), path, nonce, takes_folders=takes)))


def boot_digest() -> str:
    """What tells this machine, since it was started, from others; it tells nothing else."""
    try:
        return hashlib.sha256(b"roost " + _BOOT.read_bytes().strip()).hexdigest()
    except OSError:
        return ""
