"""What ``roost simulate --price`` says: jobs and idle GPUs together cost what the cluster costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roost.cli.simulated_usage import WorldUsage
from roost.sim.failures import Failures
from roost.sim.scenario import Scenario, uniform_cluster
from roost.sim.simulation import Simulation
from roost.traces.generate import Synthetic
from roost.usage.ownership import HOURS, Ownership
from roost.usage.prices import amount
from roost.usage.spells import GPU_HOUR

MONTH_S = 30 * 86_400.0


@pytest.mark.parametrize("breaks_every_s", [None, 5 * 86_400.0])
def test_jobs_and_idle_are_the_cost_of_a_month(breaks_every_s: float | None) -> None:
    nodes = [replace(node, kind="A100") for node in uniform_cluster(4, 8)]
    failures = Failures(breaks_every_s, 3600.0, None, 3600.0)
    workload = Synthetic(jobs=400, load=0.5, gpus=32, seed=3)
    scenario = Scenario(workload=workload, nodes=nodes, failures=failures)
    simulation = Simulation(scenario.setup("srtf", "consolidate", 3))
    usage = WorldUsage(simulation)
    simulation.run(MONTH_S, observer=usage.note)
    found, _ = usage.totals("own")
    assert found.total.held + found.idle + found.out_of_service == found.capacity
    months = simulation.now / 3600 / HOURS
    assert found.capacity / GPU_HOUR == pytest.approx(32 * simulation.now / 3600)
    cost = amount(found.total.cost + found.idle_cost)
    assert cost == pytest.approx(4 * Ownership().total * months, rel=1e-3)
    assert (found.out_of_service > 0) == (breaks_every_s is not None)


def test_a_price_is_a_price() -> None:
    nodes = list(uniform_cluster(1, 8))
    scenario = Scenario(workload=Synthetic(jobs=20, load=0.5, gpus=8, seed=1), nodes=nodes)
    simulation = Simulation(scenario.setup("fifo", "consolidate", 1))
    usage = WorldUsage(simulation)
    simulation.run(observer=usage.note)
    found, prices = usage.totals("2.50")
    assert prices.prices[0].micro == 2_500_000
    assert amount(found.total.cost) == pytest.approx(2.5 * found.total.charged / GPU_HOUR)
