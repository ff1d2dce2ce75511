"""Limits: what cgroups are told, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

from roost.core.spec import JobId, Resources, RunId
from roost.engines.local import limits
from roost.engines.local.limits import ProcessLimits

NEED = Resources(cpu_milli=1500, memory_mib=64)
RUN = RunId(JobId("job"), 2)


def test_with_controllers_cgroups_limit() -> None:
    found = ProcessLimits(Path("/cg/roost"), frozenset({"memory", "cpu"}))

    assert str(found) == "limits of cpu and memory by cgroup v2 in /cg/roost"
    assert found.group(RUN) == "/cg/roost/job.2"
    assert found.files(NEED) == {
        "memory.max": str(64 << 20),
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
    }
    assert found.data_bytes(NEED) == 0
    assert found.files(Resources()) == {}


def test_without_controllers_processes_are_limited() -> None:
    found = ProcessLimits(None)

    assert "RLIMIT_DATA" in str(found)
    assert found.group(RUN) == ""
    assert found.files(NEED) == {}
    assert found.data_bytes(NEED) == 64 << 20


def test_controllers_are_handed_down(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "group").mkdir(parents=True)
    control = own / "cgroup.subtree_control"
    control.touch()
    (own / "cgroup.controllers").write_text("cpu memory pids\n")

    assert limits._available(own) == {"cpu", "memory", "pids"}
    assert limits._enable_own(own, frozenset({"memory", "cpu"}))
    assert control.read_text() == "+cpu +memory"


def test_a_group_with_others_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("1\n2\n")

    assert not limits._enable_own(tmp_path / "missing", frozenset({"memory"}))
    (tmp_path / "cgroup.subtree_control").mkdir()  # cannot be written to
    assert not limits._enable_own(tmp_path, frozenset({"memory"}))
    assert not (tmp_path / "roost-server").exists()


def test_a_cgroup_is_found_by_trying_and_leaves_no_trace(tmp_path: Path) -> None:
    found = limits.find(tmp_path)
    if found.base is not None:
        group = found.group(RUN)
        found.prepare(group)
        assert Path(group).is_dir()
    found.close()

    assert found.base is None or not found.base.exists()
