"""Tetris: who goes first by a - e * p, worked out by hand."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.core import Plan
from roost.policies.tetris import Tetris, alignment
from roost.testing.builders import node, queue


def test_less_remaining_work_goes_first() -> None:
    # Node of 2 GPUs. x: a = 2/2 * 2/2 = 1, p = 20. y: a = 1/2 * 2/2 = 1/2, p = 100.
    # e = (3/4) / 60 = 1/80: x scores 1 - 1/4 = 3/4, y scores 1/2 - 5/4 = -3/4. (With the sign the
    # other way, y would win by 7/4 to 5/4.)
    played = play(Tetris(), job("y", 0, 100), job("x", 0, 10, gpus=2), nodes=cluster(2))

    assert played.times == {"x": (0, 10), "y": (10, 110)}


def test_much_less_work_outweighs_alignment() -> None:
    # wide: a = 1, p = 2 * 1000. thin: a = 1/2, p = 10. e = (3/4) / 1005.
    # wide scores 1 - 1.4925..., thin 1/2 - 0.0074...: thin goes first, wide when it is over.
    played = play(Tetris(), job("wide", 0, 1000, gpus=2), job("thin", 0, 10), nodes=cluster(2))

    assert played.times == {"thin": (0, 10), "wide": (10, 1010)}


def test_with_equal_work_the_best_aligned_goes_first() -> None:
    # Node of 4 GPUs and 8 CPUs; both jobs are 10 GPU-s. q: a = 1/4 + 1/8. p: a = 1/4 + 1.
    # q came first, but p goes first and leaves it no CPU.
    played = play(
        Tetris(),
        job("q", 0, 10, cpu_milli=1000),
        job("p", 0, 10, cpu_milli=8000),
        nodes=[node("n0", 4, cpu_milli=8000)],
    )

    assert played.times == {"p": (0, 10), "q": (10, 20)}


def test_of_equals_the_older_goes_first() -> None:
    played = play(
        Tetris(),
        job("b", 0, 10, user="different", memory_mib=64),
        job("a", 0, 10, memory_mib=64),
        nodes=cluster(1),
    )

    assert played.times == {"b": (0, 10), "a": (10, 20)}


def test_jobs_that_fit_start_around_one_that_does_not() -> None:
    played = play(
        Tetris(),
        job("x", 0, 10, gpus=3),
        job("whole", 1, 5, gpus=4),
        job("small", 2, 4),
        nodes=cluster(4),
    )

    assert played.times == {"x": (0, 10), "whole": (10, 15), "small": (2, 6)}


def test_a_queue_at_its_limit_is_left_out_of_the_comparison() -> None:
    played = play(
        Tetris(),
        job("q1", 0, 10, queue="q"),
        job("q2", 0, 11, queue="q"),
        job("r", 0, 500, gpus=3, queue="r"),
        nodes=cluster(4),
        queues=[queue("q", limit_milli=1000)],
    )

    assert played.times == {"q1": (0, 10), "q2": (10, 21), "r": (0, 500)}


def test_alignment_is_demand_times_what_is_free_each_relative_to_capacity() -> None:
    # 8 GPUs with 2 taken, 16 CPUs with 4 taken, 100 MiB with 10 taken. Two workers of 1 GPU, 2 CPUs
    # and 25 MiB: 2/8 * 6/8 + 4/16 * 12/16 + 50/100 * 90/100.
    seen: list[float] = []

    def look(plan: Plan) -> None:
        for waiting in plan.pending:
            line = plan.waiting.line_of(waiting)
            parts = plan.placer(plan.ledger, line.shape)
            assert parts is not None
            seen.append(alignment(plan, line, parts))
            plan.place(waiting)

    play(
        look,
        job("before", 0, 10, gpus=2, cpu_milli=4000, memory_mib=10),
        job("asked", 1, 10, workers=2, cpu_milli=2000, memory_mib=25),
        nodes=[node("n0", 8, cpu_milli=16000, memory_mib=100)],
    )

    assert seen[1] == 2 / 8 * 6 / 8 + 4 / 16 * 12 / 16 + 50 / 100 * 90 / 100
