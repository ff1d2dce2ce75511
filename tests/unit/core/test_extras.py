"""What nodes count by name: slices of devices, huge pages, ports."""

from __future__ import annotations

import pytest

from roost.core import (
    Core,
    Exited,
    Launch,
    NodeChanged,
    NodeJoined,
    Outcome,
    Started,
    Submitted,
)
from roost.core.extras import extra_capacity, extra_text
from roost.core.ledger import Ledger
from roost.core.node import empty_room
from roost.errors import Conflict, Fatal, InvalidSpec
from roost.placement import PLACERS, placer
from roost.policies import policy
from roost.testing.builders import job, node, part, run, spec, worker
from roost.testing.checks import validate

PORT = (("port/80", 1),)


@pytest.mark.parametrize(
    "extras", [(("b", 1), ("a", 1)), (("a", 1), ("a", 2)), (("a", 0),), (("a", -1),), (("", 1),)]
)
def test_senseless_amounts_are_refused(extras: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(InvalidSpec):
        worker(0, extras=extras)
    with pytest.raises(InvalidSpec):
        node(extras=extras)


def test_a_node_has_what_it_names_and_all_that_is_named_alike() -> None:
    extras = (("nic", 2), ("port/*", 1), ("port/99", 3))

    names = ("nic", "port/80", "port/99", "port", "other")
    assert [extra_capacity(extras, name) for name in names] == [2, 1, 3, 1, 0]


def test_what_is_taken_is_subtracted_and_given_back() -> None:
    ledger = Ledger()
    place = ledger.join(node("n0", 0, extras=(("nic", 3), ("port/*", 1))))
    need = worker(0, extras=(("nic", 1), *PORT))
    ledger.take(part("n0", ()), need)

    assert place.extras_used == {"nic": 1, "port/80": 1}
    assert ledger.room(place, need) == 0
    assert ledger.room(place, worker(0, extras=(("nic", 1),))) == 2
    assert ledger.room(place, worker(0, extras=(("nic", 1), ("port/81", 1)))) == 1
    assert ledger.claim([(part("n0", ()), need)]) == "node n0 has less than 1 port/80 left"
    with pytest.raises(Fatal, match="port/80"):
        ledger.take(part("n0", ()), need)
    ledger.release(part("n0", ()), need)
    assert place.extras_used == {}


def test_what_is_hidden_is_not_found() -> None:
    ledger = Ledger()
    place = ledger.join(node("n0", 0, extras=(("nic", 3),)))
    need = worker(0, extras=(("nic", 2),))
    with ledger.hidden([(part("n0", (), workers=2), need)]):
        assert place.extras_used == {"nic": 3}
        assert ledger.room(place, need) == 0
    assert place.extras_used == {}


def test_an_empty_node_holds_as_many_as_it_has_extras_for() -> None:
    assert empty_room(node("n0", 8, extras=(("nic", 3),)), worker(1, extras=(("nic", 2),))) == 1
    assert empty_room(node("n0", 8), worker(1, extras=(("nic", 2),))) == 0


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_no_placer_puts_two_workers_with_one_port_on_a_node(name: str) -> None:
    core = Core(policy("fifo"), placer(name))
    for index in range(3):
        core.handle(NodeJoined(0.0, node(f"n{index}", 8, extras=(("port/*", 1),))))

    (launch,) = core.handle(Submitted(0.0, job("gang"), spec(1, workers=3, extras=PORT)))

    assert isinstance(launch, Launch)
    assert sorted(launch.allocation.nodes) == ["n0", "n1", "n2"]
    assert core.handle(Submitted(1.0, job("late"), spec(1, extras=PORT))) == []
    found = core.explain(job("late"))
    assert found is not None
    assert found.reason.text == "port/80 is taken on 3 nodes"
    validate(core)


def test_a_reason_counts_the_nodes_that_are_short() -> None:
    core = Core(policy("fifo"), placer("pack"))
    for index in range(3):
        core.handle(NodeJoined(0.0, node(f"n{index}", 0, extras=(("disk", 1 << 30), ("nic", 1)))))
    core.handle(
        Submitted(1.0, job("nics"), spec(0, extras=(("nic", 2),))),
        Submitted(1.0, job("disk"), spec(0, extras=(("disk", 3 << 29),))),
        Submitted(1.0, job("none"), spec(0, extras=(("gaudi", 1),))),
    )

    told = {name: core.explain(job(name)) for name in ("nics", "disk", "none")}
    assert {name: found.reason.text for name, found in told.items() if found is not None} == {
        "nics": "3 nodes have fewer than 2 nic free",
        "disk": "3 nodes have less than 1.5Gi disk free",
        "none": "3 nodes have no gaudi free",
    }


def test_a_higher_priority_takes_the_slice_of_a_lower_one() -> None:
    core = Core(policy("priority"), placer("topology"))
    core.handle(NodeJoined(0.0, node("n0", 0, extras=(("mig", 1),))))
    core.handle(Submitted(0.0, job("low"), spec(0, extras=(("mig", 1),))))
    core.handle(Started(1.0, run("low")))

    core.handle(Submitted(2.0, job("high"), spec(0, extras=(("mig", 1),), priority=5)))

    assert [decision.job for decision in core.decisions] == ["low", "high"]
    validate(core)


def test_a_node_cannot_lose_what_is_in_use() -> None:
    core = Core(policy("fifo"), placer("pack"))
    core.handle(NodeJoined(0.0, node("n0", 0, extras=(("mig", 2),))))
    core.handle(Submitted(0.0, job("a"), spec(0, workers=2, extras=(("mig", 1),))))
    core.handle(Started(1.0, run("a")))

    with pytest.raises(Conflict, match="mig"):
        core.handle(NodeChanged(2.0, node("n0", 0, extras=(("mig", 1),))))
    core.handle(NodeChanged(2.0, node("n0", 0, extras=(("mig", 7),))))

    assert core.ledger.nodes[node().id].extras_used == {"mig": 2}
    validate(core)


def test_amounts_are_written_as_people_read_them() -> None:
    assert extra_text("rdma/hca", 2) == "2 rdma/hca"
    assert extra_text("hugepages-2Mi", 512 << 20) == "512Mi hugepages-2Mi"


def test_a_node_that_does_not_mix_serves_whole_gpus_or_shares() -> None:
    core = Core(policy("fifo"), placer("topology"))
    core.handle(NodeJoined(0.0, node("n0", 2, mixed=False)))
    core.handle(Submitted(0.0, job("half"), spec(0.5)))
    core.handle(Started(1.0, run("half")))

    assert core.handle(Submitted(1.0, job("whole"), spec(1))) == []
    found = core.explain(job("whole"))
    assert found is not None
    assert found.reason.text == "node n0 serves shares of GPUs while a share of one is in use there"
    validate(core)
    (launch,) = core.handle(Exited(2.0, run("half"), Outcome.SUCCEEDED))
    assert isinstance(launch, Launch)
    assert launch.run == run("whole")

    assert core.handle(Submitted(3.0, job("half again"), spec(0.5))) == []
    found = core.explain(job("half again"))
    assert found is not None
    assert found.reason.text == "node n0 serves whole GPUs while a whole one is in use there"
    validate(core)


def test_a_node_that_does_not_mix_is_cleared_of_shares_for_a_higher_priority() -> None:
    core = Core(policy("priority"), placer("topology"))
    core.handle(NodeJoined(0.0, node("n0", 2, mixed=False)))
    core.handle(Submitted(0.0, job("half"), spec(0.5)))
    core.handle(Started(1.0, run("half")))

    core.handle(Submitted(2.0, job("whole"), spec(1, priority=5)))

    assert [decision.job for decision in core.decisions] == ["half", "whole"]
    validate(core)
