"""Limits of GPU memory: what a framework is told, and what the guard sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from roost.engines.local.gpu import framework_memory, memory_limit

TORCH = """
import sys
calls = []
set_fraction = []
def _lazy_call(call): calls.append(call)
def device_count(): return 2
class Properties: total_memory = 10000 * 2**20
def get_device_properties(device): return Properties
def set_per_process_memory_fraction(part, device): set_fraction.append((round(part, 4), device))
"""


def run(tmp_path: Path, source: str, **env: str) -> str:
    """What a script prints that has the hook first in its path, and a torch of our own."""
    hook = framework_memory.write_hook(tmp_path / "hook")
    package = tmp_path / "lib" / "torch" / "cuda"
    package.mkdir(parents=True, exist_ok=True)
    (package.parent / "__init__.py").write_text("from torch import cuda\n")
    (package / "__init__.py").write_text(TORCH)
    path = os.pathsep.join(map(str, (hook, *env.pop("first", "").split(), tmp_path / "lib")))
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", source],
        env={"PATH": os.defpath, **env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


SHOW = "import torch.cuda as c\nfor call in c.calls: call()\nprint(c.set_fraction)"


def test_the_allocator_gets_the_limit_without_what_cuda_takes(tmp_path: Path) -> None:
    part = (4000 - framework_memory.CONTEXT_MIB) / 10000
    told = run(tmp_path, SHOW, ROOST_GPU_MEMORY_MIB="4000")
    assert told == f"[({part}, 0), ({part}, 1)]"


def test_a_small_limit_leaves_the_allocator_half_of_it(tmp_path: Path) -> None:
    assert run(tmp_path, SHOW, ROOST_GPU_MEMORY_MIB="800") == "[(0.04, 0), (0.04, 1)]"


def test_without_a_limit_torch_is_left_alone(tmp_path: Path) -> None:
    assert run(tmp_path, SHOW) == "[]"


def test_the_own_sitecustomize_of_a_job_is_still_loaded(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.mine = 'mine'")
    source = f"import sys; print(sys.mine)\n{SHOW}"
    told = run(tmp_path, source, ROOST_GPU_MEMORY_MIB="800", first=str(tmp_path / "own"))
    assert told == "mine\n[(0.04, 0), (0.04, 1)]"


def test_a_script_without_torch_notices_nothing(tmp_path: Path) -> None:
    source = "import sys; print('torch' in sys.modules)"
    assert run(tmp_path, source, ROOST_GPU_MEMORY_MIB="800") == "False"


def test_jax_is_told_its_part(tmp_path: Path) -> None:
    found = framework_memory.env(4000, 10000, tmp_path)
    assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.3400"
    assert found["ROOST_GPU_MEMORY_MIB"] == "4000"
    assert found["PYTHONPATH"] == str(tmp_path)
    assert framework_memory.env(0, 10000, tmp_path) == {}


def test_the_guard_counts_all_processes_of_a_tenant() -> None:
    held = {1: 3000, 2: 2000, 3: 9000}
    assert memory_limit.over(held, [1, 2], 5000) == ""
    assert memory_limit.over(held, [1, 2], 4900) == (
        "held 5000 MiB of GPU memory, over its limit of 4900 MiB"
    )
    assert memory_limit.over(held, [3], 0) == ""
