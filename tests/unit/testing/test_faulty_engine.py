"""Storms: the same seed gives the same history, and what is wrong does not survive one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from roost.core import Core, Event, Plan
from roost.core.occupancy import Occupancy
from roost.core.waiting import Waiting
from roost.errors import RoostError
from roost.placement import placer
from roost.policies import policy
from roost.testing.builders import node, spec
from roost.testing.checks import validate
from roost.testing.faulty_engine import FaultyEngine, shortest
from roost.testing.policies import Restless
from roost.testing.random_history import RandomHistory


def test_the_same_seed_gives_the_same_storm() -> None:
    one, other, another = (
        RandomHistory(policy("srtf"), "pack", seed).run(80) for seed in (1, 1, 2)
    )

    assert one.journal == other.journal
    assert one.journal != another.journal


def nothing_is_in_the_way(*_: object) -> set[object]:
    return set()


def test_a_core_that_does_not_wait_for_those_who_leave_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Occupancy, "in_the_way", nothing_is_in_the_way)

    with pytest.raises(AssertionError, match="over-commits"):
        RandomHistory(policy("srtf"), "pack", 1).run(300)


def test_a_core_that_loses_jobs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waiting, "rejoin", lambda *_: None)
    history = RandomHistory(Restless(3), "pack", 3)
    history.engine.gentle = False

    with pytest.raises(AssertionError, match="stands in line 0 times"):
        history.run(300)


def histories() -> Iterator[RandomHistory]:
    """Which of them meets the fault depends on everything that draws numbers."""
    return (RandomHistory(policy("srtf"), "pack", seed) for seed in range(50))


def does_not_hold(history: RandomHistory) -> bool:
    try:
        history.run(300)
    except AssertionError as error:
        return "over-commits" in str(error)
    return False


def test_what_broke_something_is_reduced_to_the_shortest_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Occupancy, "in_the_way", nothing_is_in_the_way)
    history = next(filter(does_not_hold, histories()))
    told = [event for batch in history.engine.journal for event in batch.events]

    def breaks(events: Sequence[Event]) -> bool:
        core = Core(policy("srtf"), placer("pack"))
        try:
            for event in events:
                core.handle(event)
                validate(core, limits=False)
        except RoostError:
            return False
        except AssertionError as error:
            return "processes use" in str(error)
        return False

    found = shortest(told, breaks)

    assert breaks(found)
    assert len(found) < 12 < len(told)
    assert not any(breaks(found[:n] + found[n + 1 :]) for n in range(len(found)))


def test_weather_clears_up_and_nobody_is_lost() -> None:
    engine = FaultyEngine(policy("fifo"), "pack", [node("n0", 2)])
    engine.submit(spec(2, 10.0), spec(1, 10.0), spec(8, 10.0))
    engine.lose(node("n0").id, at_once=True)

    engine.clear_up()

    assert [found.id for found in engine.core.waiting] == ["j2"], "there never is room for it"
    assert engine.core.finished == 2
    assert engine.still_fit() == []


def fidgety(plan: Plan) -> None:
    """Stops whatever runs, and starts whatever waits."""
    for run in list(plan.running):
        plan.evict(run, "fidgets")
    for job in plan.pending:
        plan.place(job)
    plan.await_starts()


def test_an_engine_that_is_never_left_in_peace_gives_up() -> None:
    engine = FaultyEngine(fidgety, "pack", [node("n0", 2)])
    engine.submit(*(spec(1, 100.0) for _ in range(5)))

    with pytest.raises(AssertionError, match="still asks"):
        engine.answer_all(rounds=20)
