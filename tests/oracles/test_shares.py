"""Max-min fair shares against water poured by bisection."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.played import cluster, job, simulation
from tests.support.effort import examples

from roost.core import Core, Job, JobId, NodeJoined, Plan, QueueChanged, Submitted
from roost.placement import placer
from roost.policies.fair import FairShare, fair_shares
from roost.policies.fifo import arrival
from roost.testing.builders import node, queue, spec


@dataclass(frozen=True)
class Tenant:
    wants: int
    weight: float
    limit: int | None = None


TENANTS = st.lists(
    st.builds(
        Tenant,
        wants=st.integers(0, 12),
        weight=st.sampled_from([0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0]),
        limit=st.none() | st.integers(1, 12),
    ),
    min_size=1,
    max_size=5,
)


def poured(tenants: list[Tenant], capacity: float) -> list[float]:
    """Raise the water until it is used up; nobody takes more than it wants and may have."""
    most = [min(t.wants, t.limit if t.limit is not None else t.wants) for t in tenants]
    low, high = 0.0, 1000.0
    for _ in range(200):
        level = (low + high) / 2
        used = sum(min(cap, level * t.weight) for cap, t in zip(most, tenants, strict=True))
        low, high = (level, high) if used <= capacity else (low, level)
    return [min(cap, low * t.weight) for cap, t in zip(most, tenants, strict=True)]


@settings(max_examples=examples(100))
@given(tenants=TENANTS, gpus=st.integers(1, 16))
def test_shares_are_those_of_the_water(tenants: list[Tenant], gpus: int) -> None:
    found: dict[str, float] = {}

    def note(plan: Plan) -> None:
        plan.lines(arrival, by_queue=True)
        found.update({queue.spec.id: share for queue, share in fair_shares(plan).items()})

    core = Core(note, placer("first-fit"))
    core.handle(
        NodeJoined(0.0, node("n0", gpus)),
        *(
            QueueChanged(
                0.0,
                queue(
                    f"q{i}",
                    weight=tenant.weight,
                    limit_milli=None if tenant.limit is None else tenant.limit * 1000,
                ),
            )
            for i, tenant in enumerate(tenants)
        ),
        *(
            Submitted(0.0, JobId(f"q{i}-{n}"), spec(1, 10.0, queue=f"q{i}"))
            for i, tenant in enumerate(tenants)
            for n in range(tenant.wants)
        ),
    )

    expected = {f"q{i}": 1000 * share for i, share in enumerate(poured(tenants, gpus))}
    assert found == pytest.approx(expected, abs=0.01)


@settings(max_examples=examples(40))
@given(
    first=st.integers(0, 3),
    wants=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    gpus=st.sampled_from([4, 6, 12]),
)
def test_whoever_came_first_everyone_ends_up_with_its_share(
    first: int, wants: list[int], gpus: int
) -> None:
    """One queue takes all it can before the others come; 1-GPU jobs, equal weights.

    Then each queue runs at least the whole GPUs of its share, and nothing it wants stays idle.
    """
    order = sorted(range(len(wants)), key=lambda i: (i != first % len(wants), i))
    jobs = [
        job(f"q{i}-{n}", 0 if rank == 0 else 10, 100, queue=f"q{i}")
        for rank, i in enumerate(order)
        for n in range(wants[i])
    ]
    sim = simulation(FairShare(), jobs, cluster(gpus))
    sim.run(until=50)

    running = [str(found.queue.spec.id) for found in _running(sim.core)]
    shares = poured([Tenant(want, 1.0) for want in wants], gpus)
    for i, share in enumerate(shares):
        assert running.count(f"q{i}") >= int(share + 1e-6)
    assert len(running) == min(gpus, sum(wants))


def _running(core: Core) -> list[Job]:
    return [run.job for run in core.runs.values() if run.started_at is not None]
