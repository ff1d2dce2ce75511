from __future__ import annotations

from contextlib import ExitStack

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import torch
from roost import train
from roost.train.pytorch.replay.losses import stand_in
from roost.train.pytorch.replay.steps import Call, replay
from torch import Tensor, nn

MIB = 1 << 20


def wide(width: int = 1024, layers: int = 4) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


def test_two_steps_hold_parameters_gradients_and_states() -> None:
    model = wide()

    found = replay(
        model, torch.optim.AdamW(model.parameters()), Call((torch.zeros(8, 1024),), batch=None)
    )

    parameters = 4 * 4 * MIB
    workspaces, temporaries = 2 * 32 * MIB, parameters  # the optimiser takes all tensors at once
    expected = 4 * parameters + workspaces + temporaries
    assert found.allocated == pytest.approx(expected, rel=0.01)
    assert found.reserved >= found.allocated
    assert found.kept == pytest.approx(3 * parameters + 2 * 32 * MIB, rel=0.01)


def test_mixed_precision_counts_whatever_machine_it_is_foretold_on() -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    call = Call((torch.zeros(65536, 1024),), batch=None)

    whole = replay(model, optimizer, call)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = replay(model, optimizer, call)

    assert whole.kept - half.kept == pytest.approx((4 - 1) * 128 * MIB, rel=0.1)


def test_a_layer_that_is_computed_again_keeps_nothing() -> None:
    class Again(nn.Module):
        def __init__(self, *, again: bool) -> None:
            super().__init__()
            self.layers, self.again = nn.ModuleList([wide(256, 8), wide(256, 8)]), again

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
            return x

    kept = []
    for again in (False, True):
        model = Again(again=again)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kept.append(replay(model, optimizer, Call((torch.zeros(8192, 256),))).kept)

    assert kept[0] - kept[1] > 12 * 4 * MIB


def test_the_model_and_its_optimiser_are_left_as_they_were() -> None:
    model = nn.LSTM(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    before = [parameter.clone() for parameter in model.parameters()]
    objects = list(map(id, model.parameters()))

    replay(model, optimizer, Call((torch.zeros(3, 2, 8),)))

    assert list(map(id, model.parameters())) == objects
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not optimizer.state
    assert [one.grad for one in model.parameters()] == [None] * len(before)
    assert model(torch.zeros(3, 2, 8))[0].shape == (3, 2, 8)


def test_what_needs_real_numbers_says_so() -> None:
    class Curious(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x)
            return out * 2 if out.sum().item() > 0 else out

    model = Curious()
    with pytest.raises(Exception, match=r"local_scalar_dense"):
        replay(model, torch.optim.SGD(model.parameters(), 0.1), Call((torch.zeros(2, 4),)))


@pytest.mark.parametrize(
    ("shape", "target"),
    [((4, 10), (4,)), ((2, 8, 10), (2, 8)), ((2, 21, 4, 4), (2, 4, 4)), ((3, 5), (9,))],
)
def test_a_loss_that_stands_in_fits_the_output(shape: tuple[int, ...], target: tuple[int]) -> None:
    output = torch.zeros(shape, requires_grad=True)

    loss = stand_in(output, [torch.zeros(target, dtype=torch.long)])

    assert loss.shape == ()
    assert loss.requires_grad
    with ExitStack() as entered:
        entered.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        assert stand_in(output, []).shape == ()


def test_a_loop_of_its_own_is_foretold_with_its_loss_and_its_autocast() -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out: Tensor = model(batch)
        return out.float().square().mean()

    found = train.predict(model, optimizer, torch.zeros(4096, 1024), loss)

    assert found.kept < found.allocated <= found.reserved
    assert found.mib > found.reserved // MIB
    assert not torch.is_autocast_enabled("cuda")


def test_convolutions_take_room_to_work_in() -> None:
    model = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    call = Call((torch.zeros(8, 64, 64, 64, requires_grad=True),))

    found = replay(model, torch.optim.SGD(model.parameters(), 0.1), call)

    pictures = 8 * 64 * 64 * 64 * 4
    assert found.allocated > 4.9 * pictures
