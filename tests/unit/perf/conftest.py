"""Measured step times of public applications, where they are: ``ROOST_DATA`` or beside us."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from roost.perf.steps import StepSample

DATA = Path(os.environ.get("ROOST_DATA", Path(__file__).parents[4] / "shared" / "data"))
PROFILES = DATA / "sia" / "profiles"


@pytest.fixture
def measured() -> Callable[[str, str], list[StepSample]]:
    """All that was measured of an application on a kind of machine."""
    if not PROFILES.is_dir():
        pytest.skip(f"no profiles of applications in {PROFILES}")
    return _read


@cache
def _read(application: str, machine: str) -> list[StepSample]:
    times = defaultdict(list)
    for size, step, sync in _rows(PROFILES / application, machine):
        times[size].append((step, sync))
    return [
        StepSample(*size, *(sum(column) / len(column) for column in zip(*pairs, strict=True)))
        for size, pairs in times.items()
    ]


def _rows(folder: Path, machine: str) -> Iterator[tuple[tuple[int, int, int], float, float]]:
    for name in ("placements", "scalability"):
        with (folder / f"{name}-{machine}.csv").open() as file:
            for row in csv.DictReader(file):
                counts = [int(digit) for digit in row.get("placement", "")]
                nodes = len(counts) or int(row["num_nodes"])
                workers = sum(counts) or int(row["num_replicas"])
                size = (nodes, workers, int(row["local_bsz"]))
                yield size, float(row["step_time"]), float(row["sync_time"])
