"""Policies: which job runs next. One file per published system, found through entry points.

A third party's package adds its own by declaring an entry point in the group ``roost.policies``;
its name is then a policy name. An experiment needs no package: ``path/to/file.py:Name`` is a policy
name, too. The object is a function on a plan, or a frozen dataclass with the policy's parameters
as fields and instances that are called with a plan. ``roost.policies.kit`` has the tools that
policies share.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

from roost.core.controller import Policy
from roost.errors import InvalidSpec, NotFound, RoostError, unknown
from roost.settings import build

GROUP = "roost.policies"
#: ``path/to/file.py``, the name of a policy in it, and its parameters.
_FILE = re.compile(r"(?P<path>.+?\.py)(?::(?P<name>[^:=]*))?(?::(?P<settings>.*))?$", re.DOTALL)


class PolicyText(NamedTuple):
    """The parts of a text that names a policy; ``path`` is None for a policy of a package."""

    path: Path | None
    name: str
    settings: str

    @classmethod
    def read(cls, text: str) -> PolicyText:
        """The parts of ``name:key=value,...`` or ``file.py:Name:key=value,...``."""
        found = _FILE.match(text)
        if found is None:
            name, _, settings = text.partition(":")
            return cls(None, name, settings)
        return cls(Path(found["path"]), found["name"] or "", found["settings"] or "")

    def __str__(self) -> str:
        parts = (None if self.path is None else str(self.path), self.name, self.settings)
        return ":".join(filter(None, parts))


def names() -> list[str]:
    """All policy names, Roost's own and those of installed packages."""
    return sorted(_found())


def summary(text: str) -> str:
    """One line on what a policy does."""
    return (inspect.getdoc(_load(PolicyText.read(text))) or "").partition("\n")[0]


def parameters(text: str) -> dict[str, Any]:
    """A policy's parameters and their defaults."""
    found = _load(PolicyText.read(text))
    if not dataclasses.is_dataclass(found):
        return {}
    return {field.name: field.default for field in dataclasses.fields(found)}


def policy(text: str) -> Policy:
    """The policy that a text names.

    Such as ``tiresias``, ``tiresias:limits=60/600,promote=4``, ``mine.py:Longest`` or
    ``mine.py:Longest:gap=2``.
    """
    said = PolicyText.read(text)
    found = _load(said)
    if inspect.isclass(found):
        return cast("Policy", build(found, f"policy {said.name!r}", said.settings))
    if said.settings:
        raise InvalidSpec(f"policy {said.name!r} has no parameters, got {said.settings!r}")
    if not callable(found):
        raise InvalidSpec(f"policy {said.name!r} is no function or class, but {found!r}")
    return cast("Policy", found)


def absolute(text: str) -> str:
    """The same text for a process in another folder: a file is named by its absolute path."""
    said = PolicyText.read(text)
    return text if said.path is None else str(said._replace(path=said.path.absolute()))


def resizes(policy: Policy) -> bool:
    """Whether a policy changes the number of workers of running jobs, as it says itself.

    It says so by an attribute ``resizes``: a ``ClassVar[bool]`` of a class, or an attribute of a
    function (``roost.policies.kit.resizing`` sets it).
    """
    return bool(getattr(policy, "resizes", False))


def _found() -> dict[str, EntryPoint]:
    """Policies by name. Roost's own names cannot be taken by other packages."""
    # The last one of a name wins in the dict, so Roost's own are sorted to the end.
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.module.startswith("roost."))
    return {entry.name: entry for entry in entries}


def _load(said: PolicyText) -> Any:
    if said.path is not None:
        return _load_file(said.path, said.name)
    found = _found()
    if said.name not in found:
        raise unknown("policy", said.name, found)
    try:
        return found[said.name].load()
    except Exception as error:
        raise InvalidSpec(
            f"policy {said.name!r} of {found[said.name].value} cannot be loaded: {error}"
        ) from error


# -- policies of loose files -----------------------------------------------------------------------


def _load_file(path: Path, name: str) -> Any:
    """The policy of that name in a file."""
    module = _module(path)
    choices = [
        own
        for own, value in vars(module).items()
        if callable(value) and not own.startswith("_") and value.__module__ == module.__name__
    ]
    if not name:
        raise InvalidSpec(f"say which policy of {path}: {path}:NAME, one of {', '.join(choices)}")
    if not hasattr(module, name):
        raise unknown(f"policy of {path}:", name, choices or ["(none)"])
    return getattr(module, name)


def _module(path: Path) -> ModuleType:
    """A file as a module, which is read once unless it changes."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(f"no policy file {path}: {error.strerror}") from None
    # Dataclasses look their module up by name. The name changes with the content, so that a file
    # that was edited is read again in a process that goes on, such as a notebook.
    import hashlib  # noqa: PLC0415 - its library takes 4 MiB, and few policies are loose files

    digest = hashlib.sha256(str(path.absolute()).encode() + b"\0" + content).hexdigest()
    name = f"roost_policy_file_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    module = importlib.util.module_from_spec(cast("Any", spec))
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        # From the bytes that were hashed, not by an import: the file may change in between, and no
        # __pycache__ appears beside it.
        exec(compile(content, str(path), "exec"), vars(module))  # noqa: S102 - its purpose
    except Exception as error:
        del sys.modules[name]
        raise _broken(path, error) from error
    return module


def _broken(path: Path, error: Exception) -> RoostError:
    """What is wrong with a file, and in which of its lines."""
    if isinstance(error, SyntaxError):
        line, what = error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), 0)
        what = str(error)
    where = f"{path}, line {line}" if line else str(path)
    return InvalidSpec(f"{where}: {type(error).__name__}: {what}")
