"""A network of two layers that learns a made-up function: small, real, the same everywhere.

The batch of a step depends on the step alone, and each worker takes its rows of it: a training with
several workers, or one that was stopped and resumed, takes the same steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

INPUTS = 16
BATCH = 8192
_BATCHES = 2
#: Rows at a time: what they need stays in the cache, whatever the neighbours do.
_ROWS = 512
_RATE = 0.05
_MOMENTUM = 0.9


class Lessons:
    """The data: random inputs, and what an unknown network makes of them."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self._inputs = chance.normal(size=(_BATCHES * BATCH, INPUTS))
        teacher = chance.normal(size=(INPUTS, 8)) / np.sqrt(INPUTS)
        self._answers = np.tanh(self._inputs @ teacher) @ chance.normal(size=8)

    @staticmethod
    def epochs(step: int) -> float:
        """How often all of it was used after so many steps."""
        return step / _BATCHES

    def batch(self, step: int, rank: int, size: int) -> tuple[Vector, Vector]:
        """The rows of one worker in the batch of a step."""
        start = step % _BATCHES * BATCH
        rows = slice(start + rank * BATCH // size, start + (rank + 1) * BATCH // size)
        return self._inputs[rows], self._answers[rows]


@dataclass(slots=True)
class TwoLayerNetwork:
    """What is learned, as one vector, how fast it moves, and how many steps that took."""

    hidden: int
    weights: Vector
    speed: Vector
    step: int = 0
    total: int = 0
    loss: float = math.inf
    room: Vector | None = None

    @classmethod
    def new(cls, hidden: int, seed: int) -> TwoLayerNetwork:
        """A network that knows nothing yet."""
        chance = np.random.default_rng(seed + 1)
        weights = chance.normal(size=(INPUTS + 2) * hidden + 1) / np.sqrt(INPUTS)
        return cls(hidden, weights, np.zeros_like(weights))

    @classmethod
    def load(cls, path: Path, hidden: int) -> TwoLayerNetwork:
        """A network as it was saved; raises ValueError if it is another one, or damaged."""
        try:
            with np.load(path, allow_pickle=False) as saved:
                found = cls(
                    int(saved["hidden"]),
                    saved["weights"],
                    saved["speed"],
                    int(saved["step"]),
                    int(saved["total"]),
                    float(saved["loss"]),
                )
        except (OSError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        if found.hidden != hidden or found.weights.shape != ((INPUTS + 2) * hidden + 1,):
            raise ValueError(f"{path} has another size")
        return found

    def save(self, file: BinaryIO) -> None:
        """Write everything that a resumed training needs."""
        np.savez(
            file,
            hidden=self.hidden,
            weights=self.weights,
            speed=self.speed,
            step=self.step,
            total=self.total,
            loss=self.loss,
        )

    def packed(self) -> Vector:
        """All of it as one vector, for another worker."""
        return np.concatenate([self.weights, self.speed, [self.loss, self.step, self.total]])

    def unpack(self, vector: Vector) -> None:
        """Become what another worker packed."""
        half = len(self.weights)
        self.weights, self.speed = vector[:half].copy(), vector[half : 2 * half].copy()
        self.loss = float(vector[-3])
        self.step, self.total = int(vector[-2]), int(vector[-1])

    def slope(self, inputs: Vector, answers: Vector) -> tuple[Vector, float]:
        """The gradient of the squared error, and the error itself, summed over these rows."""
        slope, missed = np.zeros_like(self.weights), 0.0
        for start in range(0, len(inputs), _ROWS):
            rows = slice(start, start + _ROWS)
            missed += self._add_slope(slope, inputs[rows], answers[rows])
        return slope, missed

    def _add_slope(self, slope: Vector, inputs: Vector, answers: Vector) -> float:
        first, bias, second, offset = self._layers(self.weights)
        inner, back = self._room(len(inputs))
        np.matmul(inputs, first, out=inner)
        inner += bias
        np.tanh(inner, out=inner)
        missed = inner @ second + offset - answers
        np.multiply(inner, inner, out=back)
        np.subtract(1.0, back, out=back)
        back *= second
        back *= missed[:, None]
        firsts, biases, seconds, _ = self._layers(slope)
        firsts += inputs.T @ back
        biases += back.sum(axis=0)
        seconds += inner.T @ missed
        slope[-1] += missed.sum()
        return float(missed @ missed)

    def move(self, slope: Vector, *, wild: bool = False) -> None:
        """One step down; a wild one is endless."""
        rate = math.inf if wild else _RATE
        self.speed = _MOMENTUM * self.speed - rate * slope
        self.weights = self.weights + self.speed
        self.step += 1

    def _room(self, rows: int) -> Vector:
        """Space for what a step computes; asking the system each time costs as much as the step."""
        if self.room is None or self.room.shape[1] != rows:
            self.room = np.empty((2, rows, self.hidden))
        return self.room

    def _layers(self, vector: Vector) -> tuple[Vector, Vector, Vector, np.float64]:
        cut = INPUTS * self.hidden
        first = vector[:cut].reshape(INPUTS, self.hidden)
        return first, vector[cut : cut + self.hidden], vector[cut + self.hidden : -1], vector[-1]
