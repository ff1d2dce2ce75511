"""What a function needs around it, written down where it is submitted and checked where it runs.

Another minor version of Python, another major version of a package, or a package that is not there
is an error; any other difference is a warning. Standard library only: every job imports this.
"""

from __future__ import annotations

import dis
import importlib.metadata
import importlib.util
import inspect
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

_NEVER = frozenset({*sys.stdlib_module_names, "__main__", "builtins", "roost"})


class Differences(NamedTuple):
    """What is other here than where the function came from."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def describe(function: Callable[..., Any]) -> dict[str, Any]:
    """The environment that a function is submitted from."""
    names = {name for name in modules(function) if not is_local(name)}
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "cloudpickle": version("cloudpickle"),
        "modules": {name: version(name) for name in sorted(names)},
    }


def compare(there: Mapping[str, Any]) -> Differences:
    """How this environment differs from the one that a header tells of."""
    errors, warnings = [], []
    here, was = platform.python_version(), str(there.get("python", ""))
    if _first(here, 2) != _first(was, 2) or there.get("implementation") != sys.implementation.name:
        errors.append(f"Python is {here} here and was {was} where the function was submitted")
    elif here != was:
        warnings.append(f"Python is {here} here and was {was} where the function was submitted")
    for name, needed in {"cloudpickle": there.get("cloudpickle"), **there["modules"]}.items():
        if importlib.util.find_spec(name) is None:
            errors.append(f"{name} {needed or ''}".rstrip() + " is not installed here")
            continue
        found = version(name)
        # A version that one side does not know cannot be compared.
        if found == needed or not (found and needed):
            continue
        told = f"{name} is {found} here and was {needed}"
        (errors if _first(found, 1) != _first(needed, 1) else warnings).append(told)
    return Differences(tuple(errors), tuple(warnings))


def modules(function: Callable[..., Any]) -> set[str]:
    """The top-level modules that a function refers to, its own included."""
    plain = inspect.unwrap(function)
    found = {getattr(plain, "__module__", None) or "__main__"}
    scope: dict[str, Any] = dict(getattr(plain, "__globals__", {}))
    code = getattr(plain, "__code__", None)
    if code is not None:
        cells = zip(code.co_freevars, plain.__closure__ or (), strict=True)
        for name, cell in cells:
            try:
                scope[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        # Names of attributes are among them, so a module too many may be found: harmless.
        for name in _names(code):
            value = scope.get(name)
            if isinstance(value, ModuleType):
                found.add(value.__name__)
            elif callable(value):
                found.add(getattr(value, "__module__", None) or "builtins")
        found |= set(_imports(code))
    return {name.partition(".")[0] for name in found} - _NEVER


def is_local(name: str) -> bool:
    """Whether a module is found only by this process: beside its script, or by PYTHONPATH."""
    places = _places(name)
    return bool(places) and not any(
        place.is_relative_to(folder) for place in places for folder in _installed()
    )


def local_folders() -> list[str]:
    """The entries of the import path that belong to this process alone."""
    here = (path or str(Path.cwd()) for path in sys.path)
    known = _installed()
    return [
        path
        for path in dict.fromkeys(here)
        if Path(path).is_dir() and not any(Path(path).is_relative_to(folder) for folder in known)
    ]


def version(name: str) -> str:
    """The version of an installed package, by the name it is imported as; empty: not known."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    # The map of all distributions reads every installed package: it is asked last.
    told = getattr(sys.modules.get(name), "__version__", None)
    if isinstance(told, str):
        return told
    for distribution in importlib.metadata.packages_distributions().get(name, ()):
        return importlib.metadata.version(distribution)
    return ""


def _places(name: str) -> list[Path]:
    """Where a module, or what there is of a package without a file of its own, lies."""
    module = sys.modules.get(name)
    try:
        spec = None if module is not None else importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    file = getattr(module, "__file__", None) or (spec.origin if spec is not None else None)
    if isinstance(file, str):
        return [Path(file)]
    folders = getattr(module, "__path__", None) or getattr(spec, "submodule_search_locations", None)
    return [Path(folder) for folder in folders or ()]


@cache
def _installed() -> tuple[Path, ...]:
    """The folders that every process of this interpreter imports from, editable installs too."""
    homes = {
        Path(sysconfig.get_path(key)) for key in ("purelib", "platlib", "stdlib", "platstdlib")
    }
    lines = (line for home in homes for file in home.glob("*.pth") for line in _lines(file))
    # Lines of a .pth file that are no absolute path are code, or relative to a home.
    return (*homes, *(Path(line) for line in lines if line.startswith("/")))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _imports(code: CodeType) -> Iterator[str]:
    # An import inside of the function happens only where it runs: pickling does not see it.
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and step.argval:
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant)


def _first(version_: str, parts: int) -> list[str]:
    return version_.split(".")[:parts]
