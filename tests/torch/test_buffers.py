"""What a model keeps besides its parameters, when a step is taken again or given up."""

from __future__ import annotations

from typing import Any

import torch
from roost.train.pytorch.buffers import Buffers
from torch import nn


class Others:
    """A group whose worker 0 has the same number in every place."""

    def __init__(self, rank: int = 1, number: float = 7.0) -> None:
        self.rank, self.number, self.broken = rank, number, False

    def give(self, tensor: torch.Tensor, source: int) -> None:
        assert source == 0
        if self.broken and tensor.dtype == torch.int64:
            raise RuntimeError("Connection closed by peer")
        if self.rank:
            tensor.fill_(self.number)


def model_of() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(2))


def content(model: nn.Module) -> list[Any]:
    return [buffer.tolist() for buffer in model.buffers()]


def test_a_step_that_is_taken_again_begins_with_them_as_they_were() -> None:
    model, group = model_of(), Others()
    buffers = Buffers(model)
    before = content(model)
    buffers.keep(group)  # type: ignore[arg-type]
    model(torch.randn(4, 2))
    assert content(model) != before
    buffers.put_back()
    assert content(model) == before


def test_they_follow_the_first_worker_and_that_is_what_is_kept() -> None:
    model, group = model_of(), Others()
    buffers = Buffers(model)
    buffers.keep(group)  # type: ignore[arg-type]
    buffers.align(group)  # type: ignore[arg-type]
    aligned = content(model)
    assert aligned == [[7.0, 7.0], [7.0, 7.0], 7, [7.0, 7.0], [7.0, 7.0], 7]
    model(torch.randn(4, 2))
    group.broken, group.number = True, 9.0
    buffers.keep(group)  # type: ignore[arg-type]
    try:
        buffers.align(group)  # type: ignore[arg-type]
    except RuntimeError:
        buffers.put_back()
    assert content(model) == aligned


def test_another_group_begins_with_what_there_is() -> None:
    model = model_of()
    buffers = Buffers(model)
    buffers.keep(Others())  # type: ignore[arg-type]
    model(torch.randn(4, 2))
    now = content(model)
    buffers.keep(Others())  # type: ignore[arg-type]
    model(torch.randn(4, 2))
    buffers.put_back()
    assert content(model) == now


def test_a_model_without_any_has_none() -> None:
    assert not Buffers(nn.Linear(2, 2))
    assert Buffers(model_of())
