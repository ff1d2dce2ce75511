"""One worker: a process that was started, its id among the members, and where its output goes."""

from __future__ import annotations

import os

from roost.engines.local.shim import spawn
from roost.engines.local.shim.stdlib_subset import ignoring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.engines.local.shim.output import WorkerLog

#: What tells a worker of its place in a cluster of a fixed size.
_FIXED = ("TF_CONFIG", "PAI_")


class WorkerProcess:
    """A process that was started, its id among the members, and the log of its output."""

    def __init__(self, what: dict[str, Any], log: WorkerLog) -> None:
        self.what, self.log = what, log
        self.pid = self.pipe = 0
        self.running = False

    @property
    def member(self) -> str:
        """Its id among those that train together; empty if it is none of them."""
        return str(self.what.get("member") or "")

    def start(self, order: dict[str, Any]) -> int:
        """Start it; a pipe that tells how that went."""
        self.pipe, out = os.pipe()
        os.set_blocking(self.pipe, False)
        try:
            self.pid, heard = spawn.spawn(order, self.what, out)
        finally:
            os.close(out)
        self.running = True
        return heard

    def signal(self, number: int) -> None:
        """Signal its process group; its number is taken as long as it is not reaped."""
        if self.running:
            with ignoring(OSError):
                os.killpg(self.pid, number)


def placed(pattern: dict[str, Any], seat: dict[str, Any], rank: int, member: str) -> dict[str, Any]:
    """What a new worker runs: what the first one did, at its own place."""
    env = {name: value for name, value in pattern["env"].items() if not name.startswith(_FIXED)}
    name = f"{pattern['role']}-{rank}"
    return {
        **pattern,
        "name": name,
        "leaf": f"{name}.{member}",
        "index": rank,
        "member": member,
        "env": {**env, **seat["env"], "ROOST_MEMBER": member},
        "cpus": seat["cpus"],
    }
