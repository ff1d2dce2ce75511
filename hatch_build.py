"""Compiles the scheduling core where a C compiler is found, and fetches the portal's libraries.

``pip install .`` and ``pip wheel .`` come here. Each module of ``COMPILED`` becomes an extension
beside its source, by mypyc: the same code in half the time. An editable install stays plain, so
that an edit is seen at once. ``ROOST_COMPILE=no`` switches this off; ``ROOST_COMPILE=yes`` makes a
failure an error instead of a warning.

The libraries come from the npm registry, editable or not (``src/roost/web/vendor.py``). Without a
registry in reach Roost is installed without its portal, and says how to get it; one that sends
something else than what was locked is an error. ``ROOST_PORTAL=no`` and ``ROOST_PORTAL=yes`` decide
otherwise.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The modules in which decisions and simulated time are spent.
COMPILED = (
    "roost/core/**/*.py",
    "roost/placement/*.py",
    "roost/policies/kit/**/*.py",
    "roost/sim/simulation.py",
    "roost/sim/worlds/*.py",
)
#: mypyc erases annotations, and the codecs work by those of the vocabulary: all of them stay plain.
PLAIN = (
    "**/__init__.py",
    *(
        f"roost/core/{name}.py"
        for name in (
            *("actions", "allocation", "decisions", "events", "observed", "reasons", "spec"),
            *("quota", "history_codec", "snapshot", "snapshot_v1", "wire"),
            *("cells/claim", "cells/promise", "cells/site"),
        )
    ),
)
#: Modules that work on arrays gain nothing, and pass arrays where a number is declared.
_ARRAYS = re.compile(r"^import numpy", re.MULTILINE)

#: Without it compiled objects do not tell their fields (saved simulations need them), and plain
#: classes, such as a world or a placer of somebody's own, cannot inherit from compiled ones.
_ATTRIBUTE = "@mypyc_attr(allow_interpreted_subclasses=True)\n"
_CLASS = re.compile(
    r"^(?:@[^\n]*\n)*class \w+(?!\w)(?!\([^)]*(?:Tuple|Enum|Protocol|Error))", re.MULTILINE
)
_FUTURE = "from __future__ import annotations\n"

_SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup

# Other modules are read for their types alone: what they import need not be installed yet.
options = [
    *("--ignore-missing-imports", "--follow-imports=silent"),
    *("--explicit-package-bases", "--namespace-packages"),
]
setup(
    name="roost-compiled",
    packages=[],
    ext_modules=mypycify([*options, *sys.argv[1:]], opt_level="2", debug_level="0"),
    script_args=["build_ext", "--inplace"],
)
"""


class RoostBuildHook(BuildHookInterface[Any]):
    """Adds the compiled modules to the wheel, and the portal's libraries to everything."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What a compilation needs; nothing where there will be none."""
        return ["mypy~=2.4", "setuptools>=75"] if self.target_name == "wheel" and _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch and compile, and tell hatchling where the results go."""
        if (setting := os.environ.get("ROOST_PORTAL", "")) != "no":
            self._fetch(required=setting == "yes")
        if self.target_name != "wheel" or version == "editable" or not _wanted():
            return
        try:
            found = compile_core(Path(self.root) / "src", Path(self.root) / "build" / "compiled")
        except subprocess.CalledProcessError as error:
            if _setting() == "yes":
                raise RuntimeError(error.output) from error
            self.app.display_warning(f"The core stays plain Python:\n{error.output}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(found)

    def _fetch(self, *, required: bool) -> None:
        """Put the portal's libraries where the package finds them, and hatchling with it."""
        vendor = _vendor(Path(self.root))
        try:
            vendor.fetch()
        except vendor.UnexpectedPackage as error:
            raise RuntimeError(str(error)) from error
        except (vendor.PackageError, OSError) as error:
            if required:
                raise RuntimeError(str(error)) from error
            self.app.display_warning(f"Roost is built without its portal: {error}")


def _vendor(root: Path) -> ModuleType:
    """The module that fetches; Roost itself is not installed yet."""
    path = root / "src" / "roost" / "web" / "vendor.py"
    spec = importlib.util.spec_from_file_location("roost_web_vendor", path)
    assert spec is not None  # noqa: S101 - it is a file
    assert spec.loader is not None  # noqa: S101 - of Python
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_core(source: Path, target: Path) -> dict[str, str]:
    """Compile the modules below ``source``; returns each extension and its place in the wheel."""
    shutil.rmtree(target, ignore_errors=True)
    found = {}
    # mypyc writes beside what it reads, and classes get an attribute that the source has no use
    # for: both happen to a copy.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        modules = _modules(copy)
        for module in modules:
            path = copy / module
            path.write_text(_attributed(path.read_text(encoding="utf-8")), encoding="utf-8")
        subprocess.run(  # noqa: S603 - our own script
            [sys.executable, "-c", _SETUP, *modules],
            cwd=copy,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for extension in copy.rglob("*.so"):
            place = extension.relative_to(copy)
            if place.parts[0] != "build":
                (target / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(extension, target / place)
                found[str(target / place)] = str(place)
    return found


def _modules(root: Path) -> list[str]:
    chosen = {path for pattern in COMPILED for path in root.glob(pattern)}
    plain = {path for pattern in PLAIN for path in root.glob(pattern)}
    return sorted(
        str(path.relative_to(root))
        for path in chosen - plain
        if not _ARRAYS.search(path.read_text(encoding="utf-8"))
    )


def _attributed(text: str) -> str:
    """The text of a module with the attribute on every class that becomes a native one."""
    if not _CLASS.search(text):
        return text
    marked = _CLASS.sub(lambda found: _ATTRIBUTE + found[0], text)
    return marked.replace(_FUTURE, f"{_FUTURE}from mypy_extensions import mypyc_attr\n", 1)


def _setting() -> str:
    return os.environ.get("ROOST_COMPILE", "")


def _wanted() -> bool:
    return _setting() != "no" and any(shutil.which(name) for name in ("cc", "gcc", "clang"))
