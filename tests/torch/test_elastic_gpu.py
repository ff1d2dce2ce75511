"""Elastic PyTorch training on a GPU: leaving its memory, sharing it, predicting the peak."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.gang_of_members import Gang
from torch.utils.data import TensorDataset

import torch
from roost import train
from roost.train.pytorch.memory import MIB, Prediction, TooLarge, predict, seen_mib, states
from roost.train.pytorch.offload import Pool
from torch import nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here"),
]
SLOW_S = 90.0


def says(key: str, value: object, line: dict[str, Any]) -> bool:
    return line.get(key) == value


def test_a_gibibyte_leaves_and_comes_back_near_the_speed_of_the_bus() -> None:
    tensors = [torch.randn(1 << 24, device="cuda") for _ in range(16)]  # 1 GiB
    sums = [float(tensor.sum()) for tensor in tensors]
    pool = Pool(pin=True)
    pool.leave(tensors)  # makes the room
    pool.come_back()
    held = torch.cuda.memory_reserved()
    began = time.perf_counter()
    assert pool.leave(tensors) == 1 << 30
    left = time.perf_counter()
    assert torch.cuda.memory_reserved() <= held - (1 << 30)
    returned = time.perf_counter()
    pool.come_back()
    ended = time.perf_counter()
    assert [float(tensor.sum()) for tensor in tensors] == sums
    sys.stdout.write(f"1 GiB: out {left - began:.3f} s, back {ended - returned:.3f} s\n")
    assert left - began < 0.25
    assert ended - returned < 0.25


def test_the_peak_is_predicted_within_a_quarter_in_full_and_in_half_precision() -> None:
    found: dict[bool, Prediction] = {}
    for half in (False, True):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        layers: list[nn.Module] = []
        for _ in range(8):
            layers += [nn.Linear(2048, 2048), nn.GELU()]
        model = nn.Sequential(*layers).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        batch = torch.randn(16384, 2048, device="cuda")
        for step in range(2):
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                if step == 0:
                    known = states(model, optimizer, batch)
                    found[half] = predict(model, known, (batch,))
                out = model(batch)
            out.float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        peak = torch.cuda.max_memory_allocated() - before
        sys.stdout.write(f"half {half}: {found[half].words()}; peak {peak / MIB:.0f} MiB\n")
        assert found[half].certain == pytest.approx(peak, rel=0.25)
        assert (seen_mib(torch.device("cuda")) or 0) > peak / MIB
        del model, optimizer, batch, out
    # A share that holds the training in half precision only is refused to the other one alone.
    limit = (found[False].certain + found[True].certain) // 2 // MIB
    found[True].check(limit)
    with pytest.raises(TooLarge):
        found[False].check(limit)


def test_a_training_in_half_precision_is_not_refused_what_it_fits_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its state takes 0.5 GiB, what its forward pass keeps 2 GiB, in full precision 4 GiB."""
    monkeypatch.setenv("ROOST_GPU_MEMORY_MIB", "4000")
    data = TensorDataset(torch.randn(16384, 2048))
    for half in (True, False):
        layers: list[nn.Module] = []
        for _ in range(16):
            layers += [nn.Linear(2048, 2048), nn.GELU()]
        model = nn.Sequential(*layers).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with train.elastic(model, optimizer, data, batch_size=16384) as run:
            (batch,) = next(iter(run))
            refused = nullcontext() if half else pytest.raises(TooLarge, match="larger share")
            with refused, torch.autocast("cuda", torch.bfloat16, enabled=half):
                run.model(batch)


def test_workers_that_share_a_gpu_come_go_and_leave_its_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "roost.train.example_torch", "--steps", "100000000"]
    command += ["--size", "1024", "--device", "cuda"]
    with Gang(tmp_path / "gang", command) as gang:
        gang.start(1)
        gang.hear_step(5, SLOW_S)
        gang.add()
        gang.hear(partial(says, "ready", "1"), SLOW_S)
        joined = gang.change(["0", "1"])
        assert joined["world"] == 2
        sys.stdout.write(f"grow on one GPU: {joined}\n")
        both = gang.hear_new(lambda line: "sync_s" in line and line["world"] == 2)
        sys.stdout.write(f"{both}\n")
        assert 0.0 < both["sync_s"] < 60.0
        for _ in range(4):
            gang.hear(partial(says, "offloaded", gang.ask("offload")))
        gang.hear_new(lambda line: "step" in line)
        assert gang.lose("1")["world"] == 1
        told = gang.hear_new(lambda line: "step" in line)
        sys.stdout.write(f"{told}\n")
        assert told["memory_mib"] > 0
        assert told["predicted_mib"] > 0
        number = gang.ask("save")
        gang.hear(partial(says, "saved_for", number))
