"""Tables of pairs: how fast jobs go that share a GPU, relative to being alone on it.

Two forms are read, and told apart by what they say:

- ``throughputs.json`` of Gavel (OSDI'20): steps per second by kind of GPU and type of job, alone
  (``null``) and beside another. Types of one worker count; a rate of 0 says that two do not fit.
- ``colocate.csv`` of Lucid (ASPLOS'23): a row for each pair with model, data set, batch size,
  mixed precision and speed of both. The application is their text, such as
  ``ResNet18 (CIFAR-10, batch size 32, amp)``.

A speed above that of being alone is taken as equal to it. Where a pair was measured more than once
the mean counts.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from statistics import fmean
from typing import Any, TypeAlias

from roost.errors import InvalidSpec
from roost.files import Source, TextFile, load
from roost.perf.pairs import Pairs
from roost.traces.rows import Reading, TableRow

#: All speeds that were told, by application and neighbour.
_Told: TypeAlias = dict[str, dict[str, list[float]]]
_KEY = re.compile(r"\('(.+)', 1\)")
_SPREAD = "_unconsolidated"
#: Columns of Lucid's table.
_COLUMNS = tuple(
    f"{name}{which}"
    for which in (1, 2)
    for name in ("model", "dataset", "gpu_num", "batchsize", "amp", "speed")
)
_FASTEST = 1e3


def read_pairs(source: Source) -> Pairs:
    """Read a table of either form; raises NotFound for a file and InvalidSpec for its contents."""
    text = load(source)
    if text.text.lstrip().startswith("{"):
        return _of_gavel(text)
    return _of_lucid(text)


def _of_gavel(text: TextFile) -> Pairs:
    kinds = {}
    try:
        for kind, types in json.loads(text.text).items():
            if not kind.endswith(_SPREAD):
                kinds[kind] = _mean(_rates(types))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        msg = f"{text.file} is not a table of rates as Gavel writes it: {error!r}"
        raise InvalidSpec(msg) from None
    return _checked(text, kinds)


def _rates(types: dict[str, dict[str, Any]]) -> _Told:
    """Speeds of types of one worker that run at all, beside each other."""
    alone = {
        key: rate
        for key, partners in types.items()
        if _KEY.fullmatch(key) and (rate := _rate(partners["null"])) > 0
    }
    found: _Told = {_name(key): {} for key in alone}
    for key, rate in alone.items():
        for other, both in types[key].items():
            if other in alone:
                own, its = map(_rate, both)
                speed = own / rate if its else 0.0
                found[_name(key)].setdefault(_name(other), []).append(min(speed, 1.0))
    return found


def _rate(value: Any) -> float:
    rate = float(value)
    if not 0 <= rate < math.inf:
        raise ValueError(f"a rate of {value}")
    return rate


def _name(key: str) -> str:
    match = _KEY.fullmatch(key)
    return match[1] if match else key


def _of_lucid(text: TextFile) -> Pairs:
    reading = Reading(text)
    missing = [name for name in _COLUMNS if name not in text.text.partition("\n")[0].split(",")]
    if missing:
        raise InvalidSpec(
            f"{text.file} is no table of pairs: neither throughputs.json of Gavel nor a csv with "
            f"the columns {', '.join(_COLUMNS)}"
        )
    told: _Told = defaultdict(lambda: defaultdict(list))
    for row in reading.rows(*_COLUMNS):
        if row.whole("gpu_num1") == row.whole("gpu_num2") == 1:
            one, other = _application(row, 1), _application(row, 2)
            told[one][other].append(min(row.number("speed1", high=_FASTEST), 1.0))
            told[other][one].append(min(row.number("speed2", high=_FASTEST), 1.0))
    return _checked(text, {"": _mean(told)})


def _application(row: TableRow, which: int) -> str:
    what = [row.text(f"dataset{which}"), f"batch size {row.whole(f'batchsize{which}')}"]
    if row.whole(f"amp{which}"):
        what.append("amp")
    return f"{row.text(f'model{which}')} ({', '.join(what)})"


def _mean(told: _Told) -> dict[str, dict[str, float]]:
    return {
        one: {other: fmean(speeds) for other, speeds in row.items()} for one, row in told.items()
    }


def _checked(text: TextFile, kinds: dict[str, dict[str, dict[str, float]]]) -> Pairs:
    try:
        return Pairs(kinds)
    except InvalidSpec as error:
        raise InvalidSpec(f"{text.file}: {error}") from None
