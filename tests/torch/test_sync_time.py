"""How long a step waits for the gradients of others: looked at now and then, and cheaply."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import torch
from roost.train.pytorch.sync_time import SyncTime
from torch import nn

CPU = torch.device("cpu")
WAIT_S = 0.01


def model_of() -> nn.Module:
    """Its first layer is the last to be used: the order of parameters is not that of gradients."""

    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(4, 1), nn.Linear(4, 4)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.first(rows))
            return found

    return Crossed()


def step(model: nn.Module, waiting: SyncTime, others: Callable[[], None] | None = None) -> None:
    model(torch.ones(2, 4)).sum().backward()
    if others:
        others()
    waiting.ended()


def wait() -> None:
    time.sleep(WAIT_S)


def test_only_steps_that_are_looked_at_are_timed() -> None:
    model = model_of()
    waiting = SyncTime(list(model.parameters()), CPU)
    step(model, waiting, wait)
    assert waiting.seconds is None
    waiting.look()
    step(model, waiting, wait)
    first = waiting.seconds
    assert first is not None
    assert WAIT_S <= first < 100 * WAIT_S
    step(model, waiting)
    assert waiting.seconds == first
    assert not any(one._post_accumulate_grad_hooks for one in model.parameters())


def test_the_gradient_that_comes_last_is_found_and_watched_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of()
    marks: list[float] = []
    waiting = SyncTime(list(model.parameters()), CPU)

    def mark() -> float:
        marks.append(time.perf_counter())
        return marks[-1]

    monkeypatch.setattr(waiting, "_mark", mark)
    for expected in (len(list(model.parameters())) + 1, 2, 2):
        marks.clear()
        waiting.look()
        waiting.look()
        step(model, waiting)
        assert len(marks) == expected
    assert any(waiting._last is one for one in model.get_submodule("first").parameters())


def test_what_has_no_gradient_this_time_is_looked_for_anew() -> None:
    model = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
    waiting = SyncTime(list(model.parameters()), CPU)
    for layer in (0, 1, 1):
        waiting.look()
        model[layer](torch.ones(2, 4)).sum().backward()
        waiting.ended()
    assert len(waiting._seen) + (waiting._pending is not None) == 2
    assert any(waiting._last is one for one in model[1].parameters())


def test_gradients_that_are_averaged_afterwards_are_timed_from_there() -> None:
    model = model_of()
    waiting = SyncTime(list(model.parameters()), CPU)
    waiting.computed()
    waiting.look()
    model(torch.ones(2, 4)).sum().backward()
    time.sleep(5 * WAIT_S)
    waiting.computed()
    wait()
    waiting.ended()
    assert waiting.seconds is not None
    assert waiting.seconds < 5 * WAIT_S


def test_odd_steps_and_other_members_do_not_count() -> None:
    model = model_of()
    waiting = SyncTime(list(model.parameters()), CPU)
    waiting.look()
    waiting.skip()
    step(model, waiting, wait)
    assert waiting.seconds is None
    for others in (None, None, wait):
        waiting.look()
        step(model, waiting, others)
    assert waiting.seconds is not None
    assert waiting.seconds < WAIT_S, "one that was disturbed says nothing"
    waiting.look()
    waiting.forget()
    step(model, waiting)
    assert waiting.seconds is None
