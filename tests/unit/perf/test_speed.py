"""Speed: what slows a job down, and by how much."""

from __future__ import annotations

import math

import pytest

from roost.core import Allocation, Level
from roost.core.topology import span
from roost.errors import InvalidSpec
from roost.perf.speed import Speed
from roost.testing.builders import held, node, part, role, shared, spec

NODES = {
    machine.id: machine
    for machine in (
        node("n0", 4, sockets=2),
        node("n1", 4, sockets=2),
        node("old", 4, kind="k80", switch="far"),
    )
}
ONE = held("n0", (0,))
RIGID = spec(1)


def test_without_factors_everything_goes_at_the_reference_speed() -> None:
    assert Speed().rate(RIGID, ONE, NODES, neighbours=()) == 1.0
    assert Speed().rate(RIGID, ONE, NODES, neighbours=("a", "b", "c")) == 1.0
    assert not Speed().interferes


def test_an_elastic_job_goes_faster_with_more_workers() -> None:
    elastic = spec(1, workers=(2, 8))
    eight = Allocation((part("n0", range(4), 4), part("n1", range(4), 4)))

    assert Speed().rate(elastic, eight, NODES, neighbours=()) == 4.0
    assert Speed(scaling=0.5).rate(elastic, eight, NODES, neighbours=()) == 2.0
    assert Speed(scaling=0.0).rate(elastic, eight, NODES, neighbours=()) == 1.0


def test_a_rigid_gang_is_its_own_reference() -> None:
    gang = spec(1, workers=4)

    assert Speed(scaling=0.5).rate(gang, held("n0", range(4), 4), NODES, neighbours=()) == 1.0


def test_a_gang_goes_at_the_pace_of_its_slowest_device() -> None:
    speed = Speed(kinds={"k80": 0.25, "gpu": 2.0})
    mixed = Allocation((part("n0", (0,)), part("old", (0,))))

    assert speed.rate(RIGID, ONE, NODES, neighbours=()) == 2.0
    assert speed.rate(RIGID, mixed, NODES, neighbours=()) == 0.25
    assert Speed(kinds={"k80": 0.25}).rate(RIGID, ONE, NODES, neighbours=()) == 1.0


def test_parameter_servers_and_cpus_do_not_set_the_pace() -> None:
    speed = Speed(kinds={"k80": 0.25})
    with_servers = spec(1, roles=(role("ps", 1, 1),))
    beside = Allocation((part("n0", (0,)), part("old", (0,), kind="ps")))

    assert speed.rate(with_servers, beside, NODES, neighbours=()) == 1.0
    assert speed.rate(spec(0), held("old"), NODES, neighbours=()) == 1.0


@pytest.mark.parametrize(
    ("where", "level"),
    [
        (held("n0"), Level.GPU),
        (shared("n0", 1, 500, workers=2), Level.GPU),
        (held("n0", (0, 1)), Level.SOCKET),
        (held("n0", (1, 2)), Level.NODE),
        (Allocation((part("n0", (0,)), part("n1", (0,)))), Level.SWITCH),
        (Allocation((part("n0", (0,)), part("old", (0,)))), Level.CLUSTER),
        (Allocation((part("n0", (0,)), part("old", ()))), Level.GPU),
    ],
)
def test_distance_is_the_smallest_cell_around_the_devices(where: Allocation, level: Level) -> None:
    speed = Speed(spread={each: 1.0 / (1 + each) for each in Level})

    assert span(where, NODES) is level
    assert speed.rate(RIGID, where, NODES, neighbours=()) == 1.0 / (1 + level)


def test_levels_that_are_not_named_cost_nothing() -> None:
    speed = Speed(spread={Level.CLUSTER: 0.5})

    assert speed.rate(RIGID, held("n0", (1, 2)), NODES, neighbours=()) == 1.0


def test_each_neighbour_takes_its_part() -> None:
    speed = Speed(interference=0.2)

    assert speed.interferes
    assert speed.rate(RIGID, ONE, NODES, neighbours=()) == 1.0
    assert math.isclose(speed.rate(RIGID, ONE, NODES, neighbours=("a", "a")), 0.64)


def test_factors_multiply() -> None:
    speed = Speed(kinds={"gpu": 2.0}, spread={Level.NODE: 0.5}, interference=0.1)

    rate = speed.rate(RIGID, held("n0", (1, 2)), NODES, neighbours=("a",))

    assert math.isclose(rate, 2.0 * 0.5 * 0.9)


@pytest.mark.parametrize(
    ("kinds", "spread", "interference"),
    [
        ({"k80": 0.0}, {}, 0.0),
        ({"k80": -1.0}, {}, 0.0),
        ({"k80": float("inf")}, {}, 0.0),
        ({}, {Level.NODE: 0.0}, 0.0),
        ({}, {Level.NODE: float("nan")}, 0.0),
        ({}, {}, 1.0),
        ({}, {}, -0.1),
    ],
)
def test_speeds_that_cannot_be_are_refused(
    kinds: dict[str, float], spread: dict[Level, float], interference: float
) -> None:
    with pytest.raises(InvalidSpec):
        Speed(kinds, spread, 1.0, interference)
