"""Resizing a running job of two workers that train with PyTorch: how long it stops, what it learns.

``resize`` grows it to three and back while it runs, and lets ``torchrun`` grow a plain training by
its own means (``torchrun``), in the same run. A pause is the time from the end of the last
step before to the end of the first one after, less a usual step. ``same`` lets two trainings take
the same steps, one of them resized on the way, and compares what they have learned.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from roost.errors import Fatal
from roost_bench.live import torchrun
from roost_bench.live.command import Figure, Say, Sizes, above, below
from roost_bench.live.gangs import TrainingGang, gap, last, read, wait_until

_EXAMPLE = (sys.executable, "-m", "roost.train.example_torch")
_SIZE, _DEPTH, _BATCH = 256, 2, 192
_TRAINING = ("--size", str(_SIZE), "--depth", str(_DEPTH), "--batch", str(_BATCH))
#: Steps that last long enough for two resizes to happen among a few hundred.
_LESSON = ("--size", str(_SIZE), "--depth", str(_DEPTH), "--batch", "768")
_ENDLESS = ("--steps", "1000000")
_SETTLE_S = 1.5

#: Prints the loss over all samples and the weights' largest difference, both in parts of a million.
_COMPARE = """\
import json, sys, torch
from roost.train import example_torch as example
kept = [torch.load(path, weights_only=True) for path in sys.argv[1:3]]
options = example.parser().parse_args(sys.argv[3:])
pictures, kinds = example.samples(options).tensors
losses = []
for state in kept:
    network = example.network(options)
    network.load_state_dict(state)
    found = torch.nn.functional.cross_entropy(network.double()(pictures.double()), kinds)
    losses.append(float(found.detach()))
apart = max(float((kept[0][name] - kept[1][name]).abs().max()) for name in kept[0])
largest = max(float(weights.abs().max()) for weights in kept[0].values())
told = {"loss": abs(losses[0] / losses[1] - 1), "weights": apart / largest}
print(json.dumps({name: 1e6 * value for name, value in told.items()}))
"""


def has_torch(say: Say) -> bool:
    """Whether PyTorch is there; says so if it is not."""
    if find_spec("torch") is None:
        say("skipped: PyTorch is not installed")
        return False
    return True


def resize(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """The pause of a resize 2 → 3 → 2, and that of a restart by torchrun."""
    if not has_torch(say):
        return
    say(f"{sizes.resizes} times 2 → 3 → 2 while it trains")
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        pauses = _pauses(Path(name), sizes.resizes)
    say("torchrun, the same by a restart")
    restart_s = torchrun.pause(_SIZE, _DEPTH, _BATCH)
    worst_s = max(max(grown, shrunk) for grown, shrunk in pauses)
    yield above("resize", restart_s / max(worst_s, 1e-4), "times shorter", 5)
    yield below("resize-grow", 1000 * max(grown for grown, _ in pauses), "ms")
    yield below("resize-shrink", 1000 * max(shrunk for _, shrunk in pauses), "ms")
    yield below("resize-torchrun", 1000 * restart_s, "ms")


def _pauses(folder: Path, count: int) -> list[tuple[float, float]]:
    """Seconds that each growth and each shrinking takes out of a training."""
    times, found = folder / "times", []
    gang = TrainingGang(folder, [*_EXAMPLE, *_TRAINING, *_ENDLESS, "--times", str(times)])
    with gang.running(2):
        wait_until(lambda: len(read(times)) > 100, "the training begins")  # noqa: PLR2004
        for number in range(count):
            newcomer = str(2 + number)
            gang.start(newcomer, 2, 3)
            wait_until(partial(_ready, gang, newcomer), "one more worker is ready")
            times.write_text("")  # of this resize alone; all append
            time.sleep(_SETTLE_S)
            gang.publish(["0", "1", newcomer])
            wait_until(lambda: last(times, 3), "three train")
            time.sleep(_SETTLE_S)
            gang.publish(["0", "1"])
            time.sleep(_SETTLE_S)
            wait_until(lambda: last(times, 2), "two train again")
            found.append((gap(read(times), 2, 3), gap(read(times), 3, 2)))
    return found


def _ready(gang: TrainingGang, name: str) -> bool:
    return f'"ready": "{name}"' in gang.said()


def same(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """How far what a resized training learns is from what one left alone does."""
    if not has_torch(say):
        return
    steps = ("--steps", str(sizes.lessons))
    say(f"{sizes.lessons} steps of two workers, then the same with 2 → 3 → 2 on the way")
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        kept = [Path(name) / "alone" / "out", Path(name) / "resized" / "out"]
        for out in kept:
            out.parent.mkdir()
            training = [*_LESSON, *steps, "--out", str(out)]
            gang = TrainingGang(
                out.parent, [*_EXAMPLE, *training, "--times", str(out.parent / "times")]
            )
            with gang.running(2):
                if out.parent.name == "resized":
                    _resize(gang, sizes.lessons)
                gang.done()
        command = [sys.executable, "-c", _COMPARE, *map(str, kept), *_LESSON]
        told = json.loads(subprocess.check_output(command))  # noqa: S603 - our own
    yield below("resize-loss", told["loss"], "ppm", 10)
    yield below("resize-loss-weights", told["weights"], "ppm")


def _resize(gang: TrainingGang, steps: int) -> None:
    """Three workers for the middle part of a training; it stands still until the third is there."""
    times = gang.folder / "times"
    first = list(gang.workers.values())
    wait_until(lambda: len(read(times)) > steps // 4, "the training begins")
    for worker in first:
        worker.send_signal(signal.SIGSTOP)
    gang.start("2", 2, 3)
    wait_until(partial(_ready, gang, "2"), "the third worker is ready")
    for worker in first:
        worker.send_signal(signal.SIGCONT)
    gang.publish(["0", "1", "2"])
    wait_until(lambda: last(times, 3), "three train")
    gang.publish(["0", "1"])
    wait_until(lambda: last(times, 2) or gang.workers["0"].poll() is not None, "two train again")
    if not last(times, 2):
        raise Fatal(f"all {steps} steps were taken before two trained again")
