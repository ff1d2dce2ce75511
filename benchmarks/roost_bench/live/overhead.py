"""What ``roost.train`` adds to a training step, against a plain loop around DDP.

Two workers train the same network by turns, a step in a plain loop and a step in ours, in the same
processes and over the same connections: whatever else the machine does, it does to both. Each 100
pairs of steps give one difference; the figure is the median of many, with its confidence interval.
Besides, the time that is spent in the library itself is taken directly, as CPU time, which a busy
machine does not stretch: all of ``next`` and ``step`` but for fetching the batch, the backward pass
with its exchange of gradients, and the optimiser.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from roost_bench.live.command import Figure, Say, Sizes, below
from roost_bench.live.gangs import TrainingGang
from roost_bench.live.resizes import has_torch

#: Steps of a block: in the beginning each has one look at the noise of the gradient.
_BLOCK = 100
_WARM = 1
_MOST_S = 900.0
_BATCH, _SAMPLES = 64, 4096
#: Of a normal distribution: the middle 95 % of it.
_WIDE = 1.96


def overhead(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Percent that a step takes longer than in a plain loop."""
    if not has_torch(say):
        return
    say(f"{sizes.paired} times {_BLOCK} pairs of steps of two workers")
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        command = [sys.executable, "-m", "roost_bench.live.overhead"]
        gang = TrainingGang(Path(name), [*command, str(sizes.paired), str(sizes.width)])
        with gang.running(2):
            gang.done(_MOST_S)
        told = json.loads(gang.printed("0").splitlines()[-1])
    plain, elastic = told["plain_s"], told["elastic_s"]
    usual_s = statistics.median(plain)
    more = [100 * (b - a) / usual_s for a, b in zip(plain, elastic, strict=True)]
    low, high = interval(more)
    yield below("overhead", statistics.median(more), "%", 1)
    yield below("overhead-from", low, "%")
    yield below("overhead-to", high, "%")
    yield below("overhead-own", 100 * statistics.median(told["own_s"]) / usual_s, "%", 1)
    yield below("overhead-own-step", 1e6 * statistics.median(told["own_s"]), "us")
    yield below("overhead-plain-step", 1000 * usual_s, "ms")


def interval(values: list[float]) -> tuple[float, float]:
    """Where their median lies with 95 % confidence, by order statistics: no shape is assumed."""
    ordered, count = sorted(values), len(values)
    reach = _WIDE * math.sqrt(count) / 2
    low, high = int(count / 2 - reach), math.ceil(count / 2 + reach)
    return ordered[max(0, low)], ordered[min(count - 1, high)]


class CpuClock:
    """Adds up the CPU time that calls take in this thread."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def timed(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*args, **named)
            finally:
                self.total_s += time.thread_time() - began

        return timed


def _worker(blocks: int, width: int) -> dict[str, list[float]]:
    """Train by turns in both loops; seconds of a step, one mean for each block."""
    from torch.nn.functional import mse_loss
    from torch.utils.data import TensorDataset

    import torch
    from roost import train
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    rows, answers = torch.randn(_SAMPLES, width), torch.randn(_SAMPLES, width)

    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    (plain_model, plain), (model, optimizer), inner = made(), made(), CpuClock()
    took: dict[str, list[float]] = {"plain_s": [], "elastic_s": [], "own_s": []}
    spent = dict.fromkeys(took, 0.0)
    data, steps = TensorDataset(rows, answers), _BLOCK * (blocks + _WARM)
    with train.elastic(model, optimizer, data, batch_size=_BATCH, steps=steps) as run:
        wrapped = run._crew.group.wrap(plain_model, unused=False)  # noqa: SLF001 - the same group
        share, batches = _BATCH // run.size, iter(run)
        optimizer.step = inner.around(optimizer.step)  # type: ignore[method-assign]
        optimizer.zero_grad = inner.around(optimizer.zero_grad)  # type: ignore[method-assign]
        feeder, gradients = run._feeder, run._gradients  # noqa: SLF001 - as above
        feeder.batch = inner.around(feeder.batch)
        gradients.average = inner.around(gradients.average)
        torch.Tensor.backward = inner.around(torch.Tensor.backward)  # type: ignore[method-assign]
        order = torch.randperm(_SAMPLES)
        while run.step_number < steps:
            inner.total_s, began, asked = 0.0, time.perf_counter(), time.thread_time()
            inputs, wanted = next(batches)
            fetched = time.thread_time()
            loss = mse_loss(run.model(inputs), wanted)
            forward = time.thread_time()
            run.step(loss)
            ended = time.thread_time()
            spent["elastic_s"] += time.perf_counter() - began
            spent["own_s"] += fetched - asked + ended - forward - inner.total_s
            began = time.perf_counter()
            start = run.step_number * _BATCH % (_SAMPLES - _BATCH) + run.rank * share
            mine = order[start : start + share]
            loss = mse_loss(wrapped(rows[mine]), answers[mine])
            loss.backward()  # type: ignore[no-untyped-call]
            plain.step()
            plain.zero_grad(set_to_none=True)
            spent["plain_s"] += time.perf_counter() - began
            if run.step_number % _BLOCK == 0:
                for name, some in took.items():
                    some.append(spent[name] / _BLOCK)
                    spent[name] = 0.0
        next(batches, None)  # all end together
    return {name: some[_WARM:] for name, some in took.items()}


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(_worker(int(sys.argv[1]), int(sys.argv[2])))}\n")
