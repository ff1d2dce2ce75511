"""One worker with PyTorch, in this process: results, restarts, misuse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, TensorDataset

import torch
from roost import train
from roost.train.members import CurrentRank, Misuse
from roost.train.pytorch.loop import Elastic, _Done
from roost.train.pytorch.memory import MIB, Prediction, TooLarge
from torch import nn


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("MEMBERS", "MEMBER", "PROGRESS", "CHECKPOINT_DIR", "GPU_MEMORY_MIB"):
        monkeypatch.delenv(f"ROOST_{name}", raising=False)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with torch.random.fork_rng():
        yield
    CurrentRank.now = None


def model_of(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1)
    )


def data() -> TensorDataset:
    chance = torch.Generator().manual_seed(4)
    rows = torch.randn(45, 6, generator=chance)
    return TensorDataset(rows, rows.sum(dim=1, keepdim=True))


def made(model: nn.Module, done: int = 0, **options: Any) -> Elastic:
    """As in a process of its own, in which so many trainings are over."""
    _Done.loops = done
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    given = {"batch_size": 10, "epochs": 3, "scheduler": scheduler} | options
    return train.elastic(model, optimizer, data(), **given)  # type: ignore[no-any-return]


def trained(model: nn.Module, until: int | None = None, **options: Any) -> Elastic:
    with made(model, **options) as run:
        for inputs, answers in run:
            run.step((run.model(inputs) - answers).square().mean())
            if run.step_number == until:
                break
    return run


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_all_epochs_with_their_short_last_batches_are_trained_on() -> None:
    run = made(model_of())
    seen = []
    with run:
        for inputs, answers in run:
            seen.append(len(inputs))
            run.step((run.model(inputs) - answers).square().mean())
    assert seen == 3 * [10, 10, 10, 10, 5]
    assert (run.step_number, run.steps, run.epoch, run.rank, run.size) == (15, 15, 3, 0, 1)


def test_stopped_anywhere_and_started_again_it_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = model_of()
    trained(undisturbed)
    for until in (1, 4, 5, 11, 14):
        folder = tmp_path / str(until)
        monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(folder))
        with made(model_of()) as run:
            for inputs, answers in run:
                run.step((run.model(inputs) - answers).square().mean())
                if run.step_number == until:
                    run._crew.checkpoints.finish()
                elif run.step_number == until + 2:  # lost again
                    break
        again = model_of(seed=99)
        torch.rand(17)
        assert trained(again).step_number == 15
        assert same(again, undisturbed), until


def test_a_training_that_is_over_stays_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    first, second = model_of(), model_of(seed=5)
    trained(first)
    with made(second) as run:
        assert list(run) == []
    assert same(first, second)
    assert len(list(tmp_path.iterdir())) <= 2


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(
    damage: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    undisturbed = model_of()
    with made(undisturbed) as run:
        for inputs, answers in run:
            run.step((run.model(inputs) - answers).square().mean())
            if run.step_number == 7:
                run._crew.checkpoints.finish()
    newest = tmp_path / "elastic-000000000015.pt"
    newest.write_bytes(newest.read_bytes()[:-200] if damage is None else damage)
    again = model_of(seed=3)
    with made(again) as run:
        assert run.step_number == 7
        for inputs, answers in run:
            run.step((run.model(inputs) - answers).square().mean())
    assert same(again, undisturbed)
    assert "elastic-000000000015.pt is passed over" in capsys.readouterr().err


def test_a_checkpoint_of_another_model_is_passed_over_and_nothing_of_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    trained(nn.Sequential(nn.Linear(6, 1), nn.Linear(1, 1)))
    mine, untouched = nn.Sequential(nn.Linear(6, 1), nn.Linear(1, 1), nn.Linear(1, 1)), None
    untouched = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    with made(mine) as run:
        assert run.step_number == 0
    assert all(torch.equal(untouched[name], mine.state_dict()[name]) for name in untouched)
    assert "another model" in capsys.readouterr().err


def test_a_second_training_of_the_script_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    for until in (2, None):  # the script is killed within its second training, and starts again
        model = model_of()
        first = trained(model, done=0)
        assert (first.step_number, _Done.loops) == (15, 1)
        with made(model, done=1, batch_size=9, epochs=2) as second:
            assert second.step_number == (0 if until else 2)
            for inputs, answers in second:
                second.step((second.model(inputs) - answers).square().mean())
                if second.step_number == until:
                    second._crew.checkpoints.finish()
                    break
    assert second.step_number == 10
    assert {path.name.count("-") for path in tmp_path.iterdir()} == {1, 2}


def test_checkpoints_of_another_training_do_not_push_out_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    for step in (500, 900):
        (tmp_path / f"elastic-{step:012}.pt").write_bytes(b"of something else")
    trained(model_of())
    with made(model_of(seed=5)) as run:
        assert list(run) == []


def test_drafts_that_killed_workers_left_behind_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    drafts = [tmp_path / f".elastic-{step:012}.pt.{step}.tmp" for step in (3, 4)]
    for draft in drafts:
        draft.touch()
    os.utime(drafts[0], (1.0, 1.0))
    trained(model_of())
    assert not drafts[0].exists()
    assert drafts[1].exists()  # somebody may be writing it


def test_steps_end_it_and_a_resumed_one_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path))
    assert trained(model_of(), epochs=None, steps=12, until=3).step_number == 3
    run = trained(model_of(), epochs=None, steps=12)
    assert (run.step_number, run.epoch, run.steps) == (12, 2, 12)


def test_backward_apart_lets_gradients_be_clipped() -> None:
    with made(model_of(), steps=3) as run:
        for inputs, answers in run:
            run.backward((run.model(inputs) - answers).square().sum() * 1e6)
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
            assert run.step()
    assert run.step_number == 3


def loss_of(run: Elastic, batch: Any) -> torch.Tensor:
    found: torch.Tensor = (run.model(batch[0]) - batch[1]).square().mean()
    return found


def test_misuse_is_answered_with_what_to_do() -> None:
    with pytest.raises(Misuse, match="use it as `with"):
        iter(made(model_of()))
    with made(model_of()) as run:
        with pytest.raises(Misuse, match="no loop runs"):
            run.step(torch.ones((), requires_grad=True))
        batch = next(batches := iter(run))
        with pytest.raises(Misuse, match="cannot be two"):
            iter(run)
        with pytest.raises(Misuse, match=r"needs run\.backward"):
            run.step()
        with pytest.raises(Misuse, match="a tensor of one number"):
            run.step(run.model(batch[0]))
        with pytest.raises(Misuse, match="under no_grad"):
            run.step(torch.ones(()))
        run.step(loss_of(run, batch))
        with pytest.raises(Misuse, match="one step per batch"):
            run.step(torch.ones((), requires_grad=True))
        next(batches)
        with pytest.raises(Misuse, match=r"every batch needs run\.step"):
            next(batches)
    with pytest.raises(Misuse, match="entered once"):
        run.__enter__()


def test_the_model_itself_may_not_be_called() -> None:
    model = model_of()
    with made(model) as run:
        inputs, answers = next(iter(run))
        with pytest.raises(Misuse, match=r"run\.model"):
            run.step((model(inputs) - answers).square().mean())


def test_what_cannot_be_trained_is_refused() -> None:
    frozen = model_of().requires_grad_(requires_grad=False)
    with pytest.raises(Misuse, match="no parameters"):
        Elastic(frozen, torch.optim.SGD(model_of().parameters()), data(), batch_size=1)
    with pytest.raises(Misuse, match="no parameter of this model"):
        Elastic(model_of(), torch.optim.SGD(model_of().parameters()), data(), batch_size=1)
    with pytest.raises(Misuse, match="batch_size"):
        made(model_of(), batch_size=0)


def test_more_workers_than_samples_in_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(Misuse, match="a batch_size of 2 samples cannot be shared by 3 workers"):
        made(model_of(), batch_size=2).__enter__()


def test_a_share_that_is_too_small_is_refused_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROOST_GPU_MEMORY_MIB", "1")
    model = nn.Sequential(nn.Linear(6, 40_000), nn.Linear(40_000, 1))
    with made(model) as run, pytest.raises(TooLarge, match="Ask for a larger share"):
        next(iter(run))


def test_what_is_foretold_is_said_before_the_first_step_and_warned_of_where_it_may_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, Any]] = []
    foretold = Prediction(0, 0, 0, 0, 0, 900 * MIB, 0, 200 * MIB)
    monkeypatch.setattr(train, "report", lambda *_, **more: told.append(more))
    monkeypatch.setattr("roost.train.pytorch.memory.predict", lambda *_, **__: foretold)
    for limit, warned in (("1000", True), ("1100", False)):
        monkeypatch.setenv("ROOST_GPU_MEMORY_MIB", limit)
        with made(model_of()) as run:
            inputs, *_ = next(iter(run))
            run.model(inputs)
        assert told[0] == {"predicted_mib": 1100}
        told.clear()
        assert ("expected to reach 1100 MiB of GPU memory" in capsys.readouterr().err) is warned


def test_the_peak_is_predicted_as_the_script_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at the first call that computes gradients, in the precision of that call."""
    halves: list[bool] = []
    seen: list[tuple[Any, ...]] = []

    def predict(*given: Any, **_: Any) -> Prediction:
        halves.append(torch.is_autocast_enabled("cpu"))
        seen.append(given[2])
        return Prediction(0, 0, 0, 0, 0, 0, 0, 0)

    monkeypatch.setattr("roost.train.pytorch.memory.predict", predict)
    with made(model_of()) as run:
        inputs, *_ = next(iter(run))
        with torch.no_grad():
            run.model(inputs)  # a look at the loss before the first step
        for half in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                run.model(inputs)
    assert halves == [True]
    assert seen[0][0] is inputs


def test_a_loader_is_not_a_dataset() -> None:
    model = model_of()
    data: Any = DataLoader(TensorDataset(torch.zeros(4, 6)))
    with pytest.raises(Misuse, match="the dataset itself, not a DataLoader"):
        train.elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), data, batch_size=2)
