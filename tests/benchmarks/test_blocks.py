"""Blocks on servers: nothing is lost, and it is more even than by MXNet's rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import InvalidSpec
from roost_bench.optimus.blocks import Assignment, balanced, by_threshold
from roost_bench.optimus.networks import NETWORKS, resnet50, spread_of, vgg16


def whole(assignment: Assignment, blocks: list[int]) -> bool:
    """Whether every block is there once, in as many pieces as it may be."""
    sizes = [0] * len(blocks)
    for pieces in assignment.servers:
        for block, size in pieces:
            sizes[block] += size
    return sizes == blocks


@given(
    st.lists(st.integers(1, 5_000_000), min_size=1, max_size=60), st.integers(1, 20), st.integers(0)
)
def test_every_block_is_held_once_and_sizes_are_even(
    blocks: list[int], servers: int, seed: int
) -> None:
    ours = balanced(blocks, servers)
    theirs = by_threshold(blocks, servers, np.random.default_rng(seed))

    assert whole(ours, blocks)
    assert whole(theirs, blocks)
    assert max(ours.sizes()) <= max(1.011 * sum(blocks) / servers, min(1, sum(blocks))) + 1


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=60), st.integers(1, 20))
def test_there_are_no_more_cuts_than_servers(blocks: list[int], servers: int) -> None:
    ours = balanced(blocks, servers)

    assert ours.imbalance().total_requests <= len(blocks) + servers


def test_equal_blocks_are_dealt_out_equally() -> None:
    ours = balanced([100] * 12, 4)

    assert ours.requests() == [3, 3, 3, 3]
    assert ours.sizes() == [300] * 4


def test_one_large_block_is_cut_into_equal_parts() -> None:
    ours = balanced([1000], 4)

    assert ours.sizes() == [250] * 4
    assert ours.imbalance() == (1.0, 1.0, 4)


@pytest.mark.parametrize("servers", [2, 4, 8, 16])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_spread_more_evenly_in_size_with_fewer_requests(
    name: str, servers: int
) -> None:
    ours, theirs = (
        next(row for row in spread_of(servers, 10) if (row.network, row.rule) == (name, rule))
        for rule in ("balanced", "threshold")
    )

    assert ours.size < 1.02
    assert ours.size < theirs.size
    assert ours.total_requests < theirs.total_requests


def test_networks_have_the_size_under_which_they_are_known() -> None:
    assert sum(resnet50()) == pytest.approx(25.6e6, rel=0.01)
    assert sum(vgg16()) == pytest.approx(138.4e6, rel=0.01)


@pytest.mark.parametrize(("blocks", "servers"), [([1], 0), ([0], 1), ([5, -1], 2)])
def test_what_cannot_be_is_refused(blocks: list[int], servers: int) -> None:
    with pytest.raises(InvalidSpec):
        balanced(blocks, servers)
