from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")  # the package above imports it

from roost.train.pytorch.replay.allocator import MIB, Block, CachingAllocator


def test_small_things_share_a_segment_of_two_mib() -> None:
    allocator = CachingAllocator()

    blocks = [allocator.take(1), allocator.take(512), allocator.take(513)]

    assert [block.size for block in blocks] == [512, 512, 1024]
    assert (allocator.allocated, allocator.reserved) == (2048, 2 * MIB)


@pytest.mark.parametrize(
    ("asked", "reserved"), [(MIB, 2), (MIB + 1, 20), (10 * MIB, 10), (11 * MIB + 1, 12)]
)
def test_a_segment_is_as_large_as_pytorch_makes_it(asked: int, reserved: int) -> None:
    allocator = CachingAllocator()

    allocator.take(asked)

    assert allocator.reserved == reserved * MIB


def test_what_is_given_back_is_joined_and_used_again() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.take(6 * MIB) for _ in range(3)]
    for block in (blocks[0], blocks[2], blocks[1]):
        allocator.give_back(block)

    allocator.take(18 * MIB)

    assert (allocator.reserved, allocator.peak_reserved) == (20 * MIB, 20 * MIB)


def test_a_large_rest_is_split_and_a_small_one_is_not() -> None:
    allocator = CachingAllocator()
    allocator.give_back(allocator.take(12 * MIB))

    assert allocator.take(11 * MIB).size == 12 * MIB
    assert allocator.take(10 * MIB - 512).size == 10 * MIB - 512


def test_books_balance_whatever_is_taken_and_given_back() -> None:
    chance = random.Random(1)
    allocator = CachingAllocator()
    held: list[Block] = []
    for _ in range(3000):
        if held and chance.random() < 0.5:
            allocator.give_back(held.pop(chance.randrange(len(held))))
        else:
            held.append(allocator.take(int(2 ** chance.uniform(5, 25))))
        assert allocator.allocated == sum(block.size for block in held) <= allocator.reserved
    while held:
        allocator.give_back(held.pop())

    assert allocator.allocated == 0
    assert allocator.take(allocator.reserved).size > 0
