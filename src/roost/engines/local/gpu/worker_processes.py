"""The processes of a worker: its tree, and what left it to get away.

A process that forks twice becomes a child of the shim, beside the workers: the shim is the reaper
of all that is below it. A child that is no worker belongs to the worker of its session. One that
began a session of its own could belong to any, and goes with every worker of its run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from roost.engines.local.gpu.signals import children, family
from roost.engines.local.shim import process_tree

_SHIM = b"/shim/__main__.py"


class WorkerProcesses:
    """The processes of one worker; ``others`` are the numbers of its run's other workers."""

    def __init__(self, pid: int, others: Iterable[int] = ()) -> None:
        self._pid = pid
        self.others = frozenset(others)
        self._shim: tuple[int, bool] = (0, False)

    def __call__(self) -> list[process_tree.ProcessInfo]:
        """All that are alive, parents first."""
        below = children()
        found = family(self._pid, below)
        if not found or not self._is_shim(found[0].parent):
            return found
        for one in below(found[0].parent):
            # By session, too: what another worker of this run left behind stays with that one.
            if one.pid != self._pid and self.others.isdisjoint((one.pid, one.session)):
                found += family(one.pid, below)
        return found

    def _is_shim(self, pid: int) -> bool:
        """Whether it is a shim that is above: another reaper has others' processes, too."""
        # Asked once per parent: a process that starts as a shim stays one.
        if self._shim[0] != pid:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return False
            self._shim = pid, any(word.endswith(_SHIM) for word in command)
        return self._shim[1]
