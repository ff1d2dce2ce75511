"""Translates the errors of pydantic into faults that a person can use: one line each.

Each says the field with its path, what was expected and what was found there. Values of ``env``,
``secrets``, scripts and addresses are never repeated.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from roost.jobfile.errors import (
    MOST,
    Fault,
    FieldError,
    JobFileErrors,
    kind_of,
    shown,
    unknown_field,
)
from roost.jobfile.fields import clean
from roost.jobfile.yaml import MAX_DEPTH, MAX_NODES, MAX_NUMBER, YamlNode

#: Fields of other engines; each with what to do here.
UNSUPPORTED = {
    "volumes": "use 'mounts', or paths of this machine",
    "schedule": "submit the job when it should run, from cron for example",
    "utilization_policy": "use 'max_duration' to bound how long GPUs are held",
    "ordered": "use 'any_of', a list of kinds with the same count",
}
#: Other spellings of a field.
_SHORT = {"workers": ("nodes", "elastic")}
_SECRETIVE = frozenset({"env", "secrets", "run", "command", "setup", "git"})
_KINDS = {
    "string_type": "a text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "int_type": "a whole number",
    "bool_type": "true or false",
}

Path = tuple[str | int, ...]


def explained(
    kind: type[BaseModel], error: ValidationError, root: YamlNode | None = None
) -> tuple[FieldError, ...]:
    """Each fault with its line where the text is known, in the order of the lines."""
    found = [_explain(kind, one, root) for one in error.errors(include_url=False)[:MOST]]
    return tuple(sorted(found, key=lambda fault: fault.line))


def check_document(name: str, document: Any) -> None:
    """Refuse what no text could have said: too deep, too large, not finite, broken texts."""
    try:
        _Walk().check(document, ())
    except Fault as fault:
        raise JobFileErrors(name, [fault.error]) from None


class _Walk:
    """Visits every value of a document once, and counts."""

    def __init__(self) -> None:
        self._nodes = 0

    def check(self, value: Any, path: Path) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise _fault(path, f"more than {MAX_NODES} values, or {MAX_DEPTH} levels")
        if not path and not isinstance(value, Mapping):
            raise _fault(path, f"expected a mapping of fields, found {kind_of(value)}")
        match value:
            case Mapping():
                for key, item in value.items():
                    self.check(_check_key(key, path), (*path, "(key)"))
                    self.check(item, (*path, key))
            case list() | tuple():
                for number, item in enumerate(value):
                    self.check(item, (*path, number))
            case _:
                _check_scalar(value, path)


def _check_key(key: object, path: Path) -> str:
    if not isinstance(key, str):
        raise _fault(path, "a key that is not a text")
    return key


def _check_scalar(value: object, path: Path) -> None:
    match value:
        case None | bool():
            return
        case str():
            if not clean(value):
                raise _fault(path, "a text with zero bytes or broken characters")
        case int() | float():
            if not abs(value) <= MAX_NUMBER:  # also refuses NaN
                raise _fault(path, f"a number above {MAX_NUMBER}")
        case _:
            raise _fault(path, f"{shown(value)} has no place in a job file")


def _fault(path: Path, message: str) -> Fault:
    field = dotted(path)
    return Fault(0, f"{field}: {message}" if field else message, field)


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: ``roles.ps.resources``."""
    return ".".join(str(step)[:100] for step in path)


def _explain(kind: type[BaseModel], error: Any, root: YamlNode | None) -> FieldError:
    path: Path = tuple(step for step in error["loc"] if step != "[key]")
    context = error.get("ctx", {})
    if error["type"] == "wrong":
        path = (*path, *context["field"].split("."))
        message = context["message"]
    elif error["type"] == "extra_forbidden":
        message = _unknown(str(path[-1]), _fields(kind, path[:-1]), dotted(path[:-1]))
    else:
        path = _as_written(path, root)
        message = f"{dotted(path) or 'the file'}: {_expected(error, context)}"
        message += f", found {_found(path, error)}"
    return FieldError(root.line_of(path) if root else 0, dotted(path), message)


def _expected(error: Any, context: Mapping[str, Any]) -> str:
    match error["type"]:
        case "expected":
            return f"expected {context['what']}"
        case "literal_error":
            return (
                f"expected one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}"
            )
        case "missing":
            return "expected a value"
        case known if known in _KINDS:
            return f"expected {_KINDS[known]}"
        case _:
            return f"expected something else ({error['msg']})"


def _found(path: Path, error: Any) -> str:
    hide = bool(_SECRETIVE & {step for step in path if isinstance(step, str)})
    if hide and "[key]" in error["loc"]:
        return shown(error["input"])
    return kind_of(error["input"]) if hide else shown(error["input"])


def _unknown(name: str, choices: Sequence[str], inside: str) -> str:
    if name in UNSUPPORTED:
        return f"{name!r} is not supported yet on this engine; {UNSUPPORTED[name]}"
    where = f" in {inside!r}" if inside else ""
    return unknown_field(name, choices).replace(";", f"{where};", 1)


def _as_written(path: Path, root: YamlNode | None) -> Path:
    """The path with the spelling that the text uses for it."""
    if root is None or root.has(path) or not path:
        return path
    spellings: list[Path] = [(short, *path[1:]) for short in _SHORT.get(str(path[0]), ())]
    if path[-2:] == ("resources", "gpu"):
        spellings += [(*path[:-2], "gpus"), (*path[:-1], "any_of")]
    return next((spelling for spelling in spellings if root.has(spelling)), path)


def _fields(kind: type[BaseModel], path: Path) -> list[str]:
    """The fields that exist at a path of a model, with their shortcuts."""
    at: Any = kind
    for step in path:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(step)) or _by_alias(at, str(step))
            at = _bare(field.annotation) if field else None
        else:
            at = _bare(get_args(at)[-1]) if get_args(at) else None
    if not (isinstance(at, type) and issubclass(at, BaseModel)):
        return []
    names = [field.alias or name for name, field in at.model_fields.items()]
    if "resources" in names:
        names += ["gpus"]
    if "retry" in names:
        names += ["nodes", "elastic"]
    if "shm_size" in names:
        names += ["any_of"]
    return names


def _by_alias(kind: type[BaseModel], alias: str) -> Any:
    return next((field for field in kind.model_fields.values() if field.alias == alias), None)


def _bare(annotation: Any) -> Any:
    """An annotation without ``Annotated`` and ``| None``."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _bare(next(arg for arg in get_args(annotation) if arg is not type(None)))
    return annotation
