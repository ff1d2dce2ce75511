"""How workers are held within their memory and CPUs here, and how they are kept together.

cgroup v2 with its controllers where this process may use them; otherwise limits of each process
and affinity. A cgroup without controllers, where one can be made, still keeps the processes of a
run together, so that all of them can be killed at once.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roost.core.spec import Resources, RunId

_PERIOD_US = 100_000
_WANTED = frozenset({"memory", "cpu"})


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What this machine lets us use; ``str`` says it in a sentence."""

    base: Path | None
    controllers: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.controllers:
            names = " and ".join(sorted(self.controllers))
            return f"limits of {names} by cgroup v2 in {self.base}"
        rest = f"; processes are kept together by {self.base}" if self.base else ""
        return (
            "memory is limited for each process (RLIMIT_DATA) and CPUs by affinity: "
            f"no cgroup v2 controllers may be used here{rest}"
        )

    def group(self, run: RunId) -> str:
        """The cgroup of a run; "" where there is none."""
        return str(self.base / f"{run.job}.{run.attempt}") if self.base else ""

    def prepare(self, group: str) -> None:
        """Make the cgroup of a run and let the ones of its workers have limits."""
        if group:
            Path(group).mkdir(exist_ok=True)
        if group and self.controllers:
            _enable(Path(group), self.controllers)

    def move(self, group: str, shim: int) -> None:
        """Put a shim that is starting up into a cgroup without limits, and so its workers.

        This takes the kernel as long as the shim takes to start, so it is done meanwhile. Where
        there are limits, workers enter their own cgroups, and the shim stays outside.
        """
        if group and not self.controllers:
            with suppress(OSError):
                (Path(group) / "cgroup.procs").write_text(str(shim))

    def files(self, need: Resources) -> dict[str, str]:
        """What to write into a worker's cgroup."""
        found = {}
        if "memory" in self.controllers and need.memory_mib:
            found["memory.max"] = str(need.memory_mib << 20)
            # All of the worker or nothing: one that lost a process would wait for it for ever.
            found["memory.oom.group"] = "1"
        if "cpu" in self.controllers and need.cpu_milli:
            # Quota and period in microseconds: quota = CPUs * period, CPUs = cpu_milli / 1000.
            found["cpu.max"] = f"{need.cpu_milli * _PERIOD_US // 1000} {_PERIOD_US}"
        return found

    def data_bytes(self, need: Resources) -> int:
        """The limit of each process's memory, where cgroups do not limit it; 0: none."""
        return 0 if "memory" in self.controllers else need.memory_mib << 20

    def close(self) -> None:
        """Remove what is empty."""
        if self.base:
            for group in self.base.glob("*/"):
                remove(str(group))
            with suppress(OSError):
                self.base.rmdir()


def remove(group: str) -> None:
    """Remove the cgroup of a run that is over; one that is in use stays."""
    if not group:
        return
    # Workers' groups first: the kernel removes no group that has others in it.
    for folder in (*Path(group).glob("*/"), Path(group)):
        with suppress(OSError):
            folder.rmdir()


def find(home: Path) -> ProcessLimits:
    """See what may be used, by trying."""
    own = _own_group()
    if own is None:
        return ProcessLimits(None)
    base = own / f"roost-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    try:
        base.mkdir(exist_ok=True)
    except OSError:
        return ProcessLimits(None)
    for group in base.glob("*/"):
        remove(str(group))  # empty ones that a dead server did not remove
    controllers = _available(own) & _WANTED
    if controllers and _enable_own(own, controllers) and _enable(base, controllers):
        return ProcessLimits(base, controllers)
    return ProcessLimits(base)


def _own_group() -> Path | None:
    """The cgroup v2 that this process is in."""
    mount = path = ""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            place, _, kind = line.partition(" - ")
            if kind.startswith("cgroup2 "):
                mount = place.split()[4]
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                path = line[3:]
    return Path(mount + path) if mount and path else None


def _available(group: Path) -> frozenset[str]:
    try:
        return frozenset((group / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()


def _enable_own(own: Path, controllers: frozenset[str]) -> bool:
    """Hand controllers down. A group with processes cannot: then this one steps aside."""
    if _enable(own, controllers):
        return True
    try:
        if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            return False  # others are in it; they are not ours to move
        aside = own / "roost-server"
        aside.mkdir(exist_ok=True)
        # 0 stands for the process that writes.
        (aside / "cgroup.procs").write_text("0")
    except OSError:
        return False
    return _enable(own, controllers)


def _enable(group: Path, controllers: frozenset[str]) -> bool:
    text = " ".join(f"+{name}" for name in sorted(controllers))
    try:
        (group / "cgroup.subtree_control").write_text(text)
    except OSError:
        return False
    return True
