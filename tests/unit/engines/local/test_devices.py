"""What a machine offers, also when its driver hangs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from roost.engines.local import devices
from roost.engines.local.devices import Machine, find
from roost.errors import InvalidSpec, NotFound, Retryable


def probed(*gpus: tuple[str, int, int]) -> Machine:
    found = [{"name": name, "memory_mib": memory, "numa": numa} for name, memory, numa in gpus]
    return asyncio.run(find(sys.executable, None, saying(f"print({json.dumps(found)!r})")))


def saying(code: str) -> Sequence[str]:
    return (sys.executable, "-I", "-S", "-c", code)


def test_gpus_make_a_node() -> None:
    machine = probed(*[("NVIDIA H200", 143771, 0)] * 4, *[("NVIDIA H200", 143771, 1)] * 4)

    node = machine.node
    assert (node.kind, node.gpus, node.gpu_memory_mib, node.sockets) == ("H200", 8, 143771, 2)
    assert machine.real
    assert machine.cpus((0, 1)) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-PCIE-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_kind_is_the_model_alone(name: str, kind: str) -> None:
    assert probed((name, 1, -1)).node.kind == kind


def divided(*profiles: str) -> dict[str, Any]:
    """A GPU as it is told, with these partitions."""
    parts = [
        {"name": f"NVIDIA H200 MIG {one}", "uuid": f"MIG-{number}", "memory_mib": int(one[0]) * 18}
        for number, one in enumerate(profiles)
    ]
    gpu = {"name": "NVIDIA H200", "uuid": "GPU-0", "memory_mib": 140, "numa": 0}
    return {**gpu, "partitions": parts}


def of(*gpus: dict[str, Any]) -> Machine:
    return asyncio.run(find(sys.executable, None, saying(f"print({json.dumps(gpus)!r})")))


def test_partitions_are_devices_of_their_own_kind() -> None:
    machine = of(divided(*["1g.18gb"] * 7), divided(*["1g.18gb"] * 7))

    node = machine.node
    assert (node.kind, node.gpus, node.gpu_memory_mib) == ("H200-1g.18gb", 14, 18)
    assert machine.partitioned
    assert machine.names((0, 8)) == ["MIG-0", "MIG-1"]
    assert not probed(("NVIDIA H200", 1, 0)).partitioned
    assert probed(*[("NVIDIA H200", 1, 0)] * 2).names((0, 1)) == ["0", "1"]


def test_a_machine_offers_the_kind_with_most_memory(caplog: pytest.LogCaptureFixture) -> None:
    whole = {"name": "NVIDIA H200", "uuid": "GPU-1", "memory_mib": 140, "numa": 1}
    machine = of(divided("3g.71gb", *["1g.18gb+me"] * 2), whole)

    assert (machine.node.kind, machine.node.gpus, machine.uuids) == ("H200", 1, ("GPU-1",))
    assert "offers H200 alone" in caplog.text
    assert "H200-1g.18gb-me, H200-3g.71gb" in caplog.text


def test_gpus_with_no_partition_yet_are_named() -> None:
    with pytest.raises(NotFound, match="has no partition yet: roost partition"):
        of(divided())


@pytest.mark.parametrize(("numa", "sockets"), [((0, 1, 0, 1), 1), ((0, 0, 0, 1), 1), ((-1, -1), 1)])
def test_devices_spread_otherwise_are_one_socket(numa: tuple[int, ...], sockets: int) -> None:
    assert probed(*[("NVIDIA H200", 1, node) for node in numa]).node.sockets == sockets


def test_a_hanging_driver_does_not_hang_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_PROBE_S", 0.1)

    with pytest.raises(Retryable, match="does not answer"):
        asyncio.run(find(sys.executable, None, saying("import time; time.sleep(600)")))


def test_a_failing_driver_is_named() -> None:
    with pytest.raises(Retryable, match="cannot ask the NVIDIA driver: broken"):
        asyncio.run(find(sys.executable, None, saying("raise SystemExit('broken')")))


def test_slots_are_cpus_and_say_so() -> None:
    cores = sorted(os.sched_getaffinity(0))
    machine = asyncio.run(find(sys.executable, 1))

    assert (machine.node.kind, machine.node.gpus, machine.real) == ("cpu-slot", 1, False)
    assert machine.cpus((0,)) == cores
    assert machine.threads(1, 0) == len(cores)
    assert machine.threads(1, 1500) == 1
    with pytest.raises(InvalidSpec, match="slots must be at least 1"):
        asyncio.run(find(sys.executable, 0))


def test_more_slots_than_cores_have_no_cores_of_their_own() -> None:
    machine = asyncio.run(find(sys.executable, 1000))

    assert machine.cpus((0, 999)) == []
    assert machine.threads(1, 0) == 1


def test_slots_share_the_cores_evenly() -> None:
    node = asyncio.run(find(sys.executable, 2)).node
    machine = Machine(node, (0, 1, 2, 3, 8))

    assert (machine.cpus((0,)), machine.cpus((1,))) == ([0, 1], [2, 3])
    assert machine.cpus((1, 1, 0)) == [0, 1, 2, 3]
