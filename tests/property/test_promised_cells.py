"""Random histories in which no promise of cells is broken, whatever policy decides."""

from __future__ import annotations

import pytest
from tests.support.effort import examples

from roost.placement import placer
from roost.policies import policy
from roost.testing.checks import validate
from roost.testing.promises import PromiseWalk

POLICIES = ("fifo", "srtf", "priority", "roost", "tiresias", "fair")


@pytest.mark.parametrize("name", POLICIES)
def test_a_queue_has_its_private_cluster_whatever_others_do(name: str) -> None:
    for seed in range(examples(12)):
        walk = PromiseWalk.of(seed, policy(name), placer("pack"))

        assert walk.walk(120) == []
        validate(walk.core)


def test_histories_are_not_idle() -> None:
    walks = [PromiseWalk.of(seed, policy("fifo"), placer("pack")) for seed in range(20)]

    for walk in walks:
        assert walk.walk(150) == []

    assert sum(walk.evictions for walk in walks) > 5
    assert sum(walk.refused for walk in walks) > 5
