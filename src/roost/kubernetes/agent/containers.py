"""The processes of containers on this node, by the cgroups that their runtime puts them in.

The name of a container's cgroup has its id in it, whichever driver of cgroups the kubelet uses. The
first process of a container is the one with a parent in another cgroup; all others are below it.
An agent in a PID namespace of its own sees no container but its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from roost.engines.local.shim import process_tree
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.values import section, sections, text

_ID = re.compile(r"[0-9a-f]{32,64}")
_SYS_PTRACE = 19  # CAP_SYS_PTRACE, linux/capability.h


def running(pod: Object) -> dict[str, str]:
    """The containers of a pod that run: their names, and their ids."""
    found = {}
    for status in sections(section(pod, "status"), "containerStatuses"):
        number = text(status, "containerID").rpartition("/")[2]
        if "running" in section(status, "state") and _ID.fullmatch(number):
            found[text(status, "name")] = number
    return found


def first_processes(wanted: Collection[str]) -> dict[str, tuple[int, int]]:
    """The first process of each container that is here: its number, and its start time."""
    inside: dict[str, dict[int, process_tree.ProcessInfo]] = {}
    for name in os.listdir("/proc") if wanted else ():  # noqa: PTH208 - by far the fastest
        if name.isdigit() and (container := _container(name)) in wanted:
            process = process_tree.look(name)
            if process is not None and process.state not in "ZX":
                inside.setdefault(container, {})[process.pid] = process
    found = {}
    for container, processes in inside.items():
        tops = [one for one in processes.values() if one.parent not in processes]
        first = min(tops, key=lambda one: (one.ticks, one.pid))
        found[container] = first.pid, first.ticks
    return found


def lacks_ptrace() -> bool:
    """Whether this process may not act on the processes of others as NVIDIA's driver demands."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return True
    caps = next((line for line in status.splitlines() if line.startswith("CapEff:")), "")
    return not int(caps.partition(":")[2] or "0", 16) >> _SYS_PTRACE & 1


def _container(pid: str) -> str:
    """The id of the container that a process is in."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    for line in groups.splitlines():
        # The innermost: a container may have cgroups of its own below.
        found = _ID.findall(line.rpartition(":")[2])
        if found:
            return str(found[0])
    return ""
