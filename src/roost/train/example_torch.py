"""A small real training with PyTorch: ``python -m roost.train.example_torch --seconds 10``.

A network learns to tell made-up pictures apart. The amount of work is fixed: a number of steps,
given as such or as the seconds that they take with the processor to themselves. Workers may come
and go, be suspended, killed and restarted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from roost import train

if TYPE_CHECKING:
    import torch

_PRINT_EVERY_S = 1.0
_CALIBRATE_STEPS = 5
_SIDE = 16
_CLASSES = 10


def main(arguments: list[str] | None = None) -> int:
    """Train; returns the exit status."""
    options = parser().parse_args(arguments)
    # One thread, so that the time it takes says how much work it is.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        return _train(options)
    except train.Misuse as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _train(options: argparse.Namespace) -> int:
    from torch.nn.functional import cross_entropy  # noqa: PLC0415 - as above

    import torch  # noqa: PLC0415 - after its settings

    if options.deterministic:
        torch.use_deterministic_algorithms(mode=True)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model, data = network(options), samples(options)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    steps = options.steps or _steps(options, model, data, device)
    made = train.elastic(
        model,
        optimizer,
        data,
        batch_size=options.batch,
        steps=steps,
        seed=options.seed,
        device=device,
        save_every_s=options.save_every,
    )
    # A line at a time: what was written counts even if the worker is killed.
    times = options.times and open(options.times, "a", buffering=1)  # noqa: PTH123, SIM115 - to the end
    with made as run:
        _say(f"worker {run.rank} of {run.size} begins at step {run.step_number}")
        printed, loss = time.monotonic(), None
        for pictures, kinds in run:
            loss = cross_entropy(run.model(pictures), kinds)
            run.step(loss)
            if times:
                times.write(f"{run.step_number} {run.size} {time.monotonic()}\n")
            if time.monotonic() - printed >= _PRINT_EVERY_S:
                printed = time.monotonic()
                _say(f"step {run.step_number}/{run.steps} loss {float(loss.detach()):.6f}")
        # All workers hold the same model, and there is one file.
        if run.rank == 0:
            _keep(options, model)
        last = "" if loss is None else f", loss {float(loss.detach()):.6f}"
        _say(f"done: {run.step_number} steps{last}")
    return 0


def network(options: argparse.Namespace) -> torch.nn.Module:
    """A network that knows nothing yet."""
    from torch import manual_seed, nn  # noqa: PLC0415 - as above

    # The same start on every worker and after every restart; a checkpoint replaces it.
    manual_seed(options.seed)
    size = options.size
    if options.model == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, size // 4 + 1, 3, padding=1),
            nn.BatchNorm2d(size // 4 + 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear((size // 4 + 1) * (_SIDE // 2) ** 2, _CLASSES),
        )
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(_SIDE * _SIDE, size), nn.ReLU()]
    for _ in range(options.depth):
        layers += [nn.Linear(size, size), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(size, _CLASSES))


def samples(options: argparse.Namespace) -> Any:
    """Noise, around a picture of each kind."""
    from torch.utils.data import TensorDataset  # noqa: PLC0415 - as above

    import torch  # noqa: PLC0415 - as above

    chance = torch.Generator().manual_seed(options.seed + 1)
    kinds = torch.randint(_CLASSES, (options.samples,), generator=chance)
    typical = torch.randn(_CLASSES, 1, _SIDE, _SIDE, generator=chance)
    noise = torch.randn(options.samples, 1, _SIDE, _SIDE, generator=chance)
    return TensorDataset(typical[kinds] + 2.0 * noise, kinds)


def _steps(
    options: argparse.Namespace, model: torch.nn.Module, data: Any, device: torch.device
) -> int:
    """How many steps take as long as asked, with the workers that there are."""
    from torch.nn.functional import cross_entropy  # noqa: PLC0415 - as above

    rows = max(1, options.batch // (options.workers or train.world_size()))
    pictures, kinds = (tensor[:rows].to(device) for tensor in data.tensors)
    costs = []
    for _ in range(_CALIBRATE_STEPS):
        began = time.perf_counter()
        loss = cross_entropy(model(pictures), kinds)
        loss.backward()  # type: ignore[no-untyped-call]
        loss.item()
        costs.append(time.perf_counter() - began)
    model.zero_grad(set_to_none=True)
    # The fastest step: a slower one shared the processor with something else.
    return max(1, round(float(options.seconds) / min(costs)))


def _keep(options: argparse.Namespace, model: torch.nn.Module) -> None:
    """Write what was learned where it was asked for."""
    import torch  # noqa: PLC0415 - as above

    if options.out:
        train.save(options.out, lambda file: torch.save(model.state_dict(), file))


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # no reader, or the disk is full
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    name = "python -m roost.train.example_torch"
    found = argparse.ArgumentParser(prog=name, description=__doc__)
    amount = found.add_mutually_exclusive_group()
    amount.add_argument("--steps", type=_positive, help="how many steps, exactly")
    amount.add_argument("--seconds", type=float, default=10.0, help="or how long (default: 10)")
    found.add_argument("--workers", type=_positive, help="with so many workers (default: all)")
    found.add_argument("--model", choices=("mlp", "cnn"), default="mlp", help="of which kind")
    found.add_argument("--size", type=_positive, default=64, help="width of the network")
    found.add_argument("--depth", type=_positive, default=1, help="its inner layers (mlp)")
    found.add_argument("--batch", type=_positive, default=256, help="samples of a step, of all")
    found.add_argument("--samples", type=_positive, default=4096, help="samples in all")
    found.add_argument("--save-every", type=float, help="seconds (default: by their cost)")
    found.add_argument("--rate", type=float, default=0.01, help="how fast it learns")
    found.add_argument("--seed", type=int, default=1, help="which pictures")
    found.add_argument("--device", help="where (default: a GPU if there is one)")
    found.add_argument("--deterministic", action="store_true", help="the same bits each time")
    found.add_argument("--times", help="append when each step ended to this file")
    found.add_argument("--out", help="write what was learned into this file")
    return found


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number <= 10**9:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
