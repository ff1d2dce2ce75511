"""Whether there is room: in the host for what a parked tenant holds, on a GPU for what comes back.

What is parked lies in the memory of its own process, so a limit of its cgroup counts as well. A
restore that ran out of GPU memory cannot be repeated on some drivers: so it is asked for first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: What is left to the machine, beside what is parked.
SPARE_MIB = 1024


def host_mib(pid: int, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """MiB of host memory that a process may still take."""
    rooms = [_available_mib(proc) - SPARE_MIB, *_cgroup_rooms(pid, proc, cgroups)]
    return max(min(rooms), 0)


def host_lack(needs_mib: int, room_mib: int) -> str:
    """Why so much cannot be parked; "" if it can."""
    if needs_mib <= room_mib:
        return ""
    return (
        f"parking it takes {needs_mib} MiB of host memory, and there are {room_mib} MiB for it: "
        "end or resume something else first"
    )


def gpu_lack(needs_mib: int, room_mib: int) -> str:
    """What a tenant waits for that is to come back; "" if there is room."""
    if needs_mib <= room_mib:
        return ""
    return f"waits for {needs_mib} MiB of GPU memory to come back; {room_mib} MiB are free"


def _available_mib(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) >> 10
    return 0


def _cgroup_rooms(pid: int, proc: Path, cgroups: Path) -> Iterator[int]:
    """What the limits of its cgroup, and of those above it, leave."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if not line.startswith("0::/"):
            continue
        folder = cgroups / line.removeprefix("0::/")
        while folder != cgroups and cgroups in folder.parents:
            with suppress(OSError, ValueError):  # "max" is no limit
                limit = int((folder / "memory.max").read_text())
                yield (limit - int((folder / "memory.current").read_text())) >> 20
            folder = folder.parent
