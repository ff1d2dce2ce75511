"""Alnair's elastic allocator: schedules worked out by hand. Speed is linear in the workers.

``work_s`` is the time with the least workers: 100 s of work with 4 times as many take 25 s.
"""

from __future__ import annotations

from tests.oracles.played import cluster, job, play

from roost.core import Costs, JobId, Outcome, Resize, Submitted
from roost.policies.alnair import Alnair
from roost.testing.builders import core_with, node, run, spec
from roost.testing.engine import FakeEngine


def test_a_job_gets_its_maximum_if_that_is_free() -> None:
    played = play(Alnair(), job("e", 0, 100, workers=(1, 4)), nodes=cluster(8))

    assert played.times == {"e": (0, 25)}


def test_else_it_gets_all_that_is_free_above_its_minimum() -> None:
    # 3 GPUs are free, e runs with 2 to 8: 3 workers, 1.5 times as fast.
    played = play(
        Alnair(),
        job("r", 0, 1000, gpus=5),
        job("e", 1, 300, workers=(2, 8)),
        nodes=cluster(8),
    )

    assert played.times == {"r": (0, 1000), "e": (1, 201)}
    assert played.rows["e"].resizes == 0


def test_else_others_shrink_towards_their_minimum() -> None:
    # e: 8 workers until 70 (560 s done), then 1 while n runs 70-80 and until its calm ends at 130
    # (620 done), then 8 again: 180 / 8 = 22.5 more seconds.
    played = play(
        Alnair(calm_s=60),
        job("e", 0, 800, workers=(1, 8)),
        job("n", 70, 10, gpus=6),
        nodes=cluster(8),
    )

    assert played.times == {"e": (0, 152.5), "n": (70, 80)}
    assert played.rows["e"].resizes == 2


def test_a_job_that_just_started_is_left_alone_while_it_is_calm() -> None:
    # n came at 30, e may be shrunk at 60 (480 done), grows again at 120 (540 done).
    played = play(
        Alnair(calm_s=60),
        job("e", 0, 800, workers=(1, 8)),
        job("n", 30, 10, gpus=6),
        nodes=cluster(8),
    )

    assert played.times == {"e": (0, 152.5), "n": (60, 70)}


def test_who_waits_for_that_is_told_so() -> None:
    engine = FakeEngine(core_with(Alnair(calm_s=60), node("n0", 4)))
    engine.tell(Submitted(0.0, JobId("e"), spec(1, 1e6, workers=(1, 4))))
    engine.answer(run("e"))
    for name, gpus in (("n", 2), ("large", 4)):
        engine.now = 30.0
        engine.tell(Submitted(30.0, JobId(name), spec(gpus, 1e6)))
    said = {name: engine.core.explain(JobId(name)) for name in ("n", "large")}
    texts = {name: told.reason.text for name, told in said.items() if told is not None}
    assert "waits for jobs that can shrink" in texts["n"]
    assert "shrink" not in texts["large"]


def test_a_job_that_was_just_resized_is_left_alone_while_it_is_calm() -> None:
    # e shrinks from 8 to 1 at 70 for n (70-80; 560 done) and stays at 1 worker until 130 (620
    # done). m (2 GPUs) starts at 85 in what is idle, with nobody resized. From 130 on e has 6 of
    # the 8: 180 s are 30 s of work for 6 workers.
    played = play(
        Alnair(calm_s=60),
        job("e", 0, 800, workers=(1, 8)),
        job("n", 70, 10, gpus=6),
        job("m", 85, 1000, gpus=2),
        nodes=cluster(8),
    )

    assert played.times == {"e": (0, 160), "n": (70, 80), "m": (85, 1085)}


def test_idle_gpus_are_given_back_out() -> None:
    # e: 2 workers until r ends at 100 (200 done), then 8: 800 / 8 = 100 s.
    played = play(
        Alnair(), job("r", 0, 100, gpus=6), job("e", 0, 1000, workers=(1, 8)), nodes=cluster(8)
    )

    assert played.times == {"r": (0, 100), "e": (0, 200)}


def test_the_smallest_for_its_size_grows_first() -> None:
    # t got 3 GPUs at 0, s the one that x left at 1. When r ends at 100 there are 4 idle; s (1 of 5)
    # is smaller for its size than t (3 of 4): 99 s are done, 400 / 5 = 80. Then t has its turn.
    played = play(
        Alnair(calm_s=10),
        job("r", 0, 100, gpus=4),
        job("x", 0, 1),
        job("t", 0, 1000, workers=(3, 4)),
        job("s", 1, 499, workers=(1, 5)),
        nodes=cluster(8),
    )

    assert played.times["s"] == (1, 180)
    resizes = [action for action in played.diary.actions if isinstance(action, Resize)]
    assert [(resize.run.job, resize.allocation.workers) for resize in resizes] == [
        ("s", 5),
        ("t", 4),
    ]


def test_a_resize_costs_what_it_costs() -> None:
    # n is there at 70; e stops working 70-80 and gives its GPUs up at 80: n 80-90.
    # e: 560 done, 1 worker 80-140 (620), stops again 140-150, then 8 workers: 22.5 s.
    played = play(
        Alnair(calm_s=60),
        job("e", 0, 800, workers=(1, 8), costs=Costs(resize_s=10)),
        job("n", 70, 10, gpus=6),
        nodes=cluster(8),
    )

    assert played.times == {"e": (0, 172.5), "n": (80, 90)}


def test_nothing_is_given_out_while_anyone_waits() -> None:
    # e got 1 GPU beside r and s. w (8 GPUs) waits from 20 on, so the GPU that s gives back at 50
    # stays idle, and e as it is.
    played = play(
        Alnair(calm_s=10),
        job("r", 0, 100, gpus=6),
        job("s", 0, 50),
        job("e", 0, 100, workers=(1, 2)),
        job("w", 20, 10, gpus=8),
        nodes=cluster(8),
    )

    assert played.times == {"r": (0, 100), "s": (0, 50), "e": (0, 100), "w": (100, 110)}


def test_nobody_shrinks_in_vain() -> None:
    # Even with e at 1 worker only 1 GPU would be free, and n needs 4.
    played = play(
        Alnair(calm_s=10),
        job("r", 0, 1000, gpus=6),
        job("e", 0, 100, workers=(1, 2)),
        job("n", 20, 10, gpus=4),
        nodes=cluster(8),
    )

    assert played.times["e"] == (0, 50)
    assert played.rows["e"].resizes == 0


def test_the_one_with_most_to_spare_shrinks_first() -> None:
    # s can spare 2 GPUs, t 3; n needs 3: only t shrinks.
    played = play(
        Alnair(calm_s=10),
        job("s", 0, 3000, workers=(1, 3)),
        job("t", 0, 4000, workers=(1, 4)),
        job("n", 100, 2000, gpus=3),
        nodes=cluster(7),
    )

    assert played.times["n"] == (100, 2100)
    first = next(action for action in played.diary.actions if isinstance(action, Resize))
    assert (first.run.job, first.allocation.workers) == ("t", 1)
    assert played.rows["s"].resizes == 0


def test_two_jobs_on_one_node_shrink_at_once() -> None:
    # Both have 4 workers; n needs 6, so both go down to 1 at 100 (400 done), until n is over at
    # 110 and their calm at 110 (410 done); then 590 / 4 = 147.5 s.
    played = play(
        Alnair(calm_s=10),
        job("e1", 0, 1000, workers=(1, 4)),
        job("e2", 0, 1000, workers=(1, 4)),
        job("n", 100, 10, gpus=6),
        nodes=cluster(8),
    )

    assert played.times == {"e1": (0, 257.5), "e2": (0, 257.5), "n": (100, 110)}


def shrunk(took_s: float) -> FakeEngine:
    """A job shrank at 100 to let another in, which was measured to take so long."""
    engine = FakeEngine(core_with(Alnair(calm_s=60), node("n0", 4)))
    elastic = spec(1, 1e6, workers=(1, 4), application="x")
    engine.tell(Submitted(0.0, JobId("e"), elastic))
    engine.answer(run("e"))
    engine.now = 100.0
    engine.tell(Submitted(100.0, JobId("n"), spec(3, 1e6)))
    engine.took_s = took_s
    engine.answer(run("e"))
    engine.answer(run("n"))
    return engine


def test_a_job_that_changes_in_no_time_grows_the_moment_another_ends() -> None:
    engine = shrunk(took_s=0.1)
    engine.now = 102.0

    actions = engine.end(run("n"), Outcome.SUCCEEDED)

    assert [(type(action), action.run) for action in actions] == [(Resize, run("e"))]


def test_a_job_that_takes_long_to_change_is_left_in_peace() -> None:
    engine = shrunk(took_s=30.0)
    engine.now = 300.0

    assert engine.end(run("n"), Outcome.SUCCEEDED) == []
    assert engine.core.wake_at == 100.0 + 20 * 30.0


def test_nobody_shrinks_for_who_does_not_preempt() -> None:
    # e holds all until it ends: 800 s of work with 8 workers.
    played = play(
        Alnair(),
        job("e", 0, 800, workers=(1, 8)),
        job("n", 70, 10, gpus=6, preempts=False),
        nodes=cluster(8),
    )

    assert played.times == {"e": (0, 100), "n": (100, 110)}
