"""Limits of GPU memory for tenants that share by turns, through the framework of the job.

A folder that comes first in ``PYTHONPATH`` holds a ``sitecustomize`` which tells PyTorch's
allocator its limit the moment a process touches the GPU; over it, the job sees PyTorch's ordinary
out-of-memory error. Its script is not changed, and an own ``sitecustomize`` is still loaded. JAX is
told by a variable. What gets around all this is seen by the sharing daemon and stopped.

The limit counts everything that the job holds on the device. What CUDA itself takes for a process
(``CONTEXT_MIB``) is therefore kept from the allocator.
"""

from __future__ import annotations

from pathlib import Path

from roost import files

#: What a process takes on the device beside what its allocator gives out; ``roost.train`` predicts
#: with the same number.
CONTEXT_MIB = 600
VARIABLE = "ROOST_GPU_MEMORY_MIB"

_HOOK = '''\
"""Roost: PyTorch may take so much GPU memory and no more (ROOST_GPU_MEMORY_MIB)."""

import os
import sys


def _limit(cuda):
    def set_limit():
        limit = float(os.environ["ROOST_GPU_MEMORY_MIB"])
        for device in range(cuda.device_count()):
            total = cuda.get_device_properties(device).total_memory / 2**20
            part = max(limit - CONTEXT_MIB, limit / 2) / total
            cuda.set_per_process_memory_fraction(min(part, 1.0), device)

    cuda._lazy_call(set_limit)


class _Watch:
    """Waits for torch.cuda."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                _limit(module)

            spec.loader.exec_module = exec_module
        return spec


def _go_on():
    """Load the sitecustomize that would have been loaded without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    before = list(sys.path)
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or ".") != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this
    finally:
        sys.path[:] = before


if os.environ.get("ROOST_GPU_MEMORY_MIB", "0") not in ("", "0"):
    sys.meta_path.insert(0, _Watch())
_go_on()
'''


def write_hook(folder: Path) -> Path:
    """Make the folder for ``PYTHONPATH``; jobs of any account may read it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    text = _HOOK.replace("CONTEXT_MIB", str(CONTEXT_MIB))
    files.save(folder / "sitecustomize.py", text, 0o644)
    return folder


def env(limit_mib: int, total_mib: int, hook: Path) -> dict[str, str]:
    """What a worker needs to keep to its limit; nothing if it has none."""
    if not limit_mib:
        return {}
    found = {VARIABLE: str(limit_mib), "PYTHONPATH": str(hook)}
    if total_mib:
        part = max(limit_mib - CONTEXT_MIB, limit_mib / 2) / total_mib
        found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{min(part, 1.0):.4f}"
    return {**found, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
