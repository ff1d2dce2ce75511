"""Shortest job first: schedules worked out by hand. Times read (start, end)."""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.policies.sjf import sjf
from roost.testing.builders import queue


def test_the_shortest_goes_first() -> None:
    played = play(
        sjf, job("long", 0, 10), job("short", 0, 2), job("mid", 0, 5), nodes=cluster(gpus=1)
    )

    assert played.times == {"short": (0, 2), "mid": (2, 7), "long": (7, 17)}


def test_nobody_is_stopped_for_a_shorter_job() -> None:
    played = play(sjf, job("long", 0, 10), job("short", 1, 2), nodes=cluster(gpus=1))

    assert played.times == {"long": (0, 10), "short": (10, 12)}


def test_a_job_that_does_not_fit_is_passed() -> None:
    # GPU 0: a a a a a a a a a a w w w
    # GPU 1: . . c c c c . . . . w w w     w is shortest, but needs both
    played = play(
        sjf, job("a", 0, 10), job("w", 1, 3, gpus=2), job("c", 2, 4), nodes=cluster(gpus=2)
    )

    assert played.times == {"a": (0, 10), "c": (2, 6), "w": (10, 13)}


def test_of_equals_the_older_goes_first() -> None:
    played = play(
        sjf, job("x", 0, 9), job("b", 1, 3), job("a", 2, 3), job("c", 3, 3), nodes=cluster(gpus=1)
    )

    assert played.times == {"x": (0, 9), "b": (9, 12), "a": (12, 15), "c": (15, 18)}


def test_the_declared_time_counts_not_the_true_one() -> None:
    played = play(
        sjf, job("a", 0, 10, declared=1.0), job("b", 0, 1, declared=5.0), nodes=cluster(gpus=1)
    )

    assert played.times == {"a": (0, 10), "b": (10, 11)}


def test_a_job_of_unknown_length_goes_last() -> None:
    played = play(
        sjf, job("who-knows", 0, 1, declared=None), job("week", 0, 600), nodes=cluster(gpus=1)
    )

    assert played.times == {"week": (0, 600), "who-knows": (600, 601)}


def test_lengths_are_learnt_from_a_users_earlier_jobs_of_the_same_application() -> None:
    # p took 2 s, so r (same user and application, submitted after p was over) is expected to take
    # 2 s and goes before s (3 s); t (another user) is unknown and goes last.
    played = play(
        sjf,
        job("p", 0, 2, declared=None, user="ann", application="bert"),
        job("q", 2, 4),
        job("t", 3, 1, declared=None, user="bob", application="bert"),
        job("s", 3, 3),
        job("r", 4, 2, declared=None, user="ann", application="bert"),
        nodes=cluster(gpus=1),
    )

    assert played.times == {"p": (0, 2), "q": (2, 6), "r": (6, 8), "s": (8, 11), "t": (11, 12)}


def test_a_queue_at_its_limit_lets_longer_jobs_of_others_pass() -> None:
    played = play(
        sjf,
        job("q1", 0, 10, queue="q"),
        job("q2", 0, 11, queue="q"),
        job("r", 0, 50, queue="r"),
        nodes=cluster(gpus=2),
        queues=[queue("q", limit_milli=1000)],
    )

    assert played.times == {"q1": (0, 10), "q2": (10, 21), "r": (0, 50)}
