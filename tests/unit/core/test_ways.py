"""A device is shared by turns or side by side, never both at once."""

from __future__ import annotations

import pytest

from roost.core import Exited, Ledger, Outcome, Shape, Started, Submitted, Way, Woke
from roost.errors import Fatal
from roost.placement import PLACERS, placer
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, job, node, part, run, shared, spec, worker
from roost.testing.checks import validate

SPATIAL = worker(0.25, way=Way.SPATIAL)
TEMPORAL = worker(0.25)


def taken() -> Ledger:
    """A quarter of the first of two devices is taken the spatial way."""
    ledger = Ledger()
    ledger.join(node("n0", 2))
    ledger.take(part("n0", (0,), share_milli=250), SPATIAL)
    return ledger


def test_the_ledger_refuses_to_mix() -> None:
    ledger = taken()

    with pytest.raises(Fatal, match="GPU 0 is shared the spatial way"):
        ledger.take(part("n0", (0,), share_milli=250), TEMPORAL)
    ledger.take(part("n0", (0,), share_milli=250), SPATIAL)


def test_room_counts_only_devices_of_the_same_way() -> None:
    ledger = taken()
    place = ledger.nodes[node("n0").id]

    assert ledger.room(place, SPATIAL) == 3 + 4
    assert ledger.room(place, TEMPORAL) == 4


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_placers_keep_ways_apart(name: str) -> None:
    ledger = taken()

    assert placer(name)(ledger, Shape(1, TEMPORAL)) == shared("n0", 1, 250).parts
    assert placer(name)(ledger, Shape(5, TEMPORAL)) is None


def test_once_empty_a_device_may_be_shared_the_other_way() -> None:
    ledger = taken()
    ledger.release(part("n0", (0,), share_milli=250), SPATIAL)

    ledger.take(part("n0", (0,), share_milli=250), TEMPORAL)
    assert ledger.nodes[node("n0").id].shared[0].way is Way.TEMPORAL


def test_a_waiting_job_is_told_where_it_would_fit_but_for_the_way() -> None:
    core = core_with(fifo, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(0.5, way=Way.SPATIAL)))
    core.handle(Started(0.0, run("a")), Submitted(1.0, job("b"), spec(0.5)))
    core.handle(Woke(2.0))
    found = core.explain(job("b"))

    assert found is not None
    text = "GPU 0 of node n0 has 0.5 GPU to spare, but is shared the spatial way"
    assert found.reason.text == text
    validate(core)
    core.handle(Exited(3.0, run("a"), Outcome.SUCCEEDED))
    assert core.runs[run("b")].allocation == shared("n0", 0, 500)
    validate(core)


def test_two_of_one_way_share_a_device() -> None:
    core = core_with(fifo, node("n0", 2))
    wanted = spec(0.5, way=Way.SPATIAL)
    core.handle(*(Submitted(0.0, job(name), wanted) for name in "ab"))

    assert core.runs[run("b")].allocation == shared("n0", 0, 500)
    assert core.ledger.free_milli == 1000
    validate(core)
