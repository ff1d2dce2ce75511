"""Counts what allocations use of nodes and devices, without asking the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.core import WHOLE, WORKER, Allocation, JobSpec, NodeId, NodeSpec, Part, Resources, Way
from roost.core.extras import extra_capacity


@dataclass(slots=True)
class DeviceUsage:
    """Milli-GPUs and MiB by device, milli-CPUs, MiB, workers and extras by node."""

    milli: dict[tuple[NodeId, int], int] = field(default_factory=lambda: defaultdict(int))
    limits: list[tuple[NodeId, int, Resources]] = field(default_factory=list)
    cpu: dict[NodeId, int] = field(default_factory=lambda: defaultdict(int))
    memory: dict[NodeId, int] = field(default_factory=lambda: defaultdict(int))
    workers: dict[NodeId, int] = field(default_factory=lambda: defaultdict(int))
    extras: dict[tuple[NodeId, str], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: DeviceUsage) -> None:
        """Count another use on top."""
        for device, milli in other.milli.items():
            self.milli[device] += milli
        self.limits += other.limits
        for name, cpu in other.cpu.items():
            self.cpu[name] += cpu
        for name, memory in other.memory.items():
            self.memory[name] += memory
        for name, workers in other.workers.items():
            self.workers[name] += workers
        for thing, amount in other.extras.items():
            self.extras[thing] += amount

    def beyond(self, nodes: Mapping[NodeId, NodeSpec]) -> list[str]:
        """What it takes beyond what these nodes have, in words."""
        found = [
            f"{milli} milli-GPUs of GPU {gpu} on {name}"
            for (name, gpu), milli in self.milli.items()
            if milli > WHOLE
        ]
        found += [
            f"GPU {gpu} on {name}, which has {nodes[name].gpus}"
            for name, gpu in self.milli
            if not 0 <= gpu < nodes[name].gpus
        ]
        for (name, gpu), mib in self._device_memory(nodes).items():
            if mib > nodes[name].gpu_memory_mib:
                found.append(f"{mib} MiB of GPU {gpu} on {name}")
        found += [
            f"GPU {gpu} on {name}, shared both ways"
            for (name, gpu), ways in self._ways().items()
            if len(ways) > 1
        ]
        for name, cpu in self.cpu.items():
            if nodes[name].cpu_milli and cpu > nodes[name].cpu_milli:
                found.append(f"{cpu} milli-CPUs of {name}")
        for name, memory in self.memory.items():
            if nodes[name].memory_mib and memory > nodes[name].memory_mib:
                found.append(f"{memory} MiB of {name}")
        for name, workers in self.workers.items():
            if 0 < nodes[name].workers < workers:
                found.append(f"{workers} workers on {name}")
        return found + [
            f"{amount} {thing} of {name}"
            for (name, thing), amount in self.extras.items()
            if amount > extra_capacity(nodes[name].extras, thing)
        ]

    def _ways(self) -> dict[tuple[NodeId, int], set[Way]]:
        ways: dict[tuple[NodeId, int], set[Way]] = defaultdict(set)
        for name, gpu, need in self.limits:
            if need.share_milli < WHOLE:
                ways[name, gpu].add(need.way)
        return ways

    def _device_memory(self, nodes: Mapping[NodeId, NodeSpec]) -> dict[tuple[NodeId, int], int]:
        total: dict[tuple[NodeId, int], int] = defaultdict(int)
        for name, gpu, need in self.limits:
            device = nodes[name].gpu_memory_mib
            if device:
                share = device * need.share_milli // WHOLE
                total[name, gpu] += need.gpu_memory_mib or share
        return total


def used(spec: JobSpec, allocation: Allocation) -> DeviceUsage:
    """What a job uses on an allocation."""
    usage = DeviceUsage()
    for part in allocation.parts:
        need = need_of(spec, part)
        for gpu in part.gpus:
            usage.milli[part.node, gpu] += part.share_milli
            usage.limits.append((part.node, gpu, need))
        usage.cpu[part.node] += part.workers * need.cpu_milli
        usage.memory[part.node] += part.workers * need.memory_mib
        usage.workers[part.node] += part.workers
        for thing, amount in need.extras:
            usage.extras[part.node, thing] += part.workers * amount
    return usage


def worst(one: DeviceUsage, other: DeviceUsage) -> DeviceUsage:
    """What a run may use while it goes from one allocation to another."""
    both = DeviceUsage()
    for device in one.milli.keys() | other.milli.keys():
        both.milli[device] = max(one.milli[device], other.milli[device])
        before = [limit for limit in one.limits if limit[:2] == device]
        after = [limit for limit in other.limits if limit[:2] == device]
        both.limits += before if len(before) > len(after) else after
    for name in one.cpu.keys() | other.cpu.keys():
        both.cpu[name] = max(one.cpu[name], other.cpu[name])
        both.memory[name] = max(one.memory[name], other.memory[name])
        both.workers[name] = max(one.workers[name], other.workers[name])
    for thing in one.extras.keys() | other.extras.keys():
        both.extras[thing] = max(one.extras[thing], other.extras[thing])
    return both


def need_of(spec: JobSpec, part: Part) -> Resources:
    """What one worker of a part's role needs."""
    if part.role == WORKER:
        return spec.resources
    return next(role.resources for role in spec.roles if role.name == part.role)
