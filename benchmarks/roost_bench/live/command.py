"""``roost bench live``: a real server on this machine, measured from outside over HTTP.

Each measure starts servers of its own in folders that are thrown away (``roost.demo.server``) and
gives one or more figures with their goals. They are in ``server``, ``jobs``, ``soak``,
``resizes``, ``restarts`` and ``overhead``. Those that need PyTorch are skipped where it is not
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, TypeVar

import click

from roost.cli.output import number, print_json, print_table
from roost.cli.parameter_types import Verb, option
from roost.errors import unknown


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value; ``goal`` is what it must stay below, or reach if ``least``, if any."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    least: bool = False
    passed: bool = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each measure does."""

    burst: int = 1000
    finished: int = 5000
    calls: int = 50
    followers: int = 200
    printing_s: float = 5.0
    starts: int = 40
    queued: int = 100
    idle_s: float = 10.0
    running: int = 100
    waiting: int = 1000
    trained: int = 20
    trained_s: float = 4.5
    resizes: int = 3
    lessons: int = 600
    moments: int = 50
    suspends: int = 30
    paired: int = 20
    width: int = 1280
    watched_s: float = 20.0
    soaked: int = 250
    kept: int = 20


QUICK = Sizes(
    burst=50,
    finished=60,
    calls=10,
    followers=10,
    printing_s=1.0,
    starts=6,
    queued=10,
    idle_s=1.0,
    running=6,
    waiting=20,
    trained=4,
    trained_s=1.0,
    resizes=1,
    lessons=400,
    moments=2,
    suspends=2,
    paired=1,
    width=128,
    watched_s=1.0,
    soaked=15,
    kept=5,
)

C = TypeVar("C", bound=Callable[..., Any])

#: Says what is under way.
Say: TypeAlias = Callable[[str], None]
Measure: TypeAlias = Callable[[Sizes, Say], Iterator[Figure]]


def below(name: str, value: float, unit: str, goal: float | None = None) -> Figure:
    """A figure that is fine below its goal."""
    return Figure(name, round(value, 3), unit, goal, passed=goal is None or value < goal)


def above(name: str, value: float, unit: str, goal: float) -> Figure:
    """A figure that is fine at its goal or above."""
    return Figure(name, round(value, 3), unit, goal, least=True, passed=value >= goal)


def measures() -> dict[str, Measure]:
    """All measures, in the order in which they run."""
    from roost_bench.live import jobs, overhead, resizes, restarts, server, soak

    return {
        "idle": server.idle,
        "fidelity": jobs.fidelity,  # before others leave the disk something to do
        "burst": server.burst,
        "list-5000": server.list_finished,
        "followers": server.followers,
        "start-latency": jobs.start_latency,
        "recovery": jobs.recovery,
        "soak": soak.soak,
        "suspend": jobs.suspend,
        "telemetry": server.telemetry,
        "resize": resizes.resize,
        "resize-loss": resizes.same,
        "restarts": restarts.moments,
        "overhead": overhead.overhead,
    }


def measuring(command: C) -> C:
    """The options of a command that measures: which, how much of it, and how it is told."""
    for one in (
        option(
            "-o",
            "--output",
            section="Output",
            type=click.Choice(["table", "json"]),
            default="table",
            show_default=True,
        ),
        option(
            "--quick", section="Run", is_flag=True, help="Little of everything: it runs, no more."
        ),
        option(
            "--only", section="Run", metavar="NAME,...", default="", help="These measures alone."
        ),
    ):
        command = one(command)
    return command


def chosen(only: str, known: Collection[str]) -> list[str]:
    """The measures that were asked for, all if none was named; raises NotFound for another."""
    names = [name.strip() for name in only.split(",") if name.strip()] or list(known)
    for name in names:
        if name not in known:
            raise unknown("measure", name, known)
    return names


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench live
  roost bench live --only burst,recovery -o json""",
)
@measuring
def live(only: str, output: str, *, quick: bool) -> None:
    """Measure a real server on this machine; exit status 1 if a goal is missed.

    Measures: idle, fidelity, burst, list-5000, followers, start-latency, recovery, soak,
    suspend, telemetry, and with PyTorch resize, resize-loss, restarts, overhead. Everything runs
    in folders that are removed, and takes some minutes.
    """
    known = measures()
    names = chosen(only, known)
    figures: list[Figure] = []
    for name in names:
        figures += known[name](QUICK if quick else Sizes(), _say(name))
    report(figures, output)


def report(figures: list[Figure], output: str) -> None:
    """Print figures; the command fails if one has missed its goal."""
    if output == "json":
        print_json([asdict(figure) for figure in figures])
    else:
        print_table([row_of(figure) for figure in figures])
    if not all(figure.passed for figure in figures):
        click.get_current_context().exit(1)


def _say(name: str) -> Say:
    return lambda text: click.echo(f"{name}: {text}", err=True)


def row_of(figure: Figure) -> dict[str, str]:
    """A figure with its goal, as a line of a table."""
    sign = ">=" if figure.least else "<"
    goal = "" if figure.goal is None else f"{sign} {number(figure.goal)} {figure.unit}"
    return {
        "measure": figure.name,
        "value": f"{number(figure.value)} {figure.unit}",
        "goal": goal,
        "passed": "" if figure.goal is None else "yes" if figure.passed else "no",
    }
