"""What pods make of their shares, on CPU slots and on GPUs that are made up."""

from __future__ import annotations

import os
import time
from typing import cast

from roost.core.spec import CPU_SLOT, NodeId, NodeSpec
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.gpu.telemetry import BusySample, Nvml
from roost.kubernetes.agent.use import PodUse, UseMeter

NODE = NodeId("n1")
SLOTS = Machine(NodeSpec(NODE, 2, CPU_SLOT), (0, 1))
GPUS = Machine(NodeSpec(NODE, 2, "H200", 140_000), (0, 1))
ME = os.getpid()


class FakeNvml:
    """This process holds memory of GPU 1, and keeps it half busy."""

    at_us = 0

    def processes(self, index: int) -> dict[int, int]:
        return {ME: 700, 1: 9} if index == 1 else {}

    def busy(self, index: int, _: int) -> dict[int, BusySample]:
        self.at_us += 1_000_000
        return {ME: BusySample(self.at_us, 50)} if index == 1 else {}


def test_on_slots_work_is_cpu_time() -> None:
    meter = UseMeter(SLOTS)
    assert meter.look({"a": (ME, (0,))}, 0.0) == {}
    begin = time.process_time()
    while time.process_time() < begin + 0.05:  # the system counts in ticks of 10 ms
        sum(number * number for number in range(30_000))
    found = meter.look({"a": (ME, (0,))}, 1e9)["a"]
    assert found.memory_mib is None
    assert 0.0 < found.busy < 1e-3
    assert meter.look({"a": (ME, (0,))}, 1e9 + 1e-6)["a"].busy <= 1.0
    assert meter.look({"a": (ME + 1, (0,))}, 2e9) == {}  # another process: it begins anew


def test_on_gpus_it_is_what_nvml_says() -> None:
    meter = UseMeter(GPUS, lambda: cast("Nvml", FakeNvml()))
    meter.look({"a": (ME, (1,))}, 0.0)
    meter._meters[1]._polled_at = float("-inf")  # type: ignore[attr-defined]
    assert meter.look({"a": (ME, (1,))}, 1.0) == {"a": PodUse(0.5, 700)}


def test_without_nvml_memory_is_not_known() -> None:
    def refuse() -> Nvml:
        raise DriverRefused("there is no NVML here")

    meter = UseMeter(GPUS, refuse)
    meter.look({"a": (ME, (1,))}, 0.0)
    assert meter.look({"a": (ME, (1,))}, 1.0)["a"].memory_mib is None
