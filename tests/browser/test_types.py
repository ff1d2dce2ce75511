"""The types of the pages: JSDoc, checked against the server's own description of its answers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.browser.node_tools import TOOLS, node_modules
from tests.support.server_process import ServerProcess

from roost.web.assets import STATIC

_WITHIN_S = 300


def run(*command: str | Path, cwd: Path) -> str:
    """What a program says; empty where all is well."""
    node = shutil.which("node")
    assert node
    done = subprocess.run(  # noqa: S603
        [node, *map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_pages_have_sound_types(server: ServerProcess, tmp_path: Path) -> None:
    packages = node_modules()
    described = server.ask("GET", "/openapi.json")
    assert described is not None
    (tmp_path / "openapi.json").write_text(described.text)
    generator = packages / "openapi-typescript/bin/cli.js"
    assert run(generator, "openapi.json", "-o", "api.d.ts", cwd=tmp_path) == ""
    shutil.copytree(STATIC, tmp_path / "static")
    # The types of the libraries lie beside the libraries, where the check looks for them.
    vendor = tmp_path / "static/vendor"
    for file in vendor.rglob("*.js"):
        types = packages / "lit-html" / file.relative_to(vendor).with_suffix(".d.ts")
        if types.exists():
            shutil.copy(types, file.with_suffix(".d.ts"))
    shutil.copy(packages / "uplot/dist/uPlot.d.ts", vendor / "uplot.d.ts")
    shutil.copy(TOOLS / "tsconfig.json", tmp_path)
    (tmp_path / "node_modules").symlink_to(packages)
    assert run(packages / "typescript/bin/tsc", "-p", "tsconfig.json", cwd=tmp_path) == ""
