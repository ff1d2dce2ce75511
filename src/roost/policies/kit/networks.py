"""Small networks as plain data: one hidden layer of tanh, one score for each row of inputs.

A policy that was learnt carries such a network. Its file is JSON: a version, the names of the
inputs it was made for, and the numbers. What was written for other inputs, by another version, or
holds a number that is none, is refused with a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from roost.errors import InvalidSpec
from roost.perf.arrays import Reals

#: Of the form of the file, and of what the inputs mean.
VERSION: Final = 1
#: A file larger than that is no small network.
_MOST_BYTES = 10_000_000
_MOST_NUMBERS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A score for each row: tanh(x W + b) v + c.

    ``kind`` names the set of inputs; ``sorts`` are the sorts of jobs that it knows by name, whose
    inputs come after the others.
    """

    kind: str
    inputs: tuple[str, ...]
    sorts: tuple[str, ...]
    hidden: Reals
    biases: Reals
    out: Reals
    offset: float

    @classmethod
    def begin(
        cls, kind: str, inputs: Sequence[str], sorts: Sequence[str], hidden: Reals
    ) -> Network:
        """One that scores everything 0."""
        width = hidden.shape[1]
        return cls(kind, tuple(inputs), tuple(sorts), hidden, np.zeros(width), np.zeros(width), 0.0)

    def score(self, rows: Reals) -> Reals:
        """A score for each row."""
        found: Reals = np.tanh(rows @ self.hidden + self.biases) @ self.out + self.offset
        return found

    @property
    def numbers(self) -> Reals:
        """All that can be learnt, in one row."""
        return np.concatenate((self.hidden.ravel(), self.biases, self.out, [self.offset]))

    def with_numbers(self, numbers: Reals) -> Network:
        """The same with other numbers, in the order of ``numbers``."""
        rows, width = self.hidden.shape
        hidden, biases, out, offset = np.split(
            numbers, np.cumsum((rows * width, width, width)).tolist()
        )
        return Network(
            self.kind,
            self.inputs,
            self.sorts,
            hidden.reshape(rows, width),
            biases,
            out,
            float(offset[0]),
        )

    # -- files -----------------------------------------------------------------------------------

    def data(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "inputs": list(self.inputs),
            "sorts": list(self.sorts),
            "hidden": self.hidden.tolist(),
            "biases": self.biases.tolist(),
            "out": self.out.tolist(),
            "offset": self.offset,
        }

    @classmethod
    def read(cls, path: Path, kind: str, inputs: Sequence[str]) -> Network:
        """The network in a file, if it was made for these inputs."""
        try:
            if path.stat().st_size > _MOST_BYTES:
                _refuse(path, f"larger than {_MOST_BYTES} bytes")
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidSpec(f"cannot read weights {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            _refuse(path, "no text")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            _refuse(path, "no JSON")
        return _parsed(path, data, kind, tuple(inputs))


def _parsed(path: Path, data: object, kind: str, inputs: tuple[str, ...]) -> Network:
    if not isinstance(data, Mapping):
        _refuse(path, "no object with the numbers of a network")
    version, said = data.get("version"), data.get("kind")
    if version != VERSION or isinstance(version, bool):
        _refuse(path, f"of version {version!r}, and this Roost reads version {VERSION}")
    if said != kind:
        _refuse(path, f"made for inputs={said}, not for inputs={kind}")
    if data.get("inputs") != list(inputs):
        _refuse(path, f"made for another set of inputs than {', '.join(inputs)}")
    sorts = data.get("sorts")
    if not isinstance(sorts, list) or not all(isinstance(name, str) for name in sorts):
        _refuse(path, "without the names of its sorts")
    if len(set(sorts)) != len(sorts):
        _refuse(path, "with a sort of jobs that is named twice")
    hidden = _numbers(path, data, "hidden")
    if hidden.ndim != 2 or hidden.shape[0] != len(inputs) + len(sorts) or not hidden.size:  # noqa: PLR2004
        _refuse(path, f"not of {len(inputs) + len(sorts)} rows under 'hidden'")
    width = hidden.shape[1]
    biases, out = (_numbers(path, data, name) for name in ("biases", "out"))
    if biases.shape != (width,) or out.shape != (width,):
        _refuse(path, f"not of {width} numbers under 'biases' and 'out'")
    offset = _numbers(path, data, "offset")
    if offset.shape != ():
        _refuse(path, "without one number under 'offset'")
    return Network(kind, inputs, tuple(sorts), hidden, biases, out, float(offset))


def _numbers(path: Path, data: Mapping[str, object], name: str) -> Reals:
    if not _plain(data.get(name)):
        _refuse(path, f"without numbers under {name!r}")
    try:
        found = np.asarray(data[name], dtype=np.float64)
    except (ValueError, OverflowError):
        _refuse(path, f"with rows of several lengths under {name!r}")
    if found.size > _MOST_NUMBERS:
        _refuse(path, f"with more than {_MOST_NUMBERS} numbers")
    if not np.isfinite(found).all() or (np.abs(found) > _LARGEST).any():
        _refuse(path, f"with what is no usual number under {name!r}")
    return found


#: Beyond that a score can overflow.
_LARGEST = 1e6


def _plain(value: object) -> bool:
    """Whether a value is a number, or rows of numbers."""
    if isinstance(value, list):
        return all(
            all(_number(each) for each in row) if isinstance(row, list) else _number(row)
            for row in value
        )
    return _number(value)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(path: Path, why: str) -> NoReturn:
    raise InvalidSpec(f"weights {path} are {why}; `roost learn dl2` makes new ones")
