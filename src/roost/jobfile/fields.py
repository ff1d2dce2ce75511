"""The types of the fields of a job file: how each is read, checked and written.

A value that is wrong raises an error of type ``expected`` that says what should stand there;
``faults`` makes a line of it that a person can use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from roost.core import Range
from roost.jobfile import grammar
from roost.jobfile.grammar import AmountRange, GpuRequest

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
QUEUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?\Z")
ROLE = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?\Z")
MOUNT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}\Z")
#: No user and password in an http address: it is kept in the journal.
URL = re.compile(
    r"(https?://[^\s@/]{1,253}/[^\s]{1,1000}|(ssh|git|file)://[^\s-][^\s]{0,1000})\Z"
    r"|\w[\w.-]{0,63}@\w[\w.-]{0,252}:[\w.~/][\w./~-]{0,999}\Z"
)

#: Variables that tell a worker which one it is and what it holds; a job cannot set them.
RESERVED = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TF_CONFIG"),
    }
)
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
#: One argument or variable of a process can be no longer on Linux.
MAX_ARGUMENT = 128 * 1024 - 1
MAX_SCRIPT = 1024 * 1024
MAX_LINE = 256
MAX_CODE = 255
MAX_ITEMS = 1_000


def expected(what: str) -> PydanticCustomError:
    """A value other than ``what``."""
    return PydanticCustomError("expected", "{what}", {"what": what})


def wrong(field: str, message: str) -> PydanticCustomError:
    """A fault that shows only when several fields are seen together."""
    return PydanticCustomError("wrong", "{message}", {"field": field, "message": message})


def _read(reader: Callable[[Any], Any]) -> BeforeValidator:
    def read(value: Any) -> Any:
        if isinstance(value, GpuRequest | AmountRange | Range):
            return value
        try:
            return reader(value)
        except (ValueError, OverflowError) as error:
            raise expected(str(error)) from None

    return BeforeValidator(read)


def _schema(*types: str) -> WithJsonSchema:
    options = [{"type": "array", "items": {}} if t == "array" else {"type": t} for t in types]
    return WithJsonSchema(options[0] if len(options) == 1 else {"anyOf": options})


def _matching(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > MAX_SCRIPT or not pattern.match(value):
            raise ValueError(what)
        return value

    return _read(check)


def clean(text: str) -> bool:
    """Whether a text can be handed to a process and written to a file."""
    if "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _text(most: int, what: str) -> BeforeValidator:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value.encode(errors="replace")) > most:
            raise ValueError(f"{what} of at most {most} bytes")
        if not clean(value):
            raise ValueError(f"{what} without zero bytes and broken characters")
        return value

    return _read(check)


def _line(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_LINE or not value.isprintable():
        raise ValueError(f"one line of text, at most {MAX_LINE} characters")
    return value


def _written(value: Any) -> str:
    """A scalar as text, for places where people write numbers and mean texts."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str() if len(value.encode(errors="replace")) <= MAX_ARGUMENT and clean(value):
            return value
        case _:
            raise ValueError(f"a text of at most {MAX_ARGUMENT} bytes, without zero bytes")


def _items(reader: Callable[[Any], Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
            raise ValueError(f"{what}, at most {MAX_ITEMS}")
        return tuple(reader(item) for item in value)

    return read


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        text = value.strip() if isinstance(value, str) else value
        if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= len("999"):
            text = int(text)
        if isinstance(text, bool) or not isinstance(text, int) or not low <= text <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return text

    return read


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not VARIABLE.match(value):
        raise ValueError("the name of a variable such as DATA_DIR")
    if value in RESERVED or value.startswith("ROOST_"):
        raise ValueError("another name: Roost itself sets this variable")
    return value


def _signal(value: Any) -> str:
    name = value.upper() if isinstance(value, str) else ""
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name not in SIGNALS:
        raise ValueError(f"one of {', '.join(SIGNALS)}")
    return name


def _percent(value: Any) -> int:
    number = value.strip().removesuffix("%") if isinstance(value, str) else value
    try:
        return _whole(1, 100)(number)
    except ValueError:
        raise ValueError("a percentage of one GPU from 1 to 100") from None


def _truth(value: Any) -> bool:
    given = value.lower() if isinstance(value, str) else value
    if given is True or given in ("true", "yes", "on"):
        return True
    if given is False or given in ("false", "no", "off"):
        return False
    raise ValueError("true or false")


def _argument(value: Any) -> str:
    if value is None:
        raise ValueError("a text in each place; nothing is written ''")
    return _written(value)


def _command(value: Any) -> tuple[str, ...]:
    what = "a list such as [python, train.py]; a line for the shell goes into run"
    arguments = _items(_argument, what)(value)
    if not arguments or not arguments[0]:
        raise ValueError(what)
    return arguments


def _named(value: Any) -> tuple[str, ...]:
    what = "a list of names; values are given when the job is submitted"
    return tuple(dict.fromkeys(_items(_variable, what)(value)))


def _mounts(value: Any) -> tuple[str, ...]:
    what = "a list of names such as [birds], which an administrator has declared"
    names = _items(_written, what)(value)
    if any(not MOUNT.match(name) for name in names):
        raise ValueError(what)
    return tuple(dict.fromkeys(names))


def _lines(value: Any) -> tuple[str, ...]:
    match value:
        case dict():
            return tuple(_line(f"{key}: {item}") for key, item in list(value.items())[:MAX_ITEMS])
        case str() | int():
            return (_line(str(value)),)
        case _:
            return tuple(_line(str(item)) for item in _items(_written, "a list of texts")(value))


Duration = Annotated[
    float,
    _read(grammar.read_duration),
    PlainSerializer(grammar.write_duration, return_type=str),
    _schema("string", "number"),
]
Size = Annotated[
    int,
    _read(grammar.read_size),
    PlainSerializer(grammar.write_size, return_type=str),
    _schema("string"),
]
Sizes = Annotated[
    AmountRange,
    _read(grammar.read_sizes),
    PlainSerializer(grammar.write_sizes, return_type=str),
    _schema("string"),
]
Cpus = Annotated[
    AmountRange,
    _read(grammar.read_cpus),
    PlainSerializer(grammar.write_cpus, return_type=Any),
    _schema("number", "string"),
]
Workers = Annotated[
    Range,
    _read(grammar.read_workers),
    PlainSerializer(grammar.write_workers, return_type=Any),
    _schema("integer", "string", "array", "object"),
]
RoleWorkers = Annotated[
    Range,
    _read(grammar.read_role_workers),
    PlainSerializer(grammar.write_workers, return_type=Any),
    _schema("integer", "string", "array", "object"),
]
Count = Annotated[int, _read(grammar.read_count), _schema("integer")]
Amount = Annotated[
    float,
    _read(grammar.read_amount),
    PlainSerializer(grammar.write_amount, return_type=Any),
    _schema("number"),
]
CountByKind = Annotated[
    tuple[tuple[str, int], ...],
    _read(grammar.read_counts),
    PlainSerializer(grammar.write_counts, return_type=Any),
    _schema("object", "integer"),
]
AmountByKind = Annotated[
    tuple[tuple[str, float], ...],
    _read(grammar.read_amounts),
    PlainSerializer(grammar.write_amounts, return_type=Any),
    _schema("object"),
]
Devices = Annotated[
    GpuRequest,
    _read(grammar.read_gpus),
    PlainSerializer(grammar.write_gpus, return_type=Any),
    _schema("number", "string", "array"),
]

Name = Annotated[str, _matching(NAME, "a name of lower-case letters, digits and dashes, up to 63")]
QueueName = Annotated[str, _matching(QUEUE, "the name of a queue: letters, digits, . _ -")]
RoleName = Annotated[str, _matching(ROLE, "the name of a role such as ps")]
LabelKey = Annotated[str, _matching(LABEL, "a key of letters, digits, . _ / -")]
Variable = Annotated[str, _read(_variable), _schema("string")]
Digest = Annotated[str, _matching(DIGEST, "the SHA-256 of a folder that was sent")]
Ref = Annotated[str, _matching(REF, "a branch, tag or commit")]
Url = Annotated[
    str, _matching(URL, "an address such as https://host/project.git, without password")
]
Line = Annotated[str, _read(_line), _schema("string")]
Script = Annotated[str, _text(MAX_SCRIPT, "a script"), _schema("string")]
Written = Annotated[str, _read(_written), _schema("string", "number", "boolean")]
Command = Annotated[tuple[str, ...], _read(_command), _schema("array")]
Secrets = Annotated[tuple[str, ...], _read(_named), _schema("array")]
Mounts = Annotated[tuple[str, ...], _read(_mounts), _schema("array")]
Lines = Annotated[tuple[str, ...], _read(_lines), _schema("array", "string", "object")]
Codes = Annotated[
    tuple[int, ...], _read(_items(_whole(1, MAX_CODE), "a list of exit codes")), _schema("array")
]
Retries = Annotated[int, _read(_whole(0, 100)), _schema("integer")]
Priority = Annotated[int, _read(_whole(0, 100)), _schema("integer")]
Percent = Annotated[int, _read(_percent), _schema("integer", "string")]
Signal = Annotated[str, _read(_signal), _schema("string")]
Truth = Annotated[bool, _read(_truth), _schema("boolean")]
