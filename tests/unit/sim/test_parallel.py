"""Many runs at once: the same as one after the other, in order, and nothing outlives a failure."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace

import pytest

from roost.errors import InvalidSpec, Retryable
from roost.sim import parallel
from roost.sim.failures import Failures
from roost.sim.parallel import run_many, workers
from roost.sim.results import Results
from roost.sim.scenario import Scenario, uniform_cluster
from roost.traces.generate import Synthetic

CASES = [("srtf", 1), ("fifo", 0), ("alnair", 1), ("fifo", 1)]
SCENARIO = Scenario(
    Synthetic(jobs=30, gpus=16, load=1.2, elastic=0.3, max_run_s=7200),
    uniform_cluster(2, 8),
    failures=Failures(node_mtbf_s=1e6),
    timeline=True,
)


def alike(results: Results) -> Results:
    """Without the times that it took."""
    return replace(results, wall_s=0.0, cpu_s=0.0)


def test_results_come_in_the_order_of_the_cases_and_equal_those_of_single_runs() -> None:
    alone = run_many(SCENARIO, CASES, "pack", processes=1)
    together = run_many(SCENARIO, CASES, "pack", processes=2)

    assert [(run.policy, run.seed) for run in together] == CASES
    assert [*map(alike, together)] == [*map(alike, alone)]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("processes", [1, 2])
def test_the_watcher_sees_every_run_begin_and_end(processes: int) -> None:
    seen: list[tuple[int, float, int, int]] = []

    runs = run_many(
        SCENARIO,
        CASES[:2],
        "pack",
        processes=processes,
        watcher=lambda *figures: seen.append(figures),
    )

    for number, run in enumerate(runs):
        mine = [figures[1:] for figures in seen if figures[0] == number]
        assert mine == sorted(mine)
        assert mine[-1] == (run.series.time[-1], 30, 30)


def test_no_cases_are_no_results() -> None:
    assert run_many(SCENARIO, [], "pack") == []


@pytest.mark.parametrize("processes", [1, 2])
def test_the_error_of_a_run_is_the_error_of_all(processes: int) -> None:
    small = replace(SCENARIO, nodes=uniform_cluster(1, 1))

    with pytest.raises(InvalidSpec, match="can never run"):
        run_many(small, [("fifo", seed) for seed in range(6)], "pack", processes=processes)
    assert not multiprocessing.active_children()


def _kill_all(*_figures: object) -> None:
    for process in multiprocessing.active_children():
        process.kill()


def test_a_killed_process_is_an_error_that_names_what_was_under_way() -> None:
    with pytest.raises(Retryable, match=r"a worker process was killed.*under way") as caught:
        run_many(SCENARIO, CASES, "pack", processes=2, watcher=_kill_all)
    assert "\n" not in str(caught.value)
    assert not multiprocessing.active_children()


def test_an_error_here_kills_what_still_runs_there() -> None:
    pids: set[int] = set()

    def interrupted() -> None:
        with workers(2) as submit:
            pids.update(submit(os.getpid).result() for _ in range(2))
            submit(signal.pause)
            submit(signal.pause)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert pids
    assert not multiprocessing.active_children()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_signal_while_processes_are_spawned_waits_until_that_is_done() -> None:
    done: list[str] = []

    def interrupted() -> None:
        with parallel._undisturbed():
            signal.raise_signal(signal.SIGINT)
            done.append("spawned")
        done.append("never")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["spawned"]


def test_workers_leave_ctrl_c_to_their_parent() -> None:
    with workers(1) as submit:
        pid = submit(os.getpid).result()
        os.kill(pid, signal.SIGINT)
        assert submit(os.getpid).result() == pid
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
