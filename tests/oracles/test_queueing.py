"""The simulator against queueing theory: single GPUs, first come first served.

Exactly: waits follow Lindley's recursion (one GPU) and that of Kiefer and Wolfowitz (several), for
any arrivals and run times. On average: they are those of the formulas for Poisson arrivals. Means
come from independent replications with fixed seeds, each begun empty and cut at the front; the
bound is three standard errors (99.7 %), and the standard error must be small enough to tell.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.played import cluster, simulation
from tests.support.effort import examples

from roost.core import JobId
from roost.policies.fifo import fifo
from roost.testing.builders import spec
from roost.traces.workload import TraceJob

REPLICATIONS = 20
JOBS = 1500
WARM_UP = 300
#: The standard error of a mean, relative to the true value, that a formula must be told apart by.
PRECISION = 0.07


def waits(arrivals: Sequence[float], services: Sequence[float], gpus: int) -> list[float]:
    """How long each job waits in the simulator."""
    one = spec(1)
    jobs = [
        TraceJob(JobId(str(index)), at, one, work_s)
        for index, (at, work_s) in enumerate(zip(arrivals, services, strict=True))
    ]
    rows = simulation(fifo, jobs, cluster(gpus)).run().jobs
    return [row.started_at - row.submitted_at for row in rows if row.started_at is not None]


def by_recursion(arrivals: Sequence[float], services: Sequence[float], gpus: int) -> list[float]:
    """How long each job waits: a heap of the moments at which GPUs become free."""
    free = [0.0] * gpus
    found = []
    for at, work_s in zip(arrivals, services, strict=True):
        start = max(at, heapq.heappop(free))
        heapq.heappush(free, start + work_s)
        found.append(start - at)
    return found


@settings(max_examples=examples(60))
@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=40),
    gpus=st.integers(1, 4),
)
def test_waits_follow_the_recursion(pairs: list[tuple[int, int]], gpus: int) -> None:
    now, arrivals = 0, []
    for gap, _ in pairs:
        now += gap
        arrivals.append(float(now))
    services = [float(work_s) for _, work_s in pairs]

    assert waits(arrivals, services, gpus) == by_recursion(arrivals, services, gpus)


def mean_waits(rate: float, service: Callable[[random.Random], float], gpus: int) -> list[float]:
    """The mean wait of each replication."""
    found = []
    for seed in range(REPLICATIONS):
        chance = random.Random(seed)
        now, arrivals, services = 0.0, [], []
        for _ in range(JOBS):
            now += chance.expovariate(rate)
            arrivals.append(now)
            services.append(service(chance))
        found.append(fmean(waits(arrivals, services, gpus)[WARM_UP:]))
    return found


def erlang_c(load: float, servers: int) -> float:
    """The probability that a job has to wait in M/M/k, with ``load`` Erlangs."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**n / math.factorial(n) for n in range(servers)) + last)


def assert_mean(means: Sequence[float], expected: float) -> None:
    error = stdev(means) / math.sqrt(len(means))
    assert error < PRECISION * expected, f"standard error {error} is too large to tell anything"
    assert fmean(means) == pytest.approx(expected, abs=3 * error)


def test_m_m_1() -> None:
    """E[W] = rho / (mu - lambda)."""
    rate = 0.6
    means = mean_waits(rate, lambda chance: chance.expovariate(1.0), gpus=1)

    assert_mean(means, rate / (1.0 - rate))


@pytest.mark.parametrize(("gpus", "rho"), [(2, 0.7), (4, 0.7)])
def test_m_m_k(gpus: int, rho: float) -> None:
    """E[W] = C(k, a) / (k mu - lambda), with Erlang's C."""
    means = mean_waits(rho * gpus, lambda chance: chance.expovariate(1.0), gpus)

    assert_mean(means, erlang_c(rho * gpus, gpus) / (gpus * (1.0 - rho)))


def test_erlangs_formula_itself() -> None:
    """One server: C = rho. Two servers: C = 2 rho^2 / (1 + rho)."""
    assert erlang_c(0.6, 1) == pytest.approx(0.6)
    assert erlang_c(1.4, 2) == pytest.approx(2 * 0.7**2 / 1.7)


def test_m_d_1() -> None:
    """Pollaczek and Khinchine: E[W] = lambda E[S^2] / (2 (1 - rho)); here S = 1."""
    rate = 0.7
    means = mean_waits(rate, lambda _: 1.0, gpus=1)

    assert_mean(means, rate / (2 * (1 - rate)))


def test_m_g_1_with_two_kinds_of_jobs() -> None:
    """S is 0.5 or 3 with probabilities 0.8 and 0.2: E[S] = 1, E[S^2] = 2."""
    rate = 0.5
    means = mean_waits(rate, lambda chance: 0.5 if chance.random() < 0.8 else 3.0, gpus=1)

    assert_mean(means, rate * 2.0 / (2 * (1 - rate)))
