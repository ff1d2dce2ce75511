"""``roost bench usage``: what it costs to know who used what.

A history of jobs is made once, with retries and preemptions by a real policy. Then it is folded
again as from a journal, with and without a meter, and what it comes to is added up by user.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from roost.cli.options import output_option
from roost.cli.output import print_csv, print_json, print_table
from roost.core import (
    Action,
    Core,
    Decision,
    Deleted,
    Event,
    Exited,
    JobId,
    JobSpec,
    Launch,
    NodeId,
    NodeJoined,
    NodeSpec,
    Outcome,
    Range,
    Started,
    Submitted,
)
from roost.jobs.history import touched
from roost.placement import placer
from roost.policies import policy
from roost.usage.meter import Meter
from roost.usage.spells import AnySpell
from roost.usage.totals import Period, total

_NODES, _GPUS = 64, 8
_USERS = 50
_GOAL_S = 5.0
_T = TypeVar("_T")


class JournaledBatch(NamedTuple):
    """A batch as a journal has it."""

    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]


class Measure(NamedTuple):
    """A figure, its goal, and whether it was reached."""

    name: str
    value: float
    unit: str
    goal: float | None
    passed: bool


@click.command(
    epilog="""\b
Examples:
  roost bench usage
  roost bench usage --jobs 10000 -o json"""
)
@click.option("--jobs", type=click.IntRange(100), default=100_000, show_default=True, metavar="N")
@output_option
def usage(jobs: int, output: str) -> None:
    """Measure the meter: a journal of N jobs recomputed, and what an event costs more with it.

    The goals are for 100 000 jobs: 5 CPU seconds to recompute who used what, 1 ms an event.
    """
    rows = [measure._asdict() for measure in measures(jobs)]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table([{name: _told(value) for name, value in row.items()} for row in rows])


def measures(jobs: int) -> list[Measure]:
    """The figures for so many jobs."""
    batches = history(jobs)
    events = sum(len(batch.events) for batch in batches)
    _, plain_s = _timed(lambda: _fold(batches, None))
    spells, metered_s = _timed(lambda: _fold(batches, Meter()))
    worst_s = _worst(batches)
    found, sum_s = _timed(lambda: total(spells.values(), Period(0, 10**15)))
    own_s = metered_s - plain_s
    balanced = found.total.held + found.idle + found.out_of_service == found.capacity
    return [
        Measure(
            "recomputed: the meter and the totals", own_s + sum_s, "s", 5.0, own_s + sum_s < _GOAL_S
        ),
        Measure("the core folded beside it", plain_s, "s", None, passed=True),
        Measure("an event, mean", 1000 * own_s / events, "ms", 1.0, own_s / events < 1e-3),  # noqa: PLR2004 - the goal
        Measure("a batch, 99.9th percentile", 1000 * worst_s, "ms", 1.0, worst_s < 1e-3),  # noqa: PLR2004 - the goal
        Measure("spells", len(spells), "", None, passed=True),
        Measure(
            "held + idle + out of service - capacity", 0.0 if balanced else 1.0, "", 0.0, balanced
        ),
    ]


def history(jobs: int) -> list[JournaledBatch]:
    """Jobs of one to eight GPUs on 512, one after the other; every tenth fails once."""
    core, found = Core(policy("fifo"), placer("pack")), list[JournaledBatch]()
    nodes = [NodeSpec(NodeId(f"n{number}"), gpus=_GPUS, kind="A100") for number in range(_NODES)]
    live: list[Any] = []
    over: list[JobId] = []

    def tell(*events: Event) -> Sequence[Action]:
        actions = core.handle(*events)
        found.append(JournaledBatch(events, tuple(core.decisions)))
        live.extend(action.run for action in actions if isinstance(action, Launch))
        return actions

    tell(*(NodeJoined(0.0, node) for node in nodes))
    for number in range(jobs):
        now = 10.0 * number
        name = JobId(f"j{number}")
        size = (1, 1, 1, 2, 4, 8)[number % 6]
        spec = JobSpec(
            workers=Range(size, size),
            user=f"u{number % _USERS}",
            max_retries=1,
            run_time_s=3600.0,
        )
        tell(Submitted(now, name, spec))
        if live:
            tell(Started(now + 1.0, live[-1]))
        if len(live) > _NODES * 2:
            run = live.pop(0)
            fails = run.attempt == 1 and number % 10 == 0
            tell(Exited(now + 5.0, run, Outcome.FAILED if fails else Outcome.SUCCEEDED, 100.0))
            if not fails:
                over.append(run.job)
        if len(over) > 1000:  # noqa: PLR2004 - as a server has it
            tell(Deleted(now + 5.0, over.pop(0)))
    return found


def _fold(batches: Sequence[JournaledBatch], meter: Meter | None) -> dict[int, AnySpell]:
    core, spells = Core(policy("fifo"), placer("pack")), dict[int, AnySpell]()
    for events, decisions in batches:
        actions = core.refold(events, decisions)
        if meter is not None:
            jobs = touched(core, events, actions) | {one.job: None for one in decisions}
            for spell in meter.fold(core, events, jobs):
                spells[spell.n] = spell
    return spells


def _worst(batches: Sequence[JournaledBatch]) -> float:
    """The CPU time of the meter for a batch that only one of a thousand takes longer than."""
    core, meter, spent = Core(policy("fifo"), placer("pack")), Meter(), list[float]()
    for events, decisions in batches:
        actions = core.refold(events, decisions)
        jobs = touched(core, events, actions) | {one.job: None for one in decisions}
        began = time.thread_time()
        meter.fold(core, events, jobs)
        spent.append(time.thread_time() - began)
    spent.sort()
    return spent[int(0.999 * len(spent))]


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    gc.collect()
    gc.freeze()  # the journal is on a disk, where nobody looks for garbage
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return "-" if value is None else f"{value:,.3g}" if isinstance(value, float) else str(value)
