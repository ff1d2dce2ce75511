"""NVML by its structures, and who is idle by what it says."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest

from roost.engines.local.gpu.activity_meters import CpuMeter, GpuMeter
from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.gpu.telemetry import BusySample, DeviceMemory, Nvml


class Words:
    """A function of a library that may be told what it returns."""

    restype: Any = None

    def __call__(self, _code: int) -> bytes:
        return b"Driver Not Loaded"


class Library:
    """Stands in for NVML."""

    def __init__(self) -> None:
        self.code = 0
        self.held = {11: 2000, 12: (1 << 44) - 1}
        self.samples: list[tuple[int, int, int]] = []
        self.nvmlErrorString = Words()

    def nvmlInit_v2(self) -> int:  # noqa: N802 - its name
        return self.code

    def nvmlShutdown(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetCount_v2(self, found: Any) -> int:  # noqa: N802
        found._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 100 + index.value
        return 0

    def nvmlDeviceGetUUID(self, device: Any, text: Any, _size: Any) -> int:  # noqa: N802
        text.value = f"GPU-{device.value}".encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, _device: Any, found: Any) -> int:  # noqa: N802
        found._obj.total, found._obj.used = 140 << 30, 3 << 30
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(  # noqa: N802
        self, _device: Any, many: Any, rows: Any
    ) -> int:
        for row, (pid, mib) in zip(rows, self.held.items(), strict=False):
            row.pid, row.memory = pid, (1 << 64) - 1 if pid == 12 else mib << 20
        many._obj.value = len(self.held)
        return 0

    def nvmlDeviceGetProcessUtilization(  # noqa: N802
        self, _device: Any, rows: Any, many: Any, since: Any
    ) -> int:
        fresh = [sample for sample in self.samples if sample[1] > since.value]
        for row, (pid, time_us, percent) in zip(rows, fresh, strict=False):
            row.pid, row.time_us, row.sm = pid, time_us, percent
        many._obj.value = len(fresh)
        return 0 if fresh else 6


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: found)
    return found


def test_devices_and_their_memory(library: Library) -> None:
    assert library.code == 0
    nvml = Nvml()
    assert nvml.count() == 2
    assert nvml.uuid(1) == "GPU-101"
    assert nvml.memory(0) == DeviceMemory(140 << 10, 3 << 10)
    nvml.close()


def test_processes_and_what_they_hold(library: Library) -> None:
    assert library.held
    assert Nvml().processes(0) == {11: 2000, 12: 0}  # of one it does not know how much


def test_the_newest_sample_of_each_process_counts(library: Library) -> None:
    library.samples = [(11, 5, 10), (11, 9, 30), (12, 7, 50)]
    assert Nvml().busy(0, 4) == {11: BusySample(9, 30), 12: BusySample(7, 50)}
    assert Nvml().busy(0, 9) == {}


def test_no_library() -> None:
    with pytest.raises(DriverRefused, match="no NVML"):
        Nvml("libnothing.so.0")


def test_a_library_without_a_driver(library: Library) -> None:
    library.code = 9
    with pytest.raises(DriverRefused, match="does not start: Driver Not Loaded"):
        Nvml()


def test_work_is_told_by_samples_once_there_are_any(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.engines.local.gpu.activity_meters._POLL_S", 0.0)
    meter = GpuMeter(Nvml(), 0)
    me = os.getpid()
    library.held = {me: 100}
    assert meter.used_s([me]) > 0.0  # CPU time: NVML has told nothing yet
    assert not meter.tells([me])
    library.samples = [(me, 1_000_000, 50)]
    assert meter.used_s([me]) == pytest.approx(0.5)
    assert meter.tells([me])
    assert meter.used_s([me]) == pytest.approx(0.5)  # nothing new
    library.samples = [(me, 1_200_000, 100)]
    assert meter.used_s([me]) == pytest.approx(0.7)


def test_processes_of_another_namespace_are_told_by_cpu_time(library: Library) -> None:
    library.samples = [(11, 1_000_000, 50)]
    meter = GpuMeter(Nvml(), 0)
    assert meter.used_s([os.getpid()]) > 0.0
    assert not meter.tells([os.getpid()])


def test_cpu_time_counts_what_is_below() -> None:
    assert CpuMeter().used_s([os.getpid()]) > 0.0
    assert CpuMeter().used_s([2**22 + 1]) == 0.0
