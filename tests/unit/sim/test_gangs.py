"""Gangs start with all their workers or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.oracles.played import Script, cluster, job, play, simulation

from roost.core import Action, Costs, Decision, Event, Launch, Level
from roost.placement import PLACERS
from roost.policies.fifo import fifo
from roost.policies.srtf import Srtf
from roost.testing.builders import node, role


def test_a_gang_waits_until_all_of_it_fits_and_holds_nothing_meanwhile() -> None:
    # n0 is free at 5, n1 at 10. The gang needs both; n0 stays idle from 5 to 10.
    played = play(
        fifo,
        job("a", 0, 5, gpus=4),
        job("b", 0, 10, gpus=4),
        job("gang", 1, 10, workers=8),
        nodes=cluster(4, nodes=2),
        timeline=True,
    )

    assert played.times["gang"] == (10, 20)
    held = [bar for bar in played.results.segments if played.results.jobs[bar.job].id == "gang"]
    assert {(bar.start, bar.end) for bar in held} == {(10, 20)}
    assert {(bar.node, bar.gpu) for bar in held} == {
        (node, gpu) for node in ("n0", "n1") for gpu in range(4)
    }


@pytest.mark.parametrize("name", PLACERS)
def test_every_launch_has_all_workers(name: str) -> None:
    jobs = [job(f"j{i}", i, 10 + i % 7, workers=1 + (3 * i) % 11) for i in range(40)]
    launched: list[str] = []

    def check(
        _events: Sequence[Event], _decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        for action in actions:
            if isinstance(action, Launch):
                launched.append(action.run.job)
                assert action.allocation.workers == action.spec.workers.min
                assert action.allocation.gpu_milli == 1000 * action.spec.workers.min

    sim = simulation(Srtf(), jobs, cluster(4, nodes=3), placer=PLACERS[name])
    sim.run(observer=check)

    assert len(launched) >= len(jobs)
    assert sim.over


def test_a_gang_is_launched_when_the_last_one_in_its_way_has_left() -> None:
    # At 10, both make way for the gang; a takes 5 s to leave and b takes 9.
    script = Script(aside=frozenset({(10.0, "a"), (10.0, "b")}), back={"a": 50.0, "b": 50.0})
    played = play(
        script,
        job("a", 0, 30, gpus=2, costs=_leaving_in(5)),
        job("b", 0, 30, gpus=2, costs=_leaving_in(9)),
        job("gang", 10, 10, workers=4),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 70), "b": (0, 70), "gang": (19, 29)}


def _leaving_in(seconds: float) -> Costs:
    return Costs(suspend_s=seconds)


def test_a_gang_with_roles_inside_a_cell_leaves_the_books_as_they_were() -> None:
    # a has a parameter server beside it on the same socket; b then needs the whole node.
    played = play(
        fifo,
        job("a", 0, 10, roles=(role("ps"),), within=Level.SOCKET),
        job("b", 1, 10, gpus=8),
        nodes=[node("n0", 8, sockets=2)],
    )

    assert played.times == {"a": (0, 10), "b": (10, 20)}
