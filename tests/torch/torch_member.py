"""A training script for the tests of elastic PyTorch: notes which samples each step used.

python torch_member.py FOLDER [--steps N] [--pause SECONDS] [--width N] [--deterministic] [--twice]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from torch.utils.data import TensorDataset

import torch
from roost import train
from torch import nn

SAMPLES, BATCH = 97, 12


def network(width: int = 5, seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    inner = [nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*inner, nn.Linear(width, 1)).double()


def data() -> TensorDataset:
    chance = torch.Generator().manual_seed(2)
    rows = torch.randn(SAMPLES, 4, generator=chance, dtype=torch.float64)
    return TensorDataset(rows, rows.prod(dim=1, keepdim=True), torch.arange(SAMPLES))


def work(model: nn.Module, steps: int, notes: Path | None = None, pause_s: float = 0.0) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50)
    chosen = {"batch_size": BATCH, "steps": steps, "seed": 3, "scheduler": scheduler}
    with train.elastic(model, optimizer, data(), **chosen) as run:
        for inputs, answers, numbers in run:
            if notes:  # before the step: whoever is killed after it has noted what it used
                with notes.open("a") as file:
                    line = {"epoch": run.epoch, "step": run.step_number, "size": run.size}
                    line |= {"samples": numbers.tolist()[: run.counted]}
                    file.write(json.dumps(line) + "\n")
            run.step((run.model(inputs) - answers).square().mean())
            time.sleep(pause_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--twice", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.deterministic:
        torch.use_deterministic_algorithms(mode=True)
    me = os.environ.get("ROOST_MEMBER", os.environ.get("RANK", "0"))
    width = int(os.environ.get("WIDTH", "5")) + int(os.environ.get(f"WIDER_{me}", "0"))
    # What joins, or is not the first, begins with other weights: they must not matter.
    model = network(width, seed=1 if os.environ.get("RANK", "0") == "0" else 77)
    work(model, options.steps, options.folder / f"notes-{me}.jsonl", options.pause)
    torch.save(model.state_dict(), options.folder / f"learned-{me}.pt")
    if options.twice:
        work(model, 10**9, options.folder / f"second-{me}.jsonl", options.pause)


if __name__ == "__main__":
    main()
