"""What this machine offers: its GPUs as NVML sees them or, where there are none, CPU slots.

The driver is asked in a process of its own with a time limit. CPU slots are called what they are.

The partitions (MIG) of a GPU that is divided are devices in its place, of a kind of their own:
``H200-1g.18gb``. A machine offers one kind: where it has several, that which has most memory in
all, and the others are named in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from roost.core.spec import CPU_SLOT, NodeId, NodeSpec
from roost.errors import InvalidSpec, NotFound, Retryable

_log = logging.getLogger(__name__)

#: Without one of these (Linux, WSL 2) there is no driver, and no probe is started.
_DRIVER_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
_PROBE = Path(__file__).with_name("nvml.py")
#: The first question after a boot wakes every GPU, which takes seconds on a large machine.
_PROBE_S = 20.0
_BRANDS = frozenset({"nvidia", "tesla", "geforce", "quadro"})
_SERIES = frozenset({"RTX", "GTX"})
#: What comes before the profile in a partition's name, and what its UUID begins with.
_DIVIDED, _PARTITION = " MIG ", "MIG-"


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine as a node, and the cores behind its devices.

    ``uuids`` and ``numa`` are of its devices in order, where the driver told them.
    """

    node: NodeSpec
    cores: tuple[int, ...]
    uuids: tuple[str, ...] = ()
    numa: tuple[int, ...] = ()

    @property
    def real(self) -> bool:
        """Whether its devices are GPUs."""
        return self.node.kind != CPU_SLOT

    @property
    def partitioned(self) -> bool:
        """Whether its devices are partitions of GPUs."""
        return bool(self.uuids) and self.uuids[0].startswith(_PARTITION)

    def names(self, gpus: Sequence[int]) -> list[str]:
        """What CUDA and container runtimes know devices by: partitions have no numbers."""
        return [self.uuids[gpu] if self.partitioned else str(gpu) for gpu in gpus]

    def cpus(self, gpus: Sequence[int]) -> list[int]:
        """The cores of some slots; none where slots have no cores of their own."""
        each = len(self.cores) // self.node.gpus if self.node.gpus else 0
        if self.real or not each:
            return []
        # Slot i has cores [i * each, (i + 1) * each); what is left over belongs to no slot.
        return sorted({core for gpu in gpus for core in self.cores[gpu * each :][:each]})

    def threads(self, gpus: int, cpu_milli: int) -> int:
        """How many threads a worker may well use."""
        if cpu_milli:
            return max(cpu_milli // 1000, 1)
        if not self.node.gpus:
            return len(self.cores)
        return max(len(self.cores) * gpus // self.node.gpus, 1)


async def find(python: str, slots: int | None, probe: Sequence[str] | None = None) -> Machine:
    """See what is here; ``slots`` asks for that many CPU slots instead of GPUs."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    gpus = [] if slots is not None else _offered(await found_gpus(python, probe))
    if gpus:
        uuids = tuple(str(gpu.get("uuid", "")) for gpu in gpus)
        numa = tuple(int(gpu["numa"]) for gpu in gpus)
        return Machine(_gpu_node(gpus, cores), cores, uuids, numa)
    count = len(cores) if slots is None else slots
    if count < 1:
        raise InvalidSpec(f"slots must be at least 1, got {count}")
    return Machine(_node(cores, gpus=count, kind=CPU_SLOT), cores)


def node_name() -> NodeId:
    """What this machine is called."""
    name = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return NodeId(name or "localhost")


async def found_gpus(python: str, probe: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """What the driver tells of the GPUs of this machine, as ``nvml`` writes it."""
    if probe is None and not any(path.exists() for path in _DRIVER_FILES):
        return []
    command = probe or (python, "-I", str(_PROBE))
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(), _PROBE_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            child.kill()
        with suppress(TimeoutError):  # one that waits for the driver may not even die
            await asyncio.wait_for(child.wait(), 1.0)
        msg = f"the NVIDIA driver does not answer within {_PROBE_S:g} s; --slots offers CPUs"
        raise Retryable(msg, after=30.0) from None
    if child.returncode:
        why = err.decode(errors="replace").strip().rpartition("\n")[2]
        raise Retryable(f"cannot ask the NVIDIA driver: {why}; --slots offers CPUs", after=30.0)
    found: list[dict[str, Any]] = json.loads(out)
    return found


def _offered(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The devices of one kind: whole GPUs, or the partitions of those that are divided."""
    devices = [
        {**part, "numa": gpu["numa"]} for gpu in gpus for part in gpu.get("partitions", [gpu])
    ]
    if gpus and not devices:
        raise NotFound(
            "every GPU of this machine is to be divided and has no partition yet: roost partition "
            "makes some, nvidia-smi -mig 0 makes them whole again, --slots offers CPUs"
        )
    if not any("partitions" in gpu for gpu in gpus):  # kinds of whole GPUs are not told apart
        return devices
    sizes: dict[str, int] = {}
    for one in devices:
        kind = _kind(str(one["name"]))
        sizes[kind] = sizes.get(kind, 0) + int(one["memory_mib"])
    offered = max(sizes, key=lambda kind: sizes[kind])
    if others := sorted(sizes.keys() - {offered}):
        _log.warning(
            "this machine offers %s alone, for a machine offers one kind; not %s",
            offered,
            ", ".join(others),
        )
    return [one for one in devices if _kind(str(one["name"])) == offered]


def _gpu_node(gpus: list[dict[str, Any]], cores: tuple[int, ...]) -> NodeSpec:
    return _node(
        cores,
        gpus=len(gpus),
        kind=_kind(str(gpus[0]["name"])),
        # The smallest: a job that fits by this figure must fit on any of them.
        gpu_memory_mib=min(int(gpu["memory_mib"]) for gpu in gpus),
        sockets=_sockets([int(gpu["numa"]) for gpu in gpus]),
    )


def _node(cores: tuple[int, ...], **more: Any) -> NodeSpec:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return NodeSpec(node_name(), cpu_milli=1000 * len(cores), memory_mib=memory, **more)


def _kind(name: str) -> str:
    """The model alone: ``H200`` of "NVIDIA H200", ``A100`` of "NVIDIA A100-SXM4-80GB".

    A partition is called after its GPU and its profile.
    """
    name, _, profile = name.partition(_DIVIDED)
    if profile:
        return f"{_kind(name)}-{profile.replace('+', '-')}"
    words = [word for word in name.split() if word.lower() not in _BRANDS]
    if len(words) > 1 and words[0] in _SERIES:
        return f"{words[0]}-{words[1]}"
    return words[0].partition("-")[0] if words else "gpu"


def _sockets(numa: list[int]) -> int:
    """How many sockets the devices hang on, if they are spread evenly and in order; else 1."""
    count = len(set(numa))
    even = len(numa) % count == 0 and all(a <= b for a, b in pairwise(numa))
    each = len(numa) // count
    blocks = [numa[start : start + each] for start in range(0, len(numa), each)]
    return count if even and all(len(set(block)) == 1 for block in blocks) else 1
