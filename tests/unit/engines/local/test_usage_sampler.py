"""How busy runs keep their devices, as it looks from outside."""

from __future__ import annotations

import os

import pytest

from roost.core.allocation import Part
from roost.core.spec import CPU_SLOT, JobId, NodeId, NodeSpec, Resources, RunId, Way
from roost.engines import ProgressReport, Usage
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.telemetry import BusySample
from roost.engines.local.run_record import RunRecord
from roost.engines.local.usage_sampler import FIRST, LATER, SampledRun, UsageSampler

RUN, NODE, ME = RunId(JobId("a"), 1), NodeId("n0"), os.getpid()
SLOTS = Machine(NodeSpec(NODE, 2, CPU_SLOT), (0, 1))
GPUS = Machine(NodeSpec(NODE, 2, "H200", 140_000), (0, 1))


def at(share_milli: int = 1000, way: Way = Way.TEMPORAL) -> SampledRun:
    state = RunRecord(RUN, "x")
    state.parts = (Part(NODE, (0,), share_milli),)
    state.needs = {"worker": Resources(share_milli=share_milli, way=way)}
    return SampledRun(ME, state)


def looked(
    observer: UsageSampler, up: SampledRun, each_s: float, looks: int
) -> list[ProgressReport]:
    """What is told when it uses so much CPU time a second."""
    told = []
    for second in range(looks):
        usage = {RUN: Usage(second * each_s, 0, 1)}
        told += observer.look({RUN: up}, usage, float(second))
    return told


def test_of_partitions_nothing_is_told() -> None:
    parts = Machine(NodeSpec(NODE, 2, "H200-1g.18gb"), (0, 1), ("MIG-a", "MIG-b"))
    assert looked(UsageSampler(parts), at(), 0.5, 1 + FIRST + LATER) == []


@pytest.mark.parametrize(
    ("each_s", "share", "busy"), [(0.25, 1000, 0.25), (0.25, 500, 0.5), (3.0, 1000, 1.0)]
)
def test_on_slots_it_is_cpu_time(each_s: float, share: int, busy: float) -> None:
    (first, later) = looked(UsageSampler(SLOTS), at(share), each_s, 1 + FIRST + LATER)
    assert (first.time, later.time) == (float(FIRST), float(FIRST + LATER))
    assert first.busy == later.busy == pytest.approx(busy)
    assert first.memory_mib is None


def test_while_it_is_suspended_nothing_counts() -> None:
    observer = UsageSampler(SLOTS)
    assert len(looked(observer, at(), 0.5, 1 + FIRST)) == 1
    assert observer.look({}, {}, 50.0) == []
    usage = {RUN: Usage(1.0, 0, 1)}
    assert observer.look({RUN: at()}, usage, 100.0) == [], "it begins anew"


class Telemetry:
    """NVML that sees this process at work half of the time on GPU 0."""

    def __init__(self) -> None:
        self.time_us = 0

    def processes(self, index: int) -> dict[int, int]:
        return {ME: 3000, 1: 9999} if index == 0 else {}

    def busy(self, index: int, since_us: int) -> dict[int, BusySample]:
        assert since_us == self.time_us
        self.time_us += 1_000_000
        percent = 50 if index == 0 else 0
        return {ME: BusySample(self.time_us, percent), 1: BusySample(self.time_us, 50)}


def test_on_gpus_it_is_what_nvml_says_of_its_processes() -> None:
    (told,) = looked(UsageSampler(GPUS, Telemetry()), at(), 9.0, 1 + FIRST)
    assert (told.busy, told.memory_mib) == (0.5, 3000)
    (told,) = looked(UsageSampler(GPUS, Telemetry()), at(500), 9.0, 1 + FIRST)
    assert told.busy == 1.0


def test_shares_side_by_side_have_figures_too() -> None:
    (told,) = looked(UsageSampler(GPUS, Telemetry()), at(800, Way.SPATIAL), 9.0, 1 + FIRST)
    # What no run did, the server of MPS did for it.
    assert (told.busy, told.memory_mib) == (1.0, 3000)


class Served(Telemetry):
    """NVML that knows the work of MPS as that of its server alone."""

    def busy(self, index: int, since_us: int) -> dict[int, BusySample]:
        found = super().busy(index, since_us)
        return {1: found[1]}


def test_what_the_server_of_mps_did_counts_for_its_clients() -> None:
    (told,) = looked(UsageSampler(GPUS, Served()), at(800, Way.SPATIAL), 9.0, 1 + FIRST)
    assert told.busy == pytest.approx(0.5 / 0.8)
