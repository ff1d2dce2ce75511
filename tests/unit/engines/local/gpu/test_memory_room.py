"""Whether there is room for what is parked and for what comes back."""

from __future__ import annotations

from pathlib import Path

from roost.engines.local.gpu import memory_room


def machine(folder: Path, available_mib: int, limit: str = "max") -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup with one process in them."""
    proc, cgroups = folder / "proc", folder / "cgroup"
    (proc / "7").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available_mib << 10} kB\n")
    (proc / "7" / "cgroup").write_text("0::/jobs/a\n")
    (cgroups / "jobs" / "a").mkdir(parents=True)
    (cgroups / "jobs" / "memory.max").write_text(limit)
    (cgroups / "jobs" / "memory.current").write_text(str(2 << 30))
    return proc, cgroups


def test_the_machine_keeps_some_memory(tmp_path: Path) -> None:
    assert memory_room.host_mib(7, *machine(tmp_path, 5000)) == 5000 - memory_room.SPARE_MIB


def test_a_limit_above_the_job_counts(tmp_path: Path) -> None:
    assert memory_room.host_mib(7, *machine(tmp_path, 50_000, str(3 << 30))) == 1024


def test_what_lacks_is_said() -> None:
    assert memory_room.host_lack(5, 5) == memory_room.gpu_lack(5, 5) == ""
    assert "130000 MiB of host memory, and there are 125000 MiB" in memory_room.host_lack(
        130_000, 125_000
    )
    assert "waits for 9 MiB of GPU memory" in memory_room.gpu_lack(9, 5)
