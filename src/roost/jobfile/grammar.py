"""The small languages inside a job file: durations, sizes, counts, ranges and GPUs.

Each ``read_*`` takes what YAML or JSON gives and returns a plain value, or raises ValueError whose
text says what was expected; each ``write_*`` is its inverse and gives the shortest spelling.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from roost.core import WHOLE, Range

_Read = TypeVar("_Read")

MIB = 1024 * 1024
MAX_WORKERS = 10_000
MAX_GPUS = 1_024
MAX_ROLE = 999
#: Samples of a step, steps of a job, passes over data, and amounts of work in a second.
MAX_COUNT = 1_000_000_000
MAX_CPUS = 100_000
MAX_BYTES = 1 << 50
MAX_SECONDS = 10 * 365 * 86400.0

_LONGEST = 64
_MOST_KINDS = 32
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\s*")
_NUMBER = re.compile(r"\d+(\.\d+)?\Z")
_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(I?)(B?)\Z", re.IGNORECASE)
_POWERS = {letter: power for power, letter in enumerate(("", "K", "M", "G", "T", "P"))}
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9 ._/-]{0,62}\Z")
#: Kinds of GPUs that are not named, where something is said by kind.
OTHER = "other"

_A_DURATION = "a duration such as 90s, 15m, 2h or 1d"
_A_SIZE = "a size such as 24GB, 16Gi or 512MB"
_SOME_WORKERS = "a number of workers such as 4, or a range such as 1..4"
_SOME_CPUS = "a number of CPUs such as 8, 0.5 or 8.."
_BY_KIND = "a mapping by GPU kind such as {A100: 256, T4: 64}"
_SOME_GPUS = "GPUs such as 2, 0.5, H100:2, A100:0.5 or 24GB..80GB:1"


class AmountRange(NamedTuple):
    """At least ``low``; ``high`` None is open, and equal ends are one amount."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The devices of one worker: how many, which kinds will do, or which part of one."""

    low: int = 1
    high: int = 1
    share_milli: int = WHOLE
    kinds: tuple[str, ...] = ()
    memory: AmountRange | None = None


def read_duration(value: Any) -> float:
    """Seconds from ``90``, ``90s``, ``15m``, ``1h30m``, ``2d`` or ``1w``."""
    match value:
        case bool():
            raise ValueError(_A_DURATION)
        case int() | float():
            seconds = value
        case str():
            seconds = _duration(value.strip())
        case _:
            raise ValueError(_A_DURATION)
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{_A_DURATION}, at most ten years")
    return round(float(seconds), 3)


def write_duration(seconds: float) -> str:
    """The largest unit that divides it."""
    for unit, size in _SECONDS.items():
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{_decimal(seconds)}s"


def read_size(value: Any) -> int:
    """Bytes from ``24GB`` (decimal) or ``16Gi`` (binary); a unit is needed."""
    match = _SIZE.match(value.strip()) if isinstance(value, str) and _short(value) else None
    if match is None or not (match[2] or match[4]):
        raise ValueError(_A_SIZE)
    base: int = 1024 if match[3] else 1000
    size: float = float(match[1]) * base ** _POWERS[match[2].upper()]
    if not 0 < size <= MAX_BYTES:
        raise ValueError(f"{_A_SIZE}, above nothing and at most 1Pi")
    return math.ceil(size)


def write_size(size: int) -> str:
    """The unit that leaves the smallest whole number, decimal before binary."""
    for power in (4, 3, 2, 1):
        for base, ending in ((1000, "B"), (1024, "i")):
            if size % base**power == 0:
                return f"{size // base**power}{'BKMGT'[power]}{ending}"
    return f"{size}B"


def read_sizes(value: Any) -> AmountRange:
    """``64GB``, ``64GB..`` or ``24GB..80GB``."""
    try:
        low, high = _ends(value)
        first = read_size(low)
        return _ordered(
            AmountRange(first, first if high is None else read_size(high) if high else None)
        )
    except ValueError:
        raise ValueError(f"{_A_SIZE}, or a range such as 24GB..80GB") from None


def write_sizes(sizes: AmountRange) -> str:
    """The inverse of ``read_sizes``."""
    return _write_bounds(sizes, write_size)


def read_workers(value: Any) -> Range:
    """``4``, ``"4"``, ``"1..4"``, ``[1, 4]`` or ``{min: 1, max: 4}``."""
    if isinstance(value, dict) and set(value) == {"min", "max"}:
        low, high = value["min"], value["max"]
    elif isinstance(value, list | tuple) and len(value) == len(Range._fields):
        low, high = value
    else:
        low, high = _ends(value)
        high = low if high is None else high
    ends = (_count(low, _SOME_WORKERS), _count(high, _SOME_WORKERS))
    if not 1 <= ends[0] <= ends[1] <= MAX_WORKERS:
        raise ValueError(f"{_SOME_WORKERS}, from 1 to {MAX_WORKERS}")
    return Range(*ends)


def read_role_workers(value: Any) -> Range:
    """The same for a role, of which there are fewer."""
    try:
        workers = read_workers(value)
    except ValueError:
        workers = Range(0, 0)
    if not 1 <= workers.min <= workers.max <= MAX_ROLE:
        raise ValueError(f"{_SOME_WORKERS}, from 1 to {MAX_ROLE}")
    return workers


def write_workers(workers: Range) -> int | str:
    """The inverse of ``read_workers``."""
    low, high = workers
    return low if low == high else f"{low}..{high}"


def read_count(value: Any) -> int:
    """A whole number of samples or steps: ``256``."""
    what = f"a whole number from 1 to {MAX_COUNT}"
    count = _count(value, what)
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(what)
    return count


def read_amount(value: Any) -> float:
    """A number above nothing: ``90``, ``2.5`` or ``"2.5"``."""
    text = value.strip() if isinstance(value, str) else value
    number: Any = float(text) if isinstance(text, str) and _is_number(text) else text
    fits = isinstance(number, int | float) and not isinstance(number, bool)
    if not fits or not 0 < number <= MAX_COUNT:
        raise ValueError(f"a number above 0, at most {MAX_COUNT}")
    return float(number)


def write_amount(amount: float) -> int | float:
    """The inverse of ``read_amount``."""
    return int(amount) if amount == int(amount) else amount


def read_counts(value: Any) -> tuple[tuple[str, int], ...]:
    """Counts by GPU kind, ``{A100: 256, other: 64}``; a number alone is for every kind."""
    if isinstance(value, dict):
        return _by_kind(value, read_count)
    try:
        return (("", read_count(value)),)
    except ValueError as error:
        raise ValueError(f"{error}, or {_BY_KIND}") from None


def write_counts(counts: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """The inverse of ``read_counts``."""
    return {kind or OTHER: count for kind, count in counts}


def read_amounts(value: Any) -> tuple[tuple[str, float], ...]:
    """Amounts by GPU kind, ``{A100: 812.5, T4: 120}``."""
    found = _by_kind(value, read_amount)
    if any(not kind for kind, _ in found):
        raise ValueError(f"{_BY_KIND}; {OTHER!r} is no kind")
    return found


def write_amounts(amounts: tuple[tuple[str, float], ...]) -> dict[str, int | float]:
    """The inverse of ``read_amounts``."""
    return {kind: write_amount(amount) for kind, amount in amounts}


def read_cpus(value: Any) -> AmountRange:
    """Milli-CPUs from ``8``, ``0.5``, ``8..`` or ``4..8``."""
    try:
        low, high = _ends(value)
        first = _milli(low)
        return _ordered(
            AmountRange(first, first if high is None else _milli(high) if high else None)
        )
    except ValueError:
        raise ValueError(f"{_SOME_CPUS}, at most {MAX_CPUS}") from None


def write_cpus(cpus: AmountRange) -> float | str:
    """The inverse of ``read_cpus``."""
    low, high = cpus
    if low == high:
        return low // 1000 if low % 1000 == 0 else low / 1000
    return _write_bounds(cpus, lambda milli: _decimal(milli / 1000))


def read_gpus(value: Any) -> GpuRequest:
    """``2``, ``0.5``, ``H100:2``, ``A100:0.5``, ``24GB..80GB:1..8``, or a list of alternatives."""
    if isinstance(value, list | tuple):
        if len(value) > _MOST_KINDS:
            raise ValueError(f"at most {_MOST_KINDS} kinds")
        return _any_of([read_gpus(item) for item in value if not isinstance(item, list | tuple)])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _counted(GpuRequest(), _decimal(value))
    if not isinstance(value, str) or not _short(value) or not value.strip():
        raise ValueError(_SOME_GPUS)
    gpus = GpuRequest()
    *names, last = (part.strip() for part in value.split(":"))
    if not last[:1].isdigit() or not _is_count(last):
        names.append(last)
        last = "1"
    for name in names:
        gpus = _named(gpus, name)
    gpus = _counted(gpus, last)
    if gpus.kinds and not gpus.low:
        raise ValueError(f"{_SOME_GPUS}; no GPUs at all is 0, without a kind")
    return gpus


def write_gpus(gpus: GpuRequest) -> int | float | str | list[str]:
    """The inverse of ``read_gpus``."""
    count = _decimal(gpus.share_milli / WHOLE) if gpus.share_milli < WHOLE else str(gpus.low)
    if gpus.high != gpus.low:
        count = f"{gpus.low}..{gpus.high}"
    memory = [write_sizes(gpus.memory)] if gpus.memory else []
    if not gpus.kinds and not memory:
        return count if ".." in count else float(count) if "." in count else int(count)
    spelled = [":".join([*([kind] if kind else []), *memory, count]) for kind in gpus.kinds or [""]]
    return spelled if len(spelled) > 1 else spelled[0]


def mib(size: int) -> int:
    """Whole MiB, rounded up."""
    return -(-size // MIB)


def _duration(text: str) -> float:
    if not _short(text):
        raise ValueError(_A_DURATION)
    if _NUMBER.match(text):
        return float(text)
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text):
        raise ValueError(_A_DURATION)
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _any_of(options: list[GpuRequest]) -> GpuRequest:
    if not options:
        raise ValueError("a list of GPU kinds such as [A100:1, H100:1]")
    first = options[0]
    kinds = tuple(dict.fromkeys(kind for option in options for kind in option.kinds))
    alike = {(option.low, option.high, option.share_milli, option.memory) for option in options}
    if len(alike) > 1 or not all(option.kinds for option in options):
        raise ValueError("kinds with the same count each, such as [A100:1, H100:1]")
    return GpuRequest(first.low, first.high, first.share_milli, kinds, first.memory)


def _named(gpus: GpuRequest, name: str) -> GpuRequest:
    if _SIZE.match(name.partition("..")[0]) and not _is_count(name) and gpus.memory is None:
        return GpuRequest(kinds=gpus.kinds, memory=read_sizes(name))
    if _KIND.match(name) and not gpus.kinds and gpus.memory is None:
        return GpuRequest(kinds=(name,))
    raise ValueError(_SOME_GPUS)


def _is_count(text: str) -> bool:
    return all(_NUMBER.match(end) for end in text.split(".."))


def _counted(gpus: GpuRequest, text: str) -> GpuRequest:
    low, dots, high = text.partition("..")
    if dots:
        ends = (_count(low, _SOME_GPUS), _count(high, _SOME_GPUS))
        if not 1 <= ends[0] <= ends[1] <= MAX_GPUS:
            raise ValueError(f"{_SOME_GPUS}; a range from 1 to {MAX_GPUS}")
        return GpuRequest(*ends, WHOLE, gpus.kinds, gpus.memory)
    if not _NUMBER.match(text) or float(text) > MAX_GPUS:
        raise ValueError(f"{_SOME_GPUS}, at most {MAX_GPUS}")
    number = float(text)
    if number == int(number):
        return GpuRequest(int(number), int(number), WHOLE, gpus.kinds, gpus.memory)
    if number > 1:
        near = f"{math.floor(number)} or {math.ceil(number)}"
        raise ValueError(f"whole GPUs, or a share of one; the nearest valid are {near}")
    share = round(number * WHOLE)
    if not 0 < share < WHOLE:
        raise ValueError(f"{_SOME_GPUS}; a share is from 0.001 to 0.999")
    return GpuRequest(1, 1, share, gpus.kinds, gpus.memory)


def _by_kind(given: Any, read: Callable[[Any], _Read]) -> tuple[tuple[str, _Read], ...]:
    """Amounts by GPU kind, sorted; the empty name stands for all other kinds."""
    if not isinstance(given, dict) or not 0 < len(given) <= _MOST_KINDS:
        raise ValueError(f"{_BY_KIND}, at most {_MOST_KINDS} of them")
    found = []
    for kind, item in given.items():
        if not isinstance(kind, str) or not _KIND.match(kind):
            raise ValueError(f"{_BY_KIND}; {str(kind)[:_LONGEST]!r} is no kind")
        try:
            found.append(("" if kind == OTHER else kind, read(item)))
        except ValueError as error:
            raise ValueError(f"for {kind} {error}") from None
    # Sorted, because other tools may reorder keys; the amount for all other kinds comes last.
    return tuple(sorted(found, key=lambda item: (not item[0], item[0])))


def _is_number(text: str) -> bool:
    return _short(text) and _NUMBER.match(text) is not None


def _ends(value: Any) -> tuple[Any, Any]:
    """The two ends of a range; the second is None for one amount, empty for an open end."""
    if not isinstance(value, str):
        return value, None
    if not _short(value):
        raise ValueError("a shorter text")
    low, dots, high = value.partition("..")
    return (low.strip(), high.strip()) if dots else (value.strip(), None)


def _ordered(bounds: AmountRange) -> AmountRange:
    if bounds.high is not None and bounds.high < bounds.low:
        raise ValueError(bounds)
    return bounds


def _write_bounds(bounds: AmountRange, write: Any) -> str:
    low, high = bounds
    if low == high:
        return str(write(low))
    return f"{write(low)}..{'' if high is None else write(high)}"


def _count(value: Any, expected: str) -> int:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and _short(text) and text.isascii() and text.isdigit():
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    raise ValueError(expected)


def _milli(value: Any) -> int:
    text = _decimal(value) if isinstance(value, int | float) and value is not True else value
    if not isinstance(text, str) or not _NUMBER.match(text):
        raise ValueError(value)
    milli = round(float(text) * 1000)
    if not 0 < milli <= MAX_CPUS * 1000:
        raise ValueError(value)
    return milli


def _decimal(number: float) -> str:
    """A number without an exponent; NaN and infinity become texts that no grammar takes."""
    if not math.isfinite(number):
        return str(number)
    return str(int(number)) if number == int(number) else f"{number:.6f}".rstrip("0")


def _short(text: str) -> bool:
    return len(text) <= _LONGEST and text.isascii()
