"""A small real training: ``python -m roost.train.example --seconds 10``.

Its amount of work is fixed: a number of steps, given as such or as the seconds that they take with
the processor to themselves. It saves itself a few times a second, resumes where it was, tells how
far it is, stops when asked, shares the work among WORLD_SIZE workers, and can be made to fail.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from roost import train

if TYPE_CHECKING:
    from roost.train.exchange import Exchange
    from roost.train.learner import Network

_FILE = "example.npz"
_SAVE_EVERY_S = 0.3
_TELL_EVERY_S = 0.2
_PRINT_EVERY_S = 1.0
_CALIBRATE_S = 0.25
_STOPPED = 143
_FAILED = 1
#: What a round of the workers carries besides slopes: loss, a wish to stop, the total.
_EXTRA = 3


class Trouble(Exception):
    """The training cannot go on; says why."""


def main(arguments: list[str] | None = None) -> int:
    """Train; returns the exit status."""
    options = _parser().parse_args(arguments)
    # One thread, so that the time it takes says how much work it is.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    train.should_stop()  # from now on SIGTERM is noticed
    try:
        return _Training(options).run()
    except (Trouble, ConnectionError) as error:
        _say(f"error: {error}", sys.stderr)
        return _FAILED


class _Training:
    """The loop, and what it needs to remember."""

    def __init__(self, options: argparse.Namespace) -> None:
        from roost.train import exchange, learner  # noqa: PLC0415 - numpy, after its settings

        self.options = options
        self.rank, self.size = train.rank(), train.world_size()
        self.share = options.workers or self.size
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        port = int(os.environ.get("MASTER_PORT", "29500"))
        self.others: Exchange = exchange.join((host, port), self.rank, self.size)
        self.lessons = learner.Lessons(options.seed)
        self.network: Network = self._resumed()
        self.batch = learner.BATCH
        self.saved = self.network.step
        self.due = dict.fromkeys(("save", "tell", "print"), time.monotonic())
        self.costs: list[float] = []

    def run(self) -> int:
        """Take all steps; returns the exit status."""
        self._agree()
        net = self.network
        _say(f"worker {self.rank} of {self.size} begins at step {net.step}")
        stopping = False
        while not stopping and not self._over():
            stopping = self._step()
            self._report()
        self._save()
        self.others.close()
        if not self._over():
            _say(f"stopped at step {net.step}")
            return _STOPPED
        train.report(net.step, net.total, net.loss, self.saved)
        _say(f"done: {net.step} steps, loss {net.loss:.6f}")
        return 0

    def _over(self) -> bool:
        return 0 < self.network.total <= self.network.step

    def _resumed(self) -> Network:
        from roost.train import learner  # noqa: PLC0415 - as above

        network = learner.Network.new(self.options.size, self.options.seed)
        path = train.latest_checkpoint(_FILE) if self.rank == 0 else None
        if path is not None:
            try:
                network = learner.Network.load(path, self.options.size)
            except ValueError as error:
                _say(f"starts anew: {error}")
        network.total = self.options.steps or network.total
        return network

    def _agree(self) -> None:
        """Give everybody the network of worker 0."""
        import numpy as np  # noqa: PLC0415 - as above

        net = self.network
        mine = np.concatenate([net.weights, net.speed, [net.loss, net.step, net.total]])
        told = self.others.from_first(mine)
        half = len(net.weights)
        net.weights, net.speed = told[:half].copy(), told[half : 2 * half].copy()
        net.loss, net.step, net.total = float(told[-3]), int(told[-2]), int(told[-1])

    def _step(self) -> bool:
        """One step of all workers; True if one of them was asked to stop."""
        import numpy as np  # noqa: PLC0415 - as above

        net = self.network
        wild = self._fail()
        began, used = time.perf_counter(), time.thread_time()
        rows = self.lessons.batch(net.step, self.rank, self.size)
        with np.errstate(all="ignore"):
            slope, missed = net.slope(*rows)
            computed = time.thread_time() - used
            extra = [missed, float(train.should_stop()), self._planned() if self.rank == 0 else 0.0]
            told = self.others.total(np.concatenate([slope, extra]))
            net.move(told[:-_EXTRA] / self.batch, wild=wild)
        net.loss = float(told[-3]) / self.batch
        net.total = net.total or int(told[-1])
        if not math.isfinite(net.loss):
            train.report(net.step, net.total, net.loss)
            raise Trouble(f"loss is {net.loss} at step {net.step}: the training diverged")
        waited = max(0.0, time.perf_counter() - began - computed) if self.size > 1 else 0.0
        self.costs.append(self._cost(computed, waited))
        return bool(told[-2])

    def _cost(self, computed: float, waited: float) -> float:
        """What a step takes with as many workers as the time is meant for."""
        if self.share == self.size:
            return computed + waited
        return computed * self.size / self.share

    def _planned(self) -> float:
        """The number of steps, once enough of them were timed; 0 until then."""
        if self.network.total or sum(self.costs) < _CALIBRATE_S:
            return float(self.network.total)
        timed = sorted(self.costs[1:] or self.costs)  # the first one warms up
        middle = timed[: max(1, len(timed) * 3 // 4)]  # the slowest were disturbed
        each = sum(middle) / len(middle)
        return float(max(self.network.step + 1, round(self.options.seconds / each)))

    def _report(self) -> None:
        net = self.network
        if self._is_due("tell", _TELL_EVERY_S) and net.total:
            train.report(net.step, net.total, net.loss, self.saved)
        if self._is_due("print", _PRINT_EVERY_S):
            _say(f"step {net.step}/{net.total or '?'} loss {net.loss:.6f}")
        if self._is_due("save", _SAVE_EVERY_S):
            self._save()

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self.due[what] + every_s:
            return False
        self.due[what] = now
        return True

    def _save(self) -> None:
        if self.rank != 0 or train.checkpoint_dir() is None or not self.network.total:
            return
        try:
            train.save(_FILE, self.network.save)
            self.saved = self.network.step
        except OSError as error:
            _say(f"not saved: {error}", sys.stderr)

    def _fail(self) -> bool:
        """Fail as asked, when it is time; True if this step shall be too long."""
        net, kind = self.network, self.options.fail
        if not kind or not net.total or net.step < self.options.at * net.total:
            return False
        if kind == "import":
            importlib.import_module("a_module_that_is_not_installed")
        if kind == "oom":
            _ask_for_too_much()
        if kind.startswith("exit:"):
            self.others.close()
            sys.exit(int(kind.removeprefix("exit:")))
        return True


def _say(line: str, out: TextIO = sys.stdout) -> None:
    with suppress(OSError, ValueError):  # nobody listens, or the disk is full
        out.write(f"{line}\n")
        out.flush()


def _ask_for_too_much() -> Any:
    import numpy as np  # noqa: PLC0415 - as above

    return np.ones((1 << 20, 1 << 20, 1 << 10))


def _failure(text: str) -> str:
    kind, _, code = text.partition(":")
    fine = code.isdigit() and int(code) <= 255 if kind == "exit" else not code  # noqa: PLR2004
    if kind not in ("import", "oom", "diverge", "exit") or not fine:
        raise argparse.ArgumentTypeError("one of import, oom, diverge or exit:CODE")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m roost.train.example", description=__doc__)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--steps", type=_positive, help="how many steps, exactly")
    amount.add_argument(
        "--seconds", type=_seconds, default=10.0, help="or how long they take (default: 10)"
    )
    parser.add_argument("--workers", type=_positive, help="with so many workers (default: all)")
    parser.add_argument("--size", type=_positive, default=64, help="width of the network")
    parser.add_argument("--seed", type=int, default=1, help="which function is learned")
    parser.add_argument("--fail", type=_failure, help="import, oom, diverge or exit:CODE")
    parser.add_argument("--at", type=float, default=0.5, help="after which part of the work")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number <= 10**9:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 86400 * 365:
        raise argparse.ArgumentTypeError("seconds above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
