"""A measured value, its goal, and whether it is met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from roost.engines.local.gpu.driver import DriverRefused
from roost.engines.local.gpu.telemetry import Nvml


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """A measured value; ``goal`` is its upper bound, or its lower one if ``least``."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    least: bool = False
    passed: bool = True


def below(name: str, value: float, unit: str, goal: float | None = None) -> GpuFigure:
    """A figure that is fine below its goal."""
    return GpuFigure(name, round(value, 4), unit, goal, passed=goal is None or value < goal)


def above(name: str, value: float, unit: str, goal: float | None = None) -> GpuFigure:
    """A figure that is fine at its goal or above."""
    met = goal is None or value >= goal
    return GpuFigure(name, round(value, 4), unit, goal, least=True, passed=met)


def near(name: str, value: float, wanted: float, within: float = 0.05) -> Iterator[GpuFigure]:
    """A part of the whole, and how far it is from the wanted one, in proportion to that."""
    yield GpuFigure(name, round(value, 4), "of alone")
    yield below(f"{name}: error", abs(value / wanted - 1.0), "of the share", within)


@dataclass(frozen=True, slots=True)
class GpuBench:
    """What every measure is given. ``notes`` takes whatever helps to understand figures."""

    scratch: Path
    quick: bool
    notes: dict[str, Any]
    #: How long a measure may take; one that can be shorter stops in time and tells its figures.
    within_s: float

    def seconds(self, usual: float) -> float:
        """How long to measure."""
        return min(usual, 1.5) if self.quick else usual

    def clock(self, nvml: Nvml, name: str) -> Callable[[], None]:
        """Note how fast the device runs under some load, once it is called."""

        def note() -> None:
            with suppress(DriverRefused):
                self.notes.setdefault("MHz", {})[name] = nvml.clock_mhz(0)

        return note

    def say(self, text: str) -> None:
        """Tell what is under way."""
        print(f"    {text}", flush=True)  # noqa: T201 - a program of its own


class Measure(Protocol):
    """One measure: it does something and yields figures."""

    def __call__(self, bench: GpuBench) -> Iterator[GpuFigure]:
        """Measure."""
        ...
