"""Dominant resource fairness: the examples of Ghodsi et al. (NSDI 2011), and their algorithm."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.played import cluster, job, play
from tests.support.effort import examples

from roost.policies.drf import Drf
from roost.testing.builders import node, queue

GIB = 1024
#: 9 CPUs and 18 GB; a task of A needs 1 CPU and 4 GB, one of B needs 3 CPUs and 1 GB.
PAPER = ((9, 18), {"A": (1, 4), "B": (3, 1)})


def started(
    total: tuple[int, int],
    demands: dict[str, tuple[int, int]],
    weights: dict[str, int] | None = None,
) -> dict[str, int]:
    """How many tasks of each user the policy starts at once when all have plenty."""
    cpus, memory = total
    weights = weights or dict.fromkeys(demands, 1)
    jobs = [
        job(f"{user}{i}", 0, 10, gpus=0, cpu_milli=cpu * 1000, memory_mib=gib * GIB, queue=user)
        for user, (cpu, gib) in demands.items()
        for i in range(max(cpus, memory))
    ]
    played = play(
        Drf(),
        *jobs,
        nodes=[node("n0", 0, cpu_milli=cpus * 1000, memory_mib=memory * GIB)],
        queues=[queue(user, weight=weight) for user, weight in weights.items()],
    )
    return {
        user: sum(row.queue == user and row.started_at == 0 for row in played.results.jobs)
        for user in demands
    }


def by_the_paper(
    total: tuple[int, int], demands: dict[str, tuple[int, int]], weights: dict[str, int]
) -> dict[str, int]:
    """Algorithm 1: the user of least weighted dominant share goes next, while its task fits."""
    tasks = dict.fromkeys(demands, 0)
    active = set(demands)
    while active:

        def share(user: str) -> tuple[Fraction, str]:
            pairs = zip(demands[user], total, strict=True)
            dominant = max(Fraction(tasks[user] * need, whole) for need, whole in pairs)
            return dominant / weights[user], user

        user = min(active, key=share)
        used = [sum(tasks[u] * demands[u][r] for u in demands) for r in (0, 1)]
        if all(used[r] + demands[user][r] <= total[r] for r in (0, 1)):
            tasks[user] += 1
        else:
            active.remove(user)
    return tasks


def test_the_example_of_the_paper() -> None:
    """A runs 3 tasks and B runs 2; both have two thirds of their dominant resource."""
    assert started(*PAPER) == {"A": 3, "B": 2}


def test_the_example_with_weights() -> None:
    """With three times B's weight A's share x/13.5 stays below y/3: 4 tasks and 1 (by hand)."""
    assert started(*PAPER, {"A": 3, "B": 1}) == {"A": 4, "B": 1}


def test_with_one_resource_it_is_max_min_fairness() -> None:
    """12 GPUs for three queues with weights 1, 2 and 3."""
    jobs = [job(f"{name}{i}", 0, 10, queue=name) for name in "abc" for i in range(12)]
    weights = {"a": 1, "b": 2, "c": 3}
    played = play(
        Drf(),
        *jobs,
        nodes=cluster(12),
        queues=[queue(name, weight=weight) for name, weight in weights.items()],
    )

    running = [row.queue for row in played.results.jobs if row.started_at == 0]
    assert {name: running.count(name) for name in weights} == {"a": 2, "b": 4, "c": 6}


@settings(max_examples=examples(60))
@given(
    total=st.tuples(st.integers(2, 20), st.integers(2, 20)),
    demands=st.dictionaries(
        st.sampled_from("ABCD"),
        st.tuples(st.integers(1, 4), st.integers(1, 4)),
        min_size=1,
    ),
    weights=st.fixed_dictionaries({user: st.sampled_from([1, 2, 4]) for user in "ABCD"}),
)
def test_tasks_are_those_of_the_algorithm(
    total: tuple[int, int], demands: dict[str, tuple[int, int]], weights: dict[str, int]
) -> None:
    fitting = {
        user: need
        for user, need in demands.items()
        if all(part <= whole for part, whole in zip(need, total, strict=True))
    }
    if not fitting:
        return
    own = {user: weights[user] for user in fitting}

    assert started(total, fitting, own) == by_the_paper(total, fitting, own)
