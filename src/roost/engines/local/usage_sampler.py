"""What is seen of runs from outside: how busy they keep their devices, how much memory they hold.

A program need not know of it. On CPU slots work is CPU time; on GPUs it is what NVML says of the
processes of a run. Where it tells the work of clients of MPS as that of their server, those runs
that share a GPU so count as having done equal parts of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from roost.core.spec import WHOLE, RunId, Way
from roost.engines import ProgressReport, Usage
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.gpu.signals import family
from roost.engines.local.gpu.telemetry import BusySample, Nvml
from roost.engines.local.run_record import RunRecord

#: How often to look, and how many looks make what is told: few at first, then more.
EVERY_S = 5.0
FIRST, LATER = 2, 6


class SampledRun(NamedTuple):
    """A run that is up: the number of its shim, and where it is."""

    pid: int
    record: RunRecord


class NvmlReader(Protocol):
    """What is asked of NVML."""

    def processes(self, index: int) -> dict[int, int]:
        """The processes on a device, and the MiB that each holds there."""
        ...

    def busy(self, index: int, since_us: int) -> dict[int, BusySample]:
        """The newest sample of each process that used the device after that time."""
        ...


@dataclass(slots=True)
class _Seen:
    """What was seen of a run since it was last told."""

    pid: int
    at: float
    used_s: float = 0.0
    busy: float = 0.0
    looks: int = 0
    memory_mib: int = 0
    told: bool = False


class _Sight(NamedTuple):
    """The processes of a run, and what is held, used, and served by MPS on each device."""

    pids: set[int]
    held: Mapping[int, Mapping[int, int]]
    busy: Mapping[int, Mapping[int, float]]
    served: Mapping[int, float]


class UsageSampler:
    """Looks at runs now and then, and says what it saw."""

    def __init__(self, machine: Machine, nvml: NvmlReader | None = None) -> None:
        self._machine, self._nvml = machine, nvml
        self._seen: dict[RunId, _Seen] = {}
        self._since_us: dict[int, int] = {}

    def look(
        self, runs: Mapping[RunId, SampledRun], usage: Mapping[RunId, Usage], now: float
    ) -> list[ProgressReport]:
        """What there is to tell at that time; suspended runs are not among ``runs``."""
        self._seen = {run: seen for run, seen in self._seen.items() if run in runs}
        # NVML tells the work of processes by GPU; of its partitions it tells nothing.
        told = self._machine.real and not self._machine.partitioned
        held, busy = self._devices(runs.values()) if told else ({}, {})
        pids = {run: {one.pid for one in family(at.pid)} for run, at in runs.items() if held}
        served = _served(runs, pids, busy)
        found = []
        for run, watched in runs.items():
            used_s = usage[run].cpu_s if run in usage else 0.0
            seen = self._seen.get(run)
            if seen is None or seen.pid != watched.pid:
                self._seen[run] = _Seen(watched.pid, now, used_s)
                continue
            if self._machine.real:
                self._on_gpus(watched, seen, _Sight(pids.get(run, set()), held, busy, served))
            else:
                self._on_slots(watched.record, seen, used_s - seen.used_s, now - seen.at)
            seen.used_s, seen.at = used_s, now
            if seen.looks >= (LATER if seen.told else FIRST):
                found.append(_told(run, seen, now))
        return found

    def _on_slots(self, record: RunRecord, seen: _Seen, used_s: float, passed_s: float) -> None:
        """The part of the time of its cores."""
        each = max(1, len(self._machine.cores) // max(1, self._machine.node.gpus))
        cores = _devices(record) * each
        if cores and passed_s > 0:
            seen.busy += min(1.0, max(0.0, used_s) / (cores * passed_s))
            seen.looks += 1

    def _on_gpus(self, watched: SampledRun, seen: _Seen, sight: _Sight) -> None:
        """The part of the time of its GPUs, and what its largest process holds on one."""
        devices, pids = _devices(watched.record), sight.pids
        if not devices:
            return
        on = {gpu for part in watched.record.parts for gpu in part.gpus}
        used = sum(
            part for gpu in on for pid, part in sight.busy.get(gpu, {}).items() if pid in pids
        )
        if _is_spatial(watched.record):
            used += sum(sight.served.get(gpu, 0.0) for gpu in on)
        sizes = [size for gpu in on for pid, size in sight.held.get(gpu, {}).items() if pid in pids]
        seen.memory_mib = max([seen.memory_mib, *sizes])
        if sizes:  # it is on the GPU
            seen.busy += min(1.0, used / devices)
            seen.looks += 1

    def _devices(
        self, runs: Iterable[SampledRun]
    ) -> tuple[dict[int, dict[int, int]], dict[int, dict[int, float]]]:
        """What each process holds on each device, and which part of its time it uses."""
        held: dict[int, dict[int, int]] = {}
        busy: dict[int, dict[int, float]] = {}
        for gpu in {gpu for run in runs for part in run.record.parts for gpu in part.gpus}:
            with suppress(DriverRefused, OSError):
                self._nvml = self._nvml or Nvml()
                held[gpu] = self._nvml.processes(gpu)
                samples = self._nvml.busy(gpu, self._since_us.get(gpu, 0))
                busy[gpu] = {pid: sample.percent / 100 for pid, sample in samples.items()}
                self._since_us[gpu] = _latest(samples.values(), self._since_us.get(gpu, 0))
        return held, busy


def _devices(record: RunRecord) -> float:
    """How many devices a run holds, shares counted as such."""
    return sum(len(part.gpus) * part.share_milli / WHOLE for part in record.parts)


def _is_spatial(record: RunRecord) -> bool:
    """Whether a run has a share side by side."""
    spatial = any(need.way is Way.SPATIAL for need in record.needs.values())
    return spatial and any(part.share_milli < WHOLE for part in record.parts)


def _served(
    runs: Mapping[RunId, SampledRun],
    pids: Mapping[RunId, set[int]],
    busy: Mapping[int, Mapping[int, float]],
) -> dict[int, float]:
    """What processes of no run did on each device, for each run that shares it side by side."""
    known = {pid for one in pids.values() for pid in one}
    found = {}
    for gpu, samples in busy.items():
        spatial = [
            at
            for at in runs.values()
            if _is_spatial(at.record) and any(gpu in part.gpus for part in at.record.parts)
        ]
        strange = sum(part for pid, part in samples.items() if pid not in known)
        if spatial:
            found[gpu] = strange / len(spatial)
    return found


def _latest(samples: Iterable[BusySample], before: int) -> int:
    times: Sequence[int] = [sample.time_us for sample in samples]
    return max([before, *times])


def _told(run: RunId, seen: _Seen, now: float) -> ProgressReport:
    busy, seen.busy = seen.busy / seen.looks, 0.0
    seen.looks, seen.told = 0, True
    return ProgressReport(now, run, memory_mib=seen.memory_mib or None, busy=busy)
