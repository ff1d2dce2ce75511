"""Each sample of each epoch is used once, whoever comes and goes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.train.members import Misuse
from roost.train.pytorch.sampler import Sampler, bounds, shuffled

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def walk(sampler: Sampler, sizes: list[int]) -> list[list[int]]:
    """What each epoch used, with so many workers step after step."""
    used: list[list[int]] = [[] for _ in range(sampler.epochs)]
    step = 0
    while not sampler.over:
        size = sizes[step % len(sizes)]
        shares = [sampler.share(rank, size) for rank in range(size)]
        assert sum(share.counted for share in shares) == sampler.total == shares[0].total
        for share in shares:
            assert len(share.indices) == max(1, share.counted)
            used[sampler.epoch] += list(share.indices)[: share.counted]
        sampler.advance()
        step += 1
    return used


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3), SIZES)
def test_any_sequence_of_sizes_uses_each_sample_of_each_epoch_once(
    length: int, batch: int, epochs: int, sizes: list[int]
) -> None:
    sampler = Sampler(length, batch, epochs, seed=3)
    assert sampler.left == sampler.steps
    assert sampler.epochs_done == 0
    for used in walk(sampler, sizes):
        assert Counter(used) == Counter(range(length))
    assert sampler.epochs_done == epochs


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 100), SIZES)
def test_a_global_batch_does_not_depend_on_who_shares_it(
    length: int, batch: int, steps: int, sizes: list[int]
) -> None:
    alone, shared = Sampler(length, batch, 2), Sampler(length, batch, 2)
    for step in range(min(steps, alone.steps)):
        size = sizes[step % len(sizes)]
        parts = [shared.share(rank, size) for rank in range(size)]
        together = [index for part in parts for index in list(part.indices)[: part.counted]]
        assert together == list(alone.share(0, 1).indices)
        alone.advance()
        shared.advance()


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 40))
def test_it_goes_on_where_another_stood(length: int, batch: int, steps: int) -> None:
    first = Sampler(length, batch, 4, seed=5)
    for _ in range(min(steps, first.steps)):
        first.advance()
    second = Sampler(length, batch, 4, seed=5)
    second.load(first.state())
    assert second.left == first.left
    assert walk(second, [1])[second.epochs - 1 :] == walk(first, [3])[first.epochs - 1 :]


@given(st.integers(0, 1000), st.integers(1, 50))
def test_parts_differ_by_one_at_most_and_the_first_has_most(total: int, size: int) -> None:
    parts = [bounds(total, rank, size) for rank in range(size)]
    lengths = [end - start for start, end in parts]
    assert [start for start, _ in parts[1:]] == [end for _, end in parts[:-1]]
    assert sum(lengths) == total
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_epochs_are_shuffled_apart_and_the_same_each_time() -> None:
    orders = [list(shuffled(20, seed)) for seed in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]


def test_other_data_or_another_seed_cannot_go_on() -> None:
    state = Sampler(10, 2, 1, seed=1).state()
    with pytest.raises(Misuse, match="10 samples in the dataset, not 11"):
        Sampler(11, 2, 1, seed=1).load(state)
    with pytest.raises(Misuse, match="1 as seed, not 2"):
        Sampler(10, 2, 1, seed=2).load(state)


@pytest.mark.parametrize(("length", "batch", "epochs"), [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_nothing_to_do_is_refused(length: int, batch: int, epochs: int) -> None:
    with pytest.raises(Misuse, match="at least"):
        Sampler(length, batch, epochs)
