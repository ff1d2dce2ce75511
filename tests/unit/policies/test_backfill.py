"""EASY backfill: schedules worked out by hand. See also oracles/test_reservations."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play, simulation

from roost.core import Cause, Costs, JobId
from roost.policies.backfill import Easy
from roost.testing.builders import queue

#: 3 of 4 GPUs are busy until 10; b wants all four.
BLOCKED = (job("a", 0, 10, gpus=3), job("b", 1, 5, gpus=4))


def test_a_job_that_ends_before_the_reservation_goes_first() -> None:
    # 0        1                   10        15
    # a a a a a a a a a a a a a a a b b b b b
    #           c c c c c c c c c c b b b b b    c ends exactly at 10
    played = play(Easy(), *BLOCKED, job("c", 1, 9), nodes=cluster(4))

    assert played.times == {"a": (0, 10), "b": (10, 15), "c": (1, 10)}


def test_a_job_that_would_delay_the_reservation_waits() -> None:
    played = play(Easy(), *BLOCKED, job("d", 2, 9), nodes=cluster(4))

    assert played.times == {"a": (0, 10), "b": (10, 15), "d": (15, 24)}


def test_a_job_off_the_reserved_devices_may_run_for_ever() -> None:
    # 5 GPUs: b will use devices 0 to 3, so c may have device 4; d would need device 3.
    played = play(Easy(), *BLOCKED, job("c", 2, 100), job("d", 3, 100), nodes=cluster(5))

    assert played.times == {"a": (0, 10), "b": (10, 15), "c": (2, 102), "d": (15, 115)}


def test_the_first_in_line_is_told_when_it_starts() -> None:
    sim = simulation(Easy(), [*BLOCKED, job("d", 2, 9)], cluster(4))
    sim.run(until=5)

    first, second = sim.core.explain(JobId("b")), sim.core.explain(JobId("d"))
    assert first is not None
    assert first.reason.starts_at == 10
    assert second is not None
    assert second.reason.starts_at is None
    assert second.ahead == ("b",)


def test_nobody_is_told_to_fit_where_nothing_is_free() -> None:
    # Both are busy until 10, b wants both: for c and d there is nothing, whoever goes first.
    jobs = [
        *(job(name, 0, 10) for name in ("a1", "a2")),
        job("b", 1, 5, gpus=2),
        job("c", 2, 9),
        job("d", 2, 9, gpus=0.5),
    ]
    sim = simulation(Easy(), jobs, cluster(2))
    sim.run(until=5)

    told = [sim.core.explain(JobId(name)) for name in "bcd"]
    assert [why and why.reason[:2] for why in told] == [
        (Cause.CAPACITY, "first in line; 2 GPUs are reserved for it"),
        (Cause.CAPACITY, "no GPU is free"),
        (Cause.CAPACITY, "less than 0.5 GPU is free"),
    ]


def test_who_would_delay_the_first_in_line_is_told_so() -> None:
    # One is free. It goes to c, which ends in time; d comes too late for it, e never will.
    jobs = [*BLOCKED, job("d", 2, 9), job("e", 2, 9, gpus=0.5)]
    sim = simulation(Easy(), [*jobs, job("c", 4, 6)], cluster(4))
    sim.run(until=3)
    before = [sim.core.explain(JobId(name)) for name in "de"]
    sim.run(until=5)
    after = [sim.core.explain(JobId(name)) for name in "de"]

    delays = (Cause.TURN, "it would fit, but delay the first in line")
    assert [why and why.reason[:2] for why in before] == [delays, delays]
    assert [why and why.reason[:2] for why in after] == [
        (Cause.CAPACITY, "no GPU is free"),
        (Cause.CAPACITY, "less than 0.5 GPU is free"),
    ]


def test_the_first_in_line_for_one_gpu_has_one_reserved() -> None:
    sim = simulation(Easy(), [job("a", 0, 10), job("b", 1, 5)], cluster(1))
    sim.run(until=5)

    told = sim.core.explain(JobId("b"))
    assert told is not None
    assert told.reason.text == "first in line; 1 GPU is reserved for it"


def test_a_reservation_that_passed_to_another_is_no_longer_announced() -> None:
    # z has priority: it is first in line from 2 on, and y no longer is.
    jobs = [job("x", 0, 100, gpus=8), job("y", 1, 10, gpus=8), job("z", 2, 10, gpus=8, priority=1)]
    sim = simulation(Easy(), jobs, cluster(8))
    sim.run(until=50)

    first, second = sim.core.explain(JobId("z")), sim.core.explain(JobId("y"))
    assert first is not None
    assert first.reason.starts_at == 100
    assert second is not None
    assert second.reason.starts_at is None


def test_a_run_that_ends_early_lets_the_first_in_line_start_early() -> None:
    played = play(
        Easy(),
        job("a", 0, 4, gpus=3, declared=10.0),
        job("b", 1, 5, gpus=4),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 4), "b": (4, 9)}


def test_a_run_that_outstays_its_estimate_is_waited_for() -> None:
    # a said 10 and takes 100. At 20 it is expected to take another 10 (or a tenth of its estimate,
    # at least 1 s): c, 1 s, may go in between, d, 50 s, may not.
    played = play(
        Easy(),
        job("a", 0, 100, gpus=3, declared=10.0),
        job("b", 1, 5, gpus=4),
        job("c", 20, 1),
        job("d", 30, 50),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 100), "b": (100, 105), "c": (20, 21), "d": (105, 155)}


def test_only_so_many_jobs_of_a_shape_are_looked_at() -> None:
    # d does not fit before 10, e would. With depth 1 nobody looks past d.
    jobs = (*BLOCKED, job("d", 2, 20), job("e", 2, 5))

    assert play(Easy(), *jobs, nodes=cluster(4)).times["e"] == (2, 7)
    assert play(Easy(depth=1), *jobs, nodes=cluster(4)).times["e"] == (15, 20)


def test_priority_decides_who_is_first_in_line() -> None:
    played = play(
        Easy(),
        job("a", 0, 10, gpus=4),
        job("b", 1, 5, gpus=4),
        job("c", 2, 5, gpus=4, priority=1),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 10), "b": (15, 20), "c": (10, 15)}


def test_a_queue_at_its_limit_does_not_hold_a_reservation_against_others() -> None:
    # q2 is over its limit until 10; r needs no permission from it.
    played = play(
        Easy(),
        job("q1", 0, 10, gpus=2, queue="q"),
        job("q2", 1, 10, gpus=2, queue="q"),
        job("r", 2, 50, gpus=2, queue="r"),
        nodes=cluster(4),
        queues=[queue("q", limit_milli=2000)],
    )

    assert played.times == {"q1": (0, 10), "q2": (10, 20), "r": (2, 52)}


def test_a_backfilled_job_does_not_use_up_the_limit_that_the_reservation_needs() -> None:
    # a1 is reserved for 10. a2 would fit beside it, but together they are over a's limit of 4.
    played = play(
        Easy(),
        job("x", 0, 10, gpus=6, queue="b"),
        job("a1", 1, 10, gpus=4, queue="a"),
        job("a2", 2, 100, gpus=2, queue="a"),
        nodes=cluster(8),
        queues=[queue("a", limit_milli=4000)],
    )

    assert played.times == {"x": (0, 10), "a1": (10, 20), "a2": (20, 120)}


def test_a_restart_under_way_does_not_move_the_reservation() -> None:
    # j fails at 50, is launched again at once, up at 70, over at 120: h is reserved for 120. At 60
    # s (65 s) would end at 125.
    played = play(
        Easy(),
        job("k", 0, 1000),
        job("j", 0, 100, fails_at_s=(50.0,), max_retries=1, costs=Costs(restart_s=20)),
        job("h", 10, 10, gpus=2),
        job("s", 60, 65),
        nodes=cluster(3),
    )

    assert played.times == {"k": (0, 1000), "j": (0, 120), "h": (120, 130), "s": (130, 195)}


def test_jobs_of_one_instant_are_reserved_for_like_any_other() -> None:
    # j starts; h is reserved for 10; c would delay it and waits until h is over.
    played = play(
        Easy(),
        job("j", 0, 10, gpus=5),
        job("h", 0, 10, gpus=8),
        job("c", 0, 1000),
        nodes=cluster(8),
    )

    assert played.times == {"j": (0, 10), "h": (10, 20), "c": (20, 1020)}


def test_a_gang_that_needs_whole_nodes_is_not_kept_off_the_last_of_them() -> None:
    # h is reserved for 10, on all of n0 and one GPU of n1. c must not spoil n1 for it.
    played = play(
        Easy(),
        job("a", 0, 10, gpus=4),
        job("h", 1, 10, workers=5),
        job("c", 2, 100),
        nodes=cluster(4, nodes=2),
    )

    assert played.times["h"] == (10, 20)


def test_nothing_is_promised_while_an_older_job_waits_for_its_queue() -> None:
    # From 45 on q2 is over its queue's limit and h first in line, to start at 61, when q1 ends. But
    # q2 may start then too, and it came first.
    sim = simulation(
        Easy(),
        [
            job("a", 16, 15, gpus=3, queue="r"),
            job("b", 20, 25, workers=8, queue="r"),
            job("q1", 23, 16, workers=5, queue="q"),
            job("c", 34, 18, gpus=2, queue="r"),
            job("q2", 37, 16, queue="q"),
            job("h", 39, 22, workers=5, queue="r"),
        ],
        cluster(4, nodes=3),
        queues=[queue("q", limit_milli=5000)],
    )
    sim.run(until=50)

    explained = sim.core.explain(JobId("h"))
    assert explained is not None
    assert explained.reason.starts_at is None


def test_short_jobs_of_its_own_queue_do_not_cost_the_first_in_line_its_place() -> None:
    # h needs 4 of 6 GPUs, and 4 is its queue's limit: it is promised 10, when b ends. c would be
    # over by then, but until then h would be over the limit, and d would get in.
    played = play(
        Easy(),
        job("b", 0, 10, gpus=3, queue="b"),
        job("h", 1, 10, gpus=4, queue="a"),
        job("c", 2, 8, queue="a"),
        job("d", 3, 50, queue="a"),
        nodes=cluster(6),
        queues=[queue("a", limit_milli=4000)],
    )

    assert played.times["h"] == (10, 20)
