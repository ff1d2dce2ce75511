"""Why shares cannot be held here, and why an agent does not begin: each in a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.core.spec import CPU_SLOT, NodeId, NodeSpec
from roost.engines.local.devices import Machine
from roost.engines.local.gpu.driver import CudaDriver
from roost.errors import Conflict
from roost.kubernetes.agent import obstacles as looked_at
from roost.kubernetes.agent.agent import _lock
from roost.kubernetes.agent.containers import first_processes, lacks_ptrace, running
from roost.kubernetes.agent.obstacles import foreign_mps, obstacles

GPUS = Machine(NodeSpec(NodeId("n1"), 2, "H200", 140_000), (0,))
SLOTS = Machine(NodeSpec(NodeId("n1"), 2, CPU_SLOT), (0,))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[int]:
    """A process that is called like the daemon of CUDA MPS, with its pipes in a home."""
    program = tmp_path / "nvidia-cuda-mps-control"
    shutil.copy(shutil.which("sleep") or "", program)
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "home" / "mps-0")}
    with subprocess.Popen([program, "600"], env=env) as process:  # noqa: S603 - ours
        while b"CUDA_MPS" not in Path(f"/proc/{process.pid}/environ").read_bytes():
            os.sched_yield()
        yield process.pid
        process.kill()


def test_mps_of_somebody_else_is_told_from_ours(daemon: int, tmp_path: Path) -> None:
    assert daemon in foreign_mps(tmp_path / "other")
    assert daemon not in foreign_mps(tmp_path / "home")


def test_each_obstacle_is_named(
    daemon: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CudaDriver, "missing", staticmethod(lambda: "there is no NVIDIA driver"))
    monkeypatch.setattr(looked_at, "lacks_ptrace", lambda: True)
    told = list(obstacles(GPUS, tmp_path / "other"))
    assert told[0] == "no turns: there is no NVIDIA driver"
    assert "CAP_SYS_PTRACE" in told[1]
    assert any(f"(process {daemon})" in one for one in told[2:])
    assert list(obstacles(SLOTS, tmp_path / "other")) == []


def test_the_right_to_act_on_others_is_read_from_the_kernel() -> None:
    caps = Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0]
    assert lacks_ptrace() is not bool(int(caps, 16) & 1 << 19)


def test_there_is_one_agent_on_a_node(tmp_path: Path) -> None:
    held = _lock(tmp_path / "home")
    with pytest.raises(Conflict, match=rf"another agent .* \(process {os.getpid()}\)"):
        _lock(tmp_path / "home")
    os.close(held)
    os.close(_lock(tmp_path / "home"))


def test_only_containers_that_run_are_looked_for() -> None:
    number = "ab" * 32
    statuses = [
        {"name": "main", "containerID": f"containerd://{number}", "state": {"running": {}}},
        {"name": "over", "containerID": f"containerd://{number}", "state": {"terminated": {}}},
        {"name": "odd", "containerID": "", "state": {"running": {}}},
    ]
    assert running({"status": {"containerStatuses": statuses}}) == {"main": number}
    assert running({}) == {}
    assert first_processes([number]) == {}
