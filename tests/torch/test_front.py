"""What the script calls as its model, when a worker is lost in the middle of a forward pass."""

from __future__ import annotations

from typing import Any

import pytest

import torch
from roost.train.pytorch.member import ModelFront
from torch import nn


class Broken(nn.Module):
    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def forward(self, *_: Any) -> Any:
        raise RuntimeError(self.words)


def test_a_worker_lost_in_a_forward_pass_does_not_end_the_script() -> None:
    raw = nn.Linear(2, 1)
    front = ModelFront(raw)
    front.behind = Broken("[gloo/transport/tcp/pair.cc:537] Connection reset by peer")
    rows = torch.ones(3, 2)
    assert torch.equal(front(rows), raw(rows))
    assert torch.equal(front(rows), raw(rows))
    assert "reset by peer" in str(front.failed)


def test_other_errors_are_the_scripts_own() -> None:
    front = ModelFront(nn.Linear(2, 1))
    front.behind = Broken("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="shapes"):
        front(torch.ones(3, 2))
    assert front.failed is None
