"""Gavel's table of throughputs (OSDI'20): how fast each type of job goes on each kind of GPU.

``throughputs.json`` has, by kind of GPU, type of job and number of workers, the steps per second of
a job alone (``null``) and beside another; ``<kind>_unconsolidated`` tells the same of workers
spread over nodes. Only jobs alone are read. A rate of 0 says that the job cannot run there.

For a number of workers that was not measured, the rate grows in proportion from the nearest smaller
one, or shrinks from the nearest larger one. If spread workers were not measured, they go as
those of one node do.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from roost.errors import InvalidSpec, unknown
from roost.files import Source, load

#: Steps per second by number of workers.
_Sizes: TypeAlias = dict[int, float]
_KEY = re.compile(r"\('(.+)', (\d+)\)")
_SPREAD = "_unconsolidated"


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second of jobs alone: by GPU kind, on one node and spread, type, workers."""

    together: Mapping[str, Mapping[str, _Sizes]]
    spread: Mapping[str, Mapping[str, _Sizes]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of GPU that were measured."""
        return tuple(self.together)

    def check_kind(self, kind: str) -> None:
        """Refuse a kind that was not measured, and name the nearest one."""
        if kind not in self.together:
            raise unknown("GPU kind", kind, self.together)

    def types(self, kind: str) -> tuple[str, ...]:
        """The types of jobs that run on a kind."""
        found = self.together[kind]
        return tuple(name for name, sizes in found.items() if any(sizes.values()))

    def rate(self, kind: str, job_type: str, workers: int, *, nodes: int = 1) -> float:
        """Steps per second on so many nodes of a kind; 0 where it cannot run."""
        if nodes > 1 and (sizes := self.spread.get(kind, {}).get(job_type)):
            return _scaled(sizes, workers)
        return _scaled(self.together[kind].get(job_type, {}), workers)


def read_throughputs(source: Source) -> Throughputs:
    """Read the table; raises NotFound for a file and InvalidSpec for contents that are not so."""
    file, text = load(source)
    together: dict[str, dict[str, _Sizes]] = {}
    spread: dict[str, dict[str, _Sizes]] = {}
    try:
        for name, types in json.loads(text).items():
            kind = name.removesuffix(_SPREAD)
            into = (spread if kind != name else together).setdefault(kind, {})
            for key, partners in types.items():
                rate = float(partners["null"])
                if (match := _KEY.fullmatch(key)) and 0 <= rate < math.inf:
                    into.setdefault(match[1], {})[int(match[2])] = rate
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        msg = f"{file} is not a table of rates as Gavel writes it: {error!r}"
        raise InvalidSpec(msg) from None
    return Throughputs(together, spread)


def _scaled(sizes: _Sizes, workers: int) -> float:
    if not sizes:
        return 0.0
    nearest = max((size for size in sizes if size <= workers), default=min(sizes))
    return sizes[nearest] * workers / nearest
