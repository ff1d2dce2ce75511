"""Sizes that are offered: what nodes in service have, and nothing else."""

from __future__ import annotations

from collections import Counter

from roost.core import Plan, Submitted
from roost.core.events import NodeLost
from roost.policies.kit.sizes import gpus_in_service, offered_sizes, size_table, sizes
from roost.testing.builders import core_with, job, node, spec


def test_lost_nodes_offer_nothing() -> None:
    seen: list[tuple[int, Counter[int], int, int]] = []

    def look(plan: Plan) -> None:
        widest = offered_sizes(plan)["gpu"].gpus[-1]
        total = sum(kind.total for kind in size_table(plan, []).kinds)
        seen.append((gpus_in_service(plan), sizes(plan)["gpu"], widest, total))

    nodes = [node(f"n{index}", 8) for index in range(4)]
    core = core_with(look, *nodes)
    core.handle(Submitted(1.0, job("a"), spec(1)))
    core.handle(*(NodeLost(2.0, lost.id) for lost in nodes[:3]))

    assert seen[1:] == [(32, {8: 4}, 32, 32), (8, {8: 1}, 8, 8)]


def test_the_table_has_the_least_size_of_every_job() -> None:
    found: list[list[int]] = []

    def look(plan: Plan) -> None:
        found.append(size_table(plan, plan.waiting).gpus.tolist())

    core = core_with(look, node("n0", 4), node("n1", 4), node("n2", 4))
    core.handle(Submitted(1.0, job("a"), spec(5)))

    assert found[-1] == [1, 2, 3, 4, 5, 6, 8, 12, 0]
