"""The parts of the PyTorch trainer that need one process only."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

import torch
from roost.train.members import Misuse
from roost.train.pytorch.feeder import Feeder, moved, permutation
from roost.train.pytorch.memory import MIB, Prediction, TooLarge, optimizer_bytes, predict, states
from roost.train.pytorch.offload import Pool
from roost.train.pytorch.reporter import StepClock
from roost.train.pytorch.state import Aside, joined, split
from roost.train.pytorch.statistics import Statistics
from torch import nn


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Linear(128, 8))


# Noise.


def test_the_noise_scale_is_found_from_gradients_of_known_noise() -> None:
    chance, seen = random.Random(1), Statistics()
    few, many, spread = 8, 64, 40.0
    for _ in range(400):
        # One number as gradient: 2, with a variance of `spread` per sample.
        parts = [chance.gauss(2.0, math.sqrt(spread / few)) for _ in range(many // few)]
        mean = sum(parts) / len(parts)
        seen.look((few, sum(part**2 for part in parts) / len(parts)), (many, mean**2))
    assert seen.noise == pytest.approx(spread / 4.0, rel=0.5)


def test_noise_is_unknown_until_it_can_be_told() -> None:
    seen = Statistics()
    assert seen.noise is None
    seen.look((8.0, 1.0), (8.0, 1.0))
    seen.look((4.0, math.nan), (8.0, 1.0))
    assert (seen.noise, seen.looks) == (None, 0)
    seen.look((4.0, 2.0), (8.0, 1.5))
    other = Statistics()
    other.load(seen.state())
    assert other.noise == seen.noise == pytest.approx(4.0)


# Memory.


@pytest.mark.parametrize(
    ("make", "copies"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: torch.optim.AdamW(p, lr=0.1), 2),
        (lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True), 3),
        (lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True), 3),
    ],
)
def test_what_an_optimiser_will_keep_is_known_before_its_first_step(
    make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer], copies: int
) -> None:
    model = layers()
    optimizer = make(model.parameters())
    told = optimizer_bytes(optimizer)
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    assert told == copies * sum(p.nbytes for p in model.parameters())
    assert optimizer_bytes(optimizer) == pytest.approx(told, rel=0.01)


def test_the_prediction_counts_what_the_forward_pass_really_keeps() -> None:
    model, batch = layers(), (torch.randn(256, 64), torch.zeros(256))
    found = predict(model, states(model, torch.optim.Adam(model.parameters()), batch), batch[:1])
    kept: dict[int, int] = {}
    own = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers()]}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        if tensor.untyped_storage()._cdata in own:
            del kept[tensor.untyped_storage().data_ptr()]
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(batch[0])
    assert found.activations == sum(kept.values()) + 2 * out.nbytes
    assert found.parameters == found.gradients == sum(p.nbytes for p in model.parameters())
    assert found.overhead == 0
    assert not any(buffer.is_meta for buffer in model.buffers())
    assert found.mib >= 1


def test_a_model_that_cannot_be_run_without_numbers_gives_a_lower_bound() -> None:
    class Peeks(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * float(inputs.sum())

    model = Peeks(4, 4)
    batch = torch.ones(2, 4)
    found = predict(model, states(model, torch.optim.SGD(model.parameters()), batch), (batch,))
    assert found.activations is None
    assert found.certain == 3 * 0 + 2 * 80 + 32
    assert "activations unknown" in found.words()


def test_a_share_that_cannot_hold_it_is_refused_with_numbers() -> None:
    found = Prediction(300 * MIB, 0, 300 * MIB, 600 * MIB, MIB, 99 * MIB, 0, 50 * MIB)
    found.check(None)
    found.check(1300)
    with pytest.raises(TooLarge, match=r"at least 1300 MiB .* reach 1350 MiB .* holds 1299 MiB"):
        found.check(1299)


# Leaving a device.


def test_state_leaves_and_comes_back_in_the_same_tensors() -> None:
    model = layers()
    tensors = [*model.parameters(), *model.buffers(), next(model.parameters())[:2]]
    before = [tensor.detach().clone() for tensor in tensors]
    pool = Pool(pin=False)
    pool.make(lambda: tensors)
    for _ in range(2):
        size = pool.leave(tensors)
        assert all(tensor.untyped_storage().nbytes() == 0 for tensor in tensors)
        assert pool.come_back() == size == sum(tensor.nbytes for tensor in tensors[:-1])
        assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))
    assert model(torch.randn(3, 64)).shape == (3, 8)


def test_more_than_there_is_room_for_makes_more_room() -> None:
    pool, small, large = Pool(pin=False), torch.ones(10), torch.ones(5000)
    pool.make(lambda: [small])
    assert pool.leave([small, large]) == small.nbytes + 20000
    pool.come_back()
    assert float(large.sum()) == 5000.0


# State.


def test_a_tree_is_split_and_joined() -> None:
    tree = {"a": [torch.ones(2), 3], "b": {"c": (torch.zeros(1), "x", None)}, 4: ()}
    plain, tensors = split(tree)
    assert len(tensors) == 2
    assert repr(joined(plain, tensors)) == repr(tree)


def test_a_copy_aside_does_not_change_with_the_original() -> None:
    aside, tensor = Aside(), torch.ones(3)
    copy = aside.take({"t": tensor, "n": 1})
    tensor.zero_()
    assert copy["t"].tolist() == [1.0, 1.0, 1.0]
    assert aside.take({"t": tensor, "n": 1})["t"].data_ptr() == copy["t"].data_ptr()


# Data.


def test_batches_of_all_kinds_of_datasets() -> None:
    class Rows(list):  # type: ignore[type-arg]
        pass

    whole = torch.utils.data.TensorDataset(torch.arange(10), torch.arange(10) * 2.0)
    device = torch.device("cpu")
    order = permutation(10, 1)[2:5]
    first, second = Feeder(whole, None, device).batch(order)
    assert first.tolist() == list(order)
    assert second.tolist() == [2.0 * index for index in order]
    one = Feeder(Rows([{"x": float(n)} for n in range(10)]), None, device).batch([3, 4])
    assert one["x"].tolist() == [3.0, 4.0]
    collated = Feeder(Rows("abc"), "".join, device).batch([2, 0])
    assert collated == "ca"
    assert moved((1, [torch.ones(1)]), lambda t: t + 1)[1][0].tolist() == [2.0]


def test_a_stream_or_nothing_at_all_is_refused() -> None:
    device = torch.device("cpu")
    with pytest.raises(Misuse, match="a stream cannot be divided"):
        Feeder(iter([1]), None, device)
    with pytest.raises(Misuse, match="empty"):
        Feeder([], None, device)


def test_permutations_are_whole_and_repeatable() -> None:
    assert sorted(permutation(50, 7)) == list(range(50))
    assert list(permutation(50, 7)) == list(permutation(50, 7)) != list(permutation(50, 8))


def test_the_time_of_a_step_is_that_of_the_share_and_not_of_a_suspension() -> None:
    pace = StepClock()
    for _ in range(100):  # turns of a tenth of a second: 50 short steps, then one with a pause
        for took_s in [0.002] * 49 + [0.102]:
            pace.add(took_s)
    assert pace.step_s == pytest.approx(0.004, rel=0.1)
    before = pace.step_s
    pace.add(30.0)
    assert pace.step_s == before
    pace.add(0.002)
    assert pace.step_s == pytest.approx(before, rel=0.1)


def test_steps_that_become_slow_for_good_are_believed() -> None:
    pace = StepClock()
    assert pace.step_s is None
    for took_s in (0.1, 0.1, 5.0, 5.0, 5.0):
        pace.add(took_s)
    assert pace.step_s == pytest.approx(5.0)
