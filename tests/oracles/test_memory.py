"""What ``fill`` remembers only saves time: a policy that forgets everything decides the same.

Before every decision of the forgetful twin all refusals and all that is known of nodes is dropped
(``Plan.reconsider``). LAS is left out: by design it compares runs once per quantum.
"""

from __future__ import annotations

import random

import pytest
from tests.oracles.played import cluster, job, play

from roost.core import Costs, Plan, Policy
from roost.policies.gittins import Gittins
from roost.policies.srsf import Srsf
from roost.policies.srtf import Srtf
from roost.policies.tiresias import Tiresias
from roost.traces.workload import TraceJob

WORKLOADS = 100


def forgetful(policy: Policy) -> Policy:
    def decide(plan: Plan) -> None:
        plan.reconsider()
        policy(plan)

    return decide


def some_jobs(chance: random.Random) -> list[TraceJob]:
    return [
        job(
            f"j{i}",
            chance.randint(0, 60),
            chance.randint(1, 60),
            workers=chance.choice([1, 1, 2, 3, 4, 6]),
            costs=Costs(restart_s=chance.choice([0, 0, 5])),
        )
        for i in range(chance.randint(3, 14))
    ]


@pytest.mark.parametrize(
    "policy", [Srtf(), Srtf(min_run_s=7), Srsf(), Tiresias(limits=(20.0, 60.0)), Gittins()]
)
def test_a_policy_that_forgets_decides_the_same(policy: Policy) -> None:
    differ = []
    for seed in range(WORKLOADS):
        jobs = some_jobs(random.Random(seed))
        nodes = cluster(4, nodes=2)
        remembers = play(policy, *jobs, nodes=nodes).began
        if play(forgetful(policy), *jobs, nodes=nodes).began != remembers:
            differ.append(seed)

    assert differ == []
