"""What pods with shares make of them: how busy they keep their GPU, and how much of its memory.

By the meters by which the sharing daemon tells idle tenants from busy ones: NVML's samples of
processes, or CPU time where NVML does not know them, and on CPU slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from roost.engines.local.devices import Machine
from roost.engines.local.gpu.activity_meters import CpuMeter, GpuMeter
from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.gpu.signals import family
from roost.engines.local.gpu.telemetry import Nvml


class PodUse(NamedTuple):
    """The part of the time in which a pod had its GPU work, and MiB of its memory.

    ``memory_mib`` is None where nobody tells.
    """

    busy: float
    memory_mib: int | None


class _Meter(Protocol):
    def used_s(self, pids: Sequence[int]) -> float: ...


class UseMeter:
    """Looks at pods now and then; ``nvml`` begins it."""

    def __init__(self, machine: Machine, nvml: Callable[[], Nvml] = Nvml) -> None:
        self._machine, self._begin = machine, nvml
        self._nvml: Nvml | None = None
        self._meters: dict[int, _Meter] = {}
        #: When a pod was last looked at, its first process, and the seconds that it had used then.
        self._seen: dict[str, tuple[float, int, float]] = {}

    def look(
        self, pods: Mapping[str, tuple[int, tuple[int, ...]]], now: float
    ) -> dict[str, PodUse]:
        """The use of each pod since the last look; ``pods``: first process, and GPUs.

        A pod that is looked at for the first time is not among them.
        """
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in pods}
        found = {}
        for uid, (first, gpus) in pods.items():
            pids = [one.pid for one in family(first)]
            used_s = sum(self._meter(gpu).used_s(self._asked(first, pids)) for gpu in gpus)
            before = self._seen.get(uid)
            self._seen[uid] = now, first, used_s
            if before is not None and before[1] == first and now > before[0]:
                busy = max(0.0, used_s - before[2]) / (now - before[0]) / max(1, len(gpus))
                found[uid] = PodUse(min(1.0, busy), self._memory(pids, gpus))
        return found

    def _asked(self, first: int, pids: Sequence[int]) -> Sequence[int]:
        # The meter of CPU time goes through the tree by itself.
        return pids if self._machine.real else [first]

    def _meter(self, gpu: int) -> _Meter:
        if gpu not in self._meters:
            nvml = self._reader()
            self._meters[gpu] = CpuMeter() if nvml is None else GpuMeter(nvml, gpu)
        return self._meters[gpu]

    def _memory(self, pids: Sequence[int], gpus: Sequence[int]) -> int | None:
        nvml = self._reader()
        if nvml is None:
            return None
        with suppress(DriverRefused):
            held = [nvml.processes(gpu) for gpu in gpus]
            return sum(one.get(pid, 0) for one in held for pid in pids)
        return None

    def _reader(self) -> Nvml | None:
        if self._nvml is None and self._machine.real:
            with suppress(DriverRefused, OSError):
                self._nvml = self._begin()
        return self._nvml
