"""Programs of npm that only tests use: axe-core and TypeScript, by the hashes of a lock file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent / "tools"
_MODULES = TOOLS / "node_modules"
_INSTALL_S = 300


def node_modules() -> Path:
    """The folder with the packages, installed when it is first asked for; skips without npm."""
    lock = TOOLS / "package-lock.json"
    noted = _MODULES / ".package-lock.json"
    if noted.exists() and noted.stat().st_mtime >= lock.stat().st_mtime:
        return _MODULES
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=TOOLS, check=True, capture_output=True, timeout=_INSTALL_S)  # noqa: S603
    noted.touch()
    return _MODULES
