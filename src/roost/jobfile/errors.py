"""The faults of a job file: all at once, each with its line and field.

No message repeats a value that may be secret: what stands in ``env``, ``secrets`` or a script is
described by its kind alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roost.errors import InvalidSpec

#: More faults than this are counted, not kept.
MOST = 50
_LONG = 60

#: Names that other systems use for what is here.
_SYNONYMS = {
    "accelerators": "gpus",
    "args": "command",
    "cmd": "command",
    "commands": "run",
    "container": "image",
    "cpu": "resources",
    "cpus": "resources",
    "cwd": "workdir",
    "docker": "image",
    "entrypoint": "command",
    "environment": "env",
    "gpu": "gpus",
    "gpu_count": "gpus",
    "instances": "workers",
    "mem": "memory",
    "memory": "resources",
    "num_gpus": "gpus",
    "num_nodes": "workers",
    "num_workers": "workers",
    "partition": "queue",
    "replicas": "workers",
    "restart": "retry",
    "retries": "retry",
    "script": "run",
    "tags": "labels",
    "time_limit": "max_duration",
    "timeout": "max_duration",
    "vc": "queue",
    "virtual_cluster": "queue",
    "walltime": "max_duration",
    "working_dir": "workdir",
}


class FieldError(NamedTuple):
    """One fault: the line (0: not known), the field with its path, and what is wrong."""

    line: int
    field: str
    message: str


class JobFileErrors(InvalidSpec):
    """All faults of one file; reads as the first of them and a count of the others."""

    def __init__(self, file: str, errors: Sequence[FieldError]) -> None:
        self.file = file
        self.errors = tuple(errors)
        first = self.errors[0]
        where = f"{file}, line {first.line}" if first.line else file
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        super().__init__(f"{where}: {first.message}{more}")

    def __reduce__(self) -> tuple[type[JobFileErrors], tuple[str, tuple[FieldError, ...]]]:
        return JobFileErrors, (self.file, self.errors)


class Fault(Exception):
    """A fault on its way up, before the file is known."""

    def __init__(self, line: int, message: str, field: str = "") -> None:
        super().__init__(message)
        self.error = FieldError(line, field, message)


def unknown_field(name: str, choices: Iterable[str]) -> str:
    """The message for a field that does not exist: the nearest name, or all of them."""
    known = sorted(choices)
    near = _nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"one of: {', '.join(known)}"
    return f"unknown field {shown(name)}; {hint}"


def shown(value: object) -> str:
    """A value in a message: short, on one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str() if len(value) > _LONG:
            return f"{value[:_LONG]!r}... ({len(value)} characters)"
        case str() | int() | float():
            return repr(value)
        case _:
            return f"a value of type {type(value).__name__}"


def kind_of(value: object) -> str:
    """The kind of a value, without the value."""
    match value:
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case _:
            return shown(value)


def _nearest(name: str, known: list[str]) -> str:
    plain = name.lower().replace("-", "_")
    if len(plain) > _LONG:
        return ""
    if plain in known or _SYNONYMS.get(plain) in known:
        return plain if plain in known else _SYNONYMS[plain]
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
    return close[0] if close else ""
