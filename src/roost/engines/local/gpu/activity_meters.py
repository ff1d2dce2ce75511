"""Meters of how much work processes did, to tell idle tenants from busy ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from roost.engines.local.gpu.signals import cpu_s, family
from roost.engines.local.gpu.telemetry import Nvml
from roost.engines.local.shim import process_tree

_POLL_S = 0.1
_LONGEST_US = 1_000_000


class CpuMeter:
    """By the CPU time of process trees, or of whatever goes with a process."""

    def __init__(self, of: Callable[[int], list[process_tree.ProcessInfo]] = family) -> None:
        self._of = of

    def used_s(self, pids: Sequence[int]) -> float:
        """CPU seconds of the processes and of everything that goes with them."""
        return cpu_s(list({one.pid for pid in pids for one in self._of(pid)}))

    def tells(self, pids: Sequence[int]) -> bool:
        """CPU time is a sign of work: a thread that waits for a GPU may use a core for it."""
        del pids
        return False


class GpuMeter:
    """By NVML's samples of a device; by CPU time where NVML does not know the processes.

    A process that trains keeps a CPU busy with giving work to the GPU. One that only computes on
    CPUs is told from it by the samples alone.
    """

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._nvml, self._index = nvml, index
        self._polled_at = float("-inf")
        self._since_us = 0
        self._used_s: dict[int, float] = {}
        self._known: frozenset[int] = frozenset()
        self._tells = False

    def used_s(self, pids: Sequence[int]) -> float:
        """Seconds of a whole GPU, or CPU seconds."""
        self._poll()
        if self.tells(pids):
            return sum(self._used_s.get(pid, 0.0) for pid in pids)
        return cpu_s(pids)

    def tells(self, pids: Sequence[int]) -> bool:
        """Whether NVML knows these processes, and tells the work of processes at all."""
        return self._tells and not self._known.isdisjoint(pids)

    def _poll(self) -> None:
        now = time.monotonic()
        if now - self._polled_at < _POLL_S:
            return
        self._polled_at = now
        self._known = frozenset(self._nvml.processes(self._index))
        latest = self._since_us
        for pid, sample in self._nvml.busy(self._index, self._since_us).items():
            span_us = min(sample.time_us - self._since_us, _LONGEST_US)
            self._used_s[pid] = self._used_s.get(pid, 0.0) + sample.percent / 100 * span_us / 1e6
            latest = max(latest, sample.time_us)
            self._tells = self._tells or (pid in self._known and sample.percent > 0)
        self._since_us = latest
        self._used_s = {pid: used for pid, used in self._used_s.items() if pid in self._known}
