"""Sorts of jobs: how fast each is with so many servers and workers, and how long its jobs are.

They are drawn at random from the models of speed of Optimus (``perf.servers``), or read from the
table of DL2 (github.com/pengyanghua/DL2, ``config_speed.txt``), which has no licence: a user names
the folder it lies in, and nothing of it is kept.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from roost.errors import InvalidSpec
from roost.perf.arrays import Reals
from roost.perf.servers import Mode, ServerModel

#: The most servers and the most workers that a job can have.
MOST: Final = 16
#: The name of DL2's table in its folder.
TABLE: Final = "config_speed.txt"
#: A job is done this much of the way at least in each slot, whatever a table says of odd corners.
_LEAST_PART = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """Jobs of one model: ``speeds[p - 1, w - 1]`` is the work done in a slot, ``length`` all of it.

    A worker takes a GPU if ``gpu``; every task takes as many CPUs. Without a name no network can
    know it by one.
    """

    name: str
    speeds: Reals
    length: float
    gpu: bool = True


def draw_sorts(seed: int, count: int = 8) -> list[Sort]:
    """Sorts from the speed models of Optimus, with coefficients and lengths out of the hat.

    They have no names: nobody's jobs are of these sorts, and no network shall remember them.
    """
    chance = np.random.Generator(np.random.PCG64([seed, 17]))
    return [_draw(chance) for _ in range(count)]


def _draw(chance: np.random.Generator) -> Sort:
    servers, workers = np.arange(1, MOST + 1)[:, None], np.arange(1, MOST + 1)[None, :]
    moving = 10 ** chance.uniform(-2.0, 0.0)
    overhead, per_worker, per_server = 10 ** chance.uniform((-2.0, -3.3, -3.3), (-1.0, -1.5, -1.5))
    if chance.random() < 0.5:  # noqa: PLR2004 - half of them are asynchronous
        mode, computing = Mode.ASYNC, [1.0 + overhead]
    else:
        mode, computing = Mode.SYNC, [1.0, overhead]
    terms = tuple(map(float, (*computing, moving, per_worker, per_server)))
    speeds = ServerModel(mode, terms, 0).rate(servers, workers)
    slots = float(np.exp(chance.uniform(0.0, math.log(40.0))))
    return Sort("", speeds, slots * float(speeds.max()), gpu=bool(chance.random() < 0.8))  # noqa: PLR2004


# -- DL2's table -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Published:
    """DL2's setting of one model: samples of an epoch, epochs of a job, whether it uses GPUs."""

    epoch: float
    epochs: float
    gpu: bool = True


_SLOT_S = 1200.0
_PUBLISHED: Final = {
    "resnet-50": _Published(115, 9_000),
    "vgg-16": _Published(115, 28_800),
    "resnext-110": _Published(390, 1_500),
    "inception-bn": _Published(120, 16_200),
    "seq2seq": _Published(780, 28_500),
    "cnn-text-classification": _Published(193, 13_800, gpu=False),
    "dssm": _Published(349, 9_900, gpu=False),
    "wlm": _Published(165, 6_900),
}


def read_sorts(folder: Path) -> list[Sort]:
    """The sorts of DL2's table in a folder, with the lengths of its experiments."""
    points = _read_points(folder / TABLE)
    missing = [name for name in _PUBLISHED if name not in points]
    if missing:
        raise InvalidSpec(f"{folder / TABLE} has no speeds of {', '.join(missing)}")
    found = []
    for name, known in _PUBLISHED.items():
        speeds = _spread(points[name]) * _SLOT_S / known.epoch
        speeds = np.maximum(speeds, _LEAST_PART * float(speeds.max()))
        found.append(Sort(name, speeds, known.epochs, known.gpu))
    return found


def _read_points(path: Path) -> dict[str, dict[tuple[int, int], float]]:
    """Speeds by model, and by servers and workers."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(
            f"cannot read {path}: {error.strerror}; it is DL2's table of speeds, of its repository"
        ) from None
    except UnicodeDecodeError:
        raise InvalidSpec(f"{path} is no text") from None
    found: dict[str, dict[tuple[int, int], float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            name, servers, workers, speed = _point(path, number, line)
            found.setdefault(name, {})[servers, workers] = speed
    return found


def _point(path: Path, number: int, line: str) -> tuple[str, int, int, float]:
    """A line such as ('resnet-50', 'dist_sync', 32, 1, 2, [7.7, 7.7], [1.9], [0.4, 0.4])."""
    try:
        name, _, _, servers, workers, speeds, *_ = ast.literal_eval(line.strip())
        speed = math.fsum(speeds)
        known = isinstance(name, str) and all(type(n) is int and n > 0 for n in (servers, workers))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        known, speed = False, math.nan
    if not known or not 0 <= speed < math.inf:
        raise InvalidSpec(
            f"{path}, line {number}: not a model, a mode, a batch, servers, workers and the speed "
            "of each worker"
        )
    return name, servers, workers, speed


def _spread(points: dict[tuple[int, int], float]) -> Reals:
    """Speeds at all sizes between those measured: linear radial basis functions, as DL2 has it."""
    at = np.array(list(points), dtype=np.float64)
    known = np.array(list(points.values()))
    far = np.linalg.norm(at[:, None] - at[None], axis=2)
    heights = np.linalg.lstsq(far, known, rcond=None)[0]
    wanted = np.array(list(_sizes()), dtype=np.float64)
    distance = np.linalg.norm(wanted[:, None] - at[None], axis=2)
    found: Reals = (distance @ heights).reshape(MOST, MOST)
    return found


def _sizes() -> Iterator[tuple[int, int]]:
    return ((p, w) for p in range(1, MOST + 1) for w in range(1, MOST + 1))
