"""Conservative backfill: schedules worked out by hand. See also oracles/test_reservations."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play, simulation

from roost.core import JobId, Launch
from roost.policies.backfill import Easy
from roost.policies.conservative import Conservative
from roost.testing.builders import node, queue, role


def test_every_job_gets_the_first_hole_that_delays_nobody() -> None:
    # a: 3 GPUs 0-10. b: all, 10-15. c: 2 GPUs, 15-20. d: 1 GPU for 20 s would run into b: 15-35,
    # beside c. e: 1 GPU for 7 s fits before b: 3-10.
    played = play(
        Conservative(),
        job("a", 0, 10, gpus=3),
        job("b", 1, 5, gpus=4),
        job("c", 2, 5, gpus=2),
        job("d", 3, 20),
        job("e", 3, 7),
        nodes=cluster(4),
    )

    assert played.times == {
        "a": (0, 10),
        "b": (10, 15),
        "c": (15, 20),
        "d": (15, 35),
        "e": (3, 10),
    }


def test_the_second_in_line_is_safe_too_unlike_with_easy() -> None:
    # b: 3 GPUs 10-20. c: all 4, 20-30. d, 1 GPU for 30 s, is in nobody's way under EASY, which
    # knows only b's reservation, and delays c until 33.
    jobs = (
        job("a", 0, 10, gpus=3),
        job("b", 1, 10, gpus=3),
        job("c", 2, 10, gpus=4),
        job("d", 3, 30),
    )

    assert play(Easy(), *jobs, nodes=cluster(4)).times["c"] == (33, 43)
    played = play(Conservative(), *jobs, nodes=cluster(4))
    assert played.times == {"a": (0, 10), "b": (10, 20), "c": (20, 30), "d": (30, 60)}


def test_everyone_is_told_when_it_starts() -> None:
    jobs = [job("a", 0, 10, gpus=4), job("b", 1, 5, gpus=4), job("c", 2, 5, gpus=4)]
    sim = simulation(Conservative(), jobs, cluster(4))
    sim.run(until=5)

    told = [sim.core.explain(JobId(name)) for name in "bc"]
    assert [found.reason.starts_at for found in told if found] == [10, 15]


def test_when_a_run_ends_early_all_move_forward_in_order() -> None:
    played = play(
        Conservative(),
        job("a", 0, 4, gpus=4, declared=10.0),
        job("b", 1, 5, gpus=4),
        job("c", 2, 5, gpus=4),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 4), "b": (4, 9), "c": (9, 14)}


def test_when_a_run_outstays_its_estimate_all_move_back() -> None:
    played = play(
        Conservative(),
        job("a", 0, 100, gpus=4, declared=10.0),
        job("b", 1, 5, gpus=4),
        job("c", 2, 5, gpus=4),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 100), "b": (100, 105), "c": (105, 110)}


def test_a_wide_gang_gets_whole_nodes() -> None:
    # w needs both nodes: 10-15. s fits before it on n1 (2-10), t (9 s) does not and comes after.
    played = play(
        Conservative(),
        job("a", 0, 10),
        job("w", 1, 5, workers=8),
        job("s", 2, 8, gpus=4),
        job("t", 2, 9, gpus=3),
        nodes=cluster(4, nodes=2),
    )

    assert played.times == {"a": (0, 10), "w": (10, 15), "s": (2, 10), "t": (15, 24)}


def test_a_queue_at_its_limit_waits_and_time_goes_on() -> None:
    played = play(
        Conservative(),
        job("a", 0, 10, queue="q"),
        job("b", 0, 10, queue="q"),
        nodes=cluster(4),
        queues=[queue("q", limit_milli=1000)],
    )

    assert played.times == {"a": (0, 10), "b": (10, 20)}


def test_a_node_without_cpus_left_is_waited_for_and_time_goes_on() -> None:
    played = play(
        Conservative(),
        job("a", 0, 10, cpu_milli=3000),
        job("b", 0, 10, cpu_milli=3000),
        nodes=[node("n0", 4, cpu_milli=4000)],
    )

    assert played.times == {"a": (0, 10), "b": (10, 20)}


def test_the_gpus_of_other_roles_are_waited_for_and_time_goes_on() -> None:
    # 2 + 2 GPUs for w with its parameter server, and a holds 2 of 4.
    played = play(
        Conservative(),
        job("a", 0, 10, gpus=2),
        job("w", 1, 10, gpus=2, roles=(role("ps", 1, gpus=2),)),
        nodes=cluster(4),
    )

    assert played.times == {"a": (0, 10), "w": (10, 20)}


def test_a_job_of_whole_gpus_has_its_reservation_among_shared_ones() -> None:
    # f shares a GPU until 100; g needs all four. Those who come later must not keep it out.
    later = [job(f"h{i}", 2 + 5 * i, 60, 0.5) for i in range(30)]
    played = play(
        Conservative(), job("f", 0, 100, 0.5), job("g", 1, 10, gpus=4), *later, nodes=cluster(4)
    )

    assert played.times["g"] == (100, 110)


def test_a_wide_gang_keeps_its_place_when_others_are_booked_beside_it() -> None:
    # h is told 1: all of n0, and one GPU of n1, where c is booked beside it.
    played = play(
        Conservative(),
        job("a", 0, 1, workers=8),
        job("b", 0, 2, gpus=4),
        job("h", 0, 1, workers=5),
        job("c", 0, 1),
        nodes=cluster(4, nodes=3),
    )

    assert played.times["h"] == (1, 2)


def test_a_gang_of_shares_starts_where_it_fits() -> None:
    played = play(Conservative(), job("a", 0, 10, 0.25, workers=3), nodes=cluster(2))

    assert played.times == {"a": (0, 10)}


def test_a_later_job_does_not_use_up_the_limit_that_a_reservation_needs() -> None:
    # q2 is reserved for 25; q3 fits on n2 at once, but its queue would be over its limit at 25.
    played = play(
        Conservative(),
        job("r", 0, 25, workers=8),
        job("q2", 3, 16, workers=5, queue="q"),
        job("q3", 17, 16, queue="q"),
        nodes=cluster(4, nodes=3),
        queues=[queue("q", limit_milli=5000)],
    )

    assert played.times == {"r": (0, 25), "q2": (25, 41), "q3": (41, 57)}


def test_a_gang_larger_than_any_node_of_its_kind_has_a_reservation() -> None:
    # g needs two nodes of kind x, although the node of kind y would be large enough.
    nodes = [node("n0", 2, kind="x"), node("n1", 4, kind="y"), node("n2", 2, kind="x")]
    jobs = [
        job("a", 0, 16, workers=8),
        job("g", 5, 28, workers=3, kinds=("x",)),
        job("b", 10, 30, gpus=2, kinds=("x",)),
    ]
    sim = simulation(Conservative(), jobs, nodes)
    sim.run(until=12)

    told = [sim.core.explain(JobId(name)) for name in "gb"]
    assert [found.reason.starts_at for found in told if found] == [16, 44]
    assert [row.started_at for row in sim.run().jobs] == [0, 16, 44]


def test_a_reservation_knows_about_cpus() -> None:
    # a and b use all CPUs until 10 and 20; c needs 6 of 8 and is told 20, when it starts.
    jobs = [
        job("a", 0, 10, cpu_milli=4000),
        job("b", 0, 20, cpu_milli=4000),
        job("c", 1, 5, cpu_milli=6000),
    ]
    sim = simulation(Conservative(), jobs, [node("n0", 8, cpu_milli=8000)])
    sim.run(until=5)
    told = sim.core.explain(JobId("c"))
    assert told is not None
    assert told.reason.starts_at in {20, None}  # the truth, or no promise at all

    assert [row.started_at for row in sim.run().jobs] == [0, 0, 20]


def test_a_gang_of_shares_may_span_nodes() -> None:
    # Five halves need three devices, and a node has two.
    played = play(Conservative(), job("a", 0, 10, 0.5, workers=5), nodes=cluster(2, nodes=2))

    assert played.times == {"a": (0, 10)}


def test_a_gang_of_shares_holds_no_more_gpus_than_were_reserved_for_it() -> None:
    # c is told 1, when a and b leave two of three GPUs. g has the third until 2: if it also filled
    # what a left of its GPU, it would hold two then.
    jobs = [
        job("a", 0, 1, 0.5),
        job("b", 0, 1),
        job("c", 0, 1, gpus=2),
        job("g", 0, 2, 0.25, workers=3),
    ]
    sim = simulation(Conservative(), jobs, cluster(3))
    sim.run(until=0.5)
    told = sim.core.explain(JobId("c"))
    assert told is not None
    assert told.reason.starts_at == 1

    assert [row.started_at for row in sim.run().jobs] == [0, 0, 1, 0]


def test_a_gang_of_shares_fills_gpus_that_others_hold_as_long_anyway() -> None:
    # a and b hold their GPUs until 9 and leave a quarter of each; g, until 3, delays nobody there.
    played = play(
        Conservative(),
        job("a", 0, 9, 0.75),
        job("b", 0, 9, 0.75),
        job("g", 1, 2, 0.25, workers=3),
        nodes=cluster(3),
    )

    (run,) = (a for a in played.diary.actions if isinstance(a, Launch) and a.run.job == "g")
    assert [part.gpus for part in run.allocation.parts] == [(0,), (1,), (2,)]


def test_shares_that_need_much_device_memory_are_reserved_enough_gpus() -> None:
    # Four quarters would fit on one GPU, but its memory is enough for two: g is told 9, not 5.
    jobs = [job("a", 0, 5), job("b", 0, 9), job("g", 0, 2, 0.25, workers=4, gpu_memory_mib=8)]
    sim = simulation(Conservative(), jobs, [node("n0", 2, gpu_memory_mib=16)])
    sim.run(until=1)
    told = sim.core.explain(JobId("g"))
    assert told is not None
    assert told.reason.starts_at == 9

    assert [row.started_at for row in sim.run().jobs] == [0, 0, 9]


def test_gpus_with_too_little_memory_are_not_reserved() -> None:
    # c needs a GPU of n1, where b is until 9, although n0 has one free at 5.
    jobs = [
        job("a", 0, 5, gpus=2),
        job("b", 0, 9, gpus=2),
        job("c", 1, 2, gpu_memory_mib=20),
    ]
    nodes = [node("n0", 2, gpu_memory_mib=16), node("n1", 2, gpu_memory_mib=32)]
    sim = simulation(Conservative(), jobs, nodes)
    sim.run(until=2)
    told = sim.core.explain(JobId("c"))
    assert told is not None
    assert told.reason.starts_at == 9

    assert [row.started_at for row in sim.run().jobs] == [0, 0, 9]
