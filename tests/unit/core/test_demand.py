"""What workers usually ask for."""

from __future__ import annotations

from roost.core import Core, JobId, Submitted
from roost.core.demand import Demand, Need, counted
from roost.core.events import NodeJoined
from roost.core.snapshot import dump, load
from roost.placement import placer
from roost.policies import policy
from roost.testing.builders import node, role, spec, worker


def need(gpus: float) -> Need:
    asked = worker(gpus)
    return Need(asked.cpu_milli, asked.share_milli, asked.gpus, asked.kinds)


def test_the_most_frequent_needs_are_typical() -> None:
    demand = Demand()
    demand.note(worker(1), 60)
    demand.note(worker(0.5), 36)
    demand.note(worker(8), 4)

    assert demand.typical().needs == ((need(1), 0.625), (need(0.5), 0.375))


def test_of_equally_frequent_needs_the_larger_is_the_more_typical() -> None:
    demand = Demand()
    for gpus in (1, 4, 2):
        demand.note(worker(gpus), 10)

    assert [each.gpus for each, _ in demand.typical().needs] == [4, 2, 1]


def test_what_is_typical_stays_until_the_workload_has_grown() -> None:
    demand = Demand()
    demand.note(worker(1), 100)
    first = demand.typical()
    demand.note(worker(2), 9)
    assert demand.typical() is first
    demand.note(worker(2), 9)
    assert demand.typical().version > first.version


def test_without_jobs_nothing_is_typical() -> None:
    assert Demand().typical().needs == ()


def test_rare_needs_are_forgotten() -> None:
    demand = Demand()
    demand.note(worker(1), 10_000)
    for cpus in range(1, 6000):
        demand.note(worker(1, cpu_milli=cpus))

    assert demand.typical().needs[0][0] == need(1)
    assert len(demand._counts) <= 4096


def test_a_restart_knows_what_jobs_asked_for() -> None:
    core = Core(policy("fifo"), placer("fgd"))
    core.handle(NodeJoined(0.0, node("n0", 4)), Submitted(1.0, JobId("a"), spec(2, 100.0)))
    again = load(dump(core), policy("fifo"), placer("fgd"))

    assert core.ledger.demand.typical().needs
    assert again.ledger.demand.typical().needs == core.ledger.demand.typical().needs


def test_what_is_known_beforehand_counts_as_if_it_had_come_first() -> None:
    known = counted([spec(0.5, workers=30), spec(1, workers=10, roles=(role("ps"),))])
    assert known == ((need(0.5), 30), (need(1), 10), (need(0), 1))
    demand, all_of_it = Demand(), Demand()
    for each, count in ((0.5, 30), (1, 10), (0, 1)):
        all_of_it.note(worker(each), count)
    assert demand.typical(known).needs == all_of_it.typical().needs
    assert demand.typical().needs == (), "without it nothing is known"
    for other in (demand, all_of_it):
        other.note(worker(4), 60)
    assert demand.typical(known).needs == all_of_it.typical().needs
    assert demand.typical(known).needs[0] == (need(4), 0.6)


def test_what_is_known_beforehand_is_not_looked_at_anew_each_time() -> None:
    known, demand = counted([spec(1, workers=1000)]), Demand()
    first = demand.typical(known)
    demand.note(worker(2), 99)
    assert demand.typical(tuple(known)) is first
    demand.note(worker(2), 2)
    assert demand.typical(known).version == first.version + 1
