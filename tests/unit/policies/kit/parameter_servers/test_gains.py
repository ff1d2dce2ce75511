"""Sizes by marginal gain: never more than there is, the best steps first, the price of room."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from roost.policies.kit.parameter_servers.gains import (
    LEAPS,
    STEPS,
    Demand,
    Gains,
    Size,
    Vector,
    add,
    apportion,
    within,
)

CAPACITY: Vector = (16_000, 64_000, 0)
WORKER: Vector = (1000, 2000, 0)
SERVER: Vector = (0, 2000, 0)
ONE, EIGHT = Size(1, 1), Size(8, 8)


def demand(
    work: float = 1.0,
    most: Size = EIGHT,
    least: Size = ONE,
    fixed: Size | None = None,
    *,
    a: float = 1.0,
    c: float = 0.1,
) -> Demand:
    times = [
        [a / w + c * w / p + 0.01 * p for w in range(least.workers, most.workers + 1)]
        for p in range(least.servers, most.servers + 1)
    ]
    return Demand(least, most, WORKER, SERVER, Gains(times), work, fixed)


def test_everyone_gets_its_least_first() -> None:
    tight: Vector = (3000, 12_000, 0)
    sizes, price = apportion([demand(1), demand(1000), demand(1)], tight)

    assert sizes == [Size(1, 1), Size(1, 1), Size(1, 1)]
    assert price > 0  # somebody would gain from more


def test_who_does_not_get_its_least_waits_and_nobody_grows() -> None:
    sizes, price = apportion([demand()] * 3, (2000, 64_000, 0))

    assert sizes == [Size(1, 1), Size(1, 1), None]
    assert math.isinf(price)


def test_it_stops_where_nothing_is_gained() -> None:
    one = demand(a=1.0, c=0.5, most=Size(20, 20))
    (size,), price = apportion([one], (1_000_000, 1_000_000, 0))

    assert size is not None
    assert size.workers < 20
    assert size.servers < 20
    assert price == 0
    assert one.left_s(size) <= one.left_s(Size(size.servers, size.workers + 1))
    assert one.left_s(size) <= one.left_s(Size(size.servers + 1, size.workers))


def test_more_work_gets_more() -> None:
    (long, short), _ = apportion([demand(100.0, c=0.0), demand(1.0, c=0.0)], (8000, 64_000, 0))

    assert long is not None
    assert short is not None
    assert long.workers > short.workers
    assert long.workers + short.workers == 8


def test_fixed_jobs_keep_what_they_have() -> None:
    sizes, _ = apportion([demand(fixed=Size(2, 5)), demand()], (6000, 64_000, 0))

    assert sizes == [Size(2, 5), Size(sizes[1].servers, 1) if sizes[1] else None]


def test_a_leap_crosses_a_hill() -> None:
    times = [[1.0, 1.2, 0.9, 0.5]]

    def one(*, leaps: bool) -> Demand:
        gains = Gains(times, LEAPS if leaps else STEPS)
        return Demand(Size(1, 1), Size(1, 4), WORKER, SERVER, gains, 1.0)

    assert apportion([one(leaps=False)], CAPACITY).sizes == [Size(1, 1)]
    assert apportion([one(leaps=True)], CAPACITY).sizes == [Size(1, 4)]


demands = st.builds(
    demand,
    work=st.floats(0.1, 1e5),
    most=st.builds(Size, st.integers(1, 6), st.integers(1, 9)),
    a=st.floats(0.01, 10),
    c=st.floats(0, 1),
)


@given(
    st.lists(demands, max_size=12),
    st.tuples(st.integers(0, 30_000), st.integers(0, 90_000), st.just(0)),
)
def test_never_more_than_there_is(jobs: list[Demand], capacity: Vector) -> None:
    sizes, _ = apportion(jobs, capacity)

    used: Vector = (0, 0, 0)
    for one, size in zip(jobs, sizes, strict=True):
        if size is not None:
            used = add(used, one.takes(size))
            assert one.least.workers <= size.workers <= one.most.workers
            assert one.least.servers <= size.servers <= one.most.servers
            assert one.left_s(size) <= one.left_s(one.least)
    assert within(used, capacity)


@given(st.lists(demands, min_size=1, max_size=8))
def test_more_room_never_makes_the_sum_longer(jobs: list[Demand]) -> None:
    def total(gpus: int) -> float:
        sizes, _ = apportion(jobs, (1000 * gpus, 500_000, 0))
        return sum(
            one.left_s(size) for one, size in zip(jobs, sizes, strict=True) if size is not None
        )

    least = len(jobs)
    assert total(least + 8) <= total(least) * (1 + 1e-9)
