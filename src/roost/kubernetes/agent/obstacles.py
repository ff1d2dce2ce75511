"""Why shares cannot be held on a node, each in a sentence; jobs that need none of it go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from roost.engines.local.devices import Machine
from roost.engines.local.gpu.driver import CudaDriver
from roost.kubernetes.agent.containers import lacks_ptrace

_CONTROL = b"nvidia-cuda-mps-control"
_PIPES = b"CUDA_MPS_PIPE_DIRECTORY="


def obstacles(machine: Machine, home: Path) -> list[str]:
    """What on this machine is in the way of holding shares."""
    return list(_obstacles(home)) if machine.real else []


def _obstacles(home: Path) -> Iterator[str]:
    if why := CudaDriver.missing():
        yield f"no turns: {why}"
    if lacks_ptrace():
        yield "no turns: this process lacks CAP_SYS_PTRACE, which the driver demands"
    for pid in foreign_mps(home):
        yield f"no shares side by side: CUDA MPS is run by somebody else (process {pid})"


def foreign_mps(home: Path) -> list[int]:
    """Daemons of CUDA MPS that are none of ours."""
    found = []
    ours = _PIPES + os.fsencode(home)
    for name in os.listdir("/proc"):  # noqa: PTH208 - by far the fastest
        if not name.isdigit():
            continue
        with suppress(OSError):
            command = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if not command[0].endswith(_CONTROL):
                continue
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            # Ours may be in a folder with a short path that stands for the home: it says "roost".
            if not any(one.startswith((ours, _PIPES + b"/tmp/roost-")) for one in environ):
                found.append(int(name))
    return found
