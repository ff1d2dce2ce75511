"""``roost bench ablation``: jobs of all sorts, the same for all variants, and a row for each."""

from __future__ import annotations

import json

import pytest
from tests.unit.cli.told import roost

from roost.core import Core, Ledger, NodeJoined, QueueChanged, QueueSpec
from roost.core.cells import parse_promises
from roost.core.spec import WHOLE
from roost.placement import placer
from roost.policies import policy
from roost.policies.roost import Roost
from roost_bench.ablation.benchmark import VARIANTS, AblationBench
from roost_bench.ablation.workload import PROMISE, TENANTS, cluster, mixed_jobs


def test_there_are_jobs_of_all_sorts_and_each_fits_on_the_cluster() -> None:
    specs = [job.spec for job in mixed_jobs(200, 1.0, 1).jobs]
    assert any(spec.elastic for spec in specs)
    assert any(spec.resources.share_milli < WHOLE for spec in specs)
    assert any(not spec.resources.gpus for spec in specs)
    assert any(spec.resources.kinds for spec in specs)
    ledger = Ledger()
    for node in cluster():
        ledger.join(node)
    assert sum(node.gpus for node in cluster()) == 64
    assert all(ledger.could(spec.resources, 1) for spec in specs)
    assert mixed_jobs(200, 1.0, 1).jobs == mixed_jobs(200, 1.0, 1).jobs
    assert mixed_jobs(200, 1.0, 1).jobs != mixed_jobs(200, 1.0, 2).jobs


def test_the_first_variant_has_nothing_on_and_the_last_is_the_default() -> None:
    found = [policy(variant.policy) for variant in VARIANTS]
    assert found[0] == Roost(shares=False)
    assert found[-1] == Roost()
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)


def test_promises_fit_the_cluster_and_only_the_last_variant_makes_them() -> None:
    assert [bool(variant.promises) for variant in VARIANTS] == [False] * 4 + [True]
    core = Core(policy("roost"), placer("compact"))
    for node in cluster():
        core.handle(NodeJoined(0.0, node))
    cells = parse_promises(PROMISE)
    for queue in TENANTS:
        core.handle(QueueChanged(0.0, QueueSpec(queue, cells=cells)))
    queues = {job.spec.queue for job in mixed_jobs(200, 1.0, 1).jobs}
    assert set(TENANTS) < queues
    assert len(queues) == 3


def test_the_same_seed_gives_the_same_row() -> None:
    bench = AblationBench(30, 1.2)
    first = bench.measure(VARIANTS[-1], 3)
    assert first == bench.measure(VARIANTS[-1], 3)
    assert first.jobs == 30
    assert first.unfinished == 0
    assert 0 < first.allocated_pct <= 100
    assert first.p99_jct_s >= first.mean_jct_s > 0


def test_where_guests_shrink_for_promises_no_cell_is_claimed_twice() -> None:
    # With this seed elastic guests are given cells of the very job that they make room for.
    assert AblationBench(300, 1.3).measure(VARIANTS[-1], 4).unfinished == 0


def test_a_row_for_each_variant_and_seed() -> None:
    said = roost("bench", "ablation", "--jobs", "10", "--seeds", "1", "-o", "json")
    rows = json.loads(said.out)
    assert [row["variant"] for row in rows] == [variant.name for variant in VARIANTS]


@pytest.mark.parametrize("asked", [("--load", "0"), ("--jobs", "1"), ("--seeds", "0")])
def test_mistakes_are_told(asked: tuple[str, ...]) -> None:
    assert asked[0] in roost("bench", "ablation", *asked).error
