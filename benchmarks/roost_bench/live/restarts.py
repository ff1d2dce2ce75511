"""A PyTorch training that is interrupted again and again, and one that is left alone.

torch is imported once; each life of the training is a fork of that process, so that fifty lives
take seconds. An interruption is a worker killed, all of them asked to stop, or all of them frozen
for a moment. Both trainings must learn the same, to the bit, and each life must begin where the
last checkpoint ends. ``python -m roost_bench.live.restarts FOLDER MOMENTS SEED WORKERS`` prints
what was found as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roost_bench.live.command import Figure, Say, Sizes, above, below
from roost_bench.live.gangs import environ_of
from roost_bench.live.resizes import has_torch

#: A few steps for each interruption, and enough after the last.
_STEPS_EACH = 12
_OPTIONS = ("--deterministic", "--save-every", "0", "--size", "16", "--batch", "24")
_KINDS = ("kill", "kill", "stop", "freeze")
_POLL_S = 0.002
_FROZEN_S = 0.005
#: How long after a step it happens, at most: anywhere within the next few.
_WITHIN_S = 0.01
_PATIENCE_S = 60.0
#: What torch imports at the first meeting of workers, for a second or two.
_LATER = ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.algorithms")


def moments(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Whether an interrupted training learns the same, and repeats no step that was saved."""
    if not has_torch(say):
        return
    say(f"two workers killed, stopped or frozen at {sizes.moments} random moments")
    found = restarts(sizes.moments)
    same = found["moments"] if found["same"] else 0
    yield above("restarts", same, "moments, same bits", sizes.moments)
    yield below("restarts-beyond", found["beyond"], "saved steps repeated", 1)
    yield below("restarts-repeated", found["repeated"] / found["steps"], "of all steps")


def restarts(moments: int = 50, seed: int = 1, workers: int = 2) -> dict[str, float]:
    """Interrupt a training at so many random moments; what it learns, and what it repeats.

    ``same`` is 1 if the weights and the optimiser are those of an undisturbed training, bit by bit.
    ``repeated`` steps were taken more than once, ``beyond`` of them although a checkpoint had them.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = (folder, str(moments), str(seed), str(workers))
        done = subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-m", "roost_bench.live.restarts", *chosen],
            env=environ_of(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the interrupted training failed: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class _Lives:
    """One training, however often it has to begin again."""

    def __init__(self, folder: Path, steps: int, workers: int) -> None:
        self.folder, self.steps, self.workers = folder, steps, workers
        self.lives = self.repeated = self.beyond = 0
        self._reached = self._saved = 0
        folder.mkdir(parents=True)

    @property
    def taken(self) -> int:
        """The last step of this life, of its first worker; 0 before the first."""
        return self._steps_of_life()[1]

    def begin(self) -> list[int]:
        """Fork the workers of a life; their process ids."""
        self.lives += 1
        port = _free_port()
        return [self._fork(rank, port) for rank in range(self.workers)]

    def end(self, pids: Sequence[int]) -> list[int]:
        """Wait for the end of a life, and add up what it repeated; the exit statuses."""
        statuses = [_status(pid) for pid in pids]
        first, last = self._steps_of_life()
        if first:
            self.repeated += max(0, self._reached - first + 1)
            self.beyond += max(0, self._saved - first + 1)
            self._reached = max(self._reached, last)
        self._saved = max(self._saved, *self._checkpoints(), 0)
        return statuses

    def learned(self) -> dict[str, Any]:
        """What its last checkpoint holds, and what the script itself wrote at the end."""
        torch = importlib.import_module("torch")
        content: dict[str, Any] = torch.load(self._path(max(self._checkpoints())))
        kept = {name: content[name] for name in ("model", "optimizer", "sampler", "step")}
        return kept | {"out": torch.load(self.folder / "out.pt")}

    def _fork(self, rank: int, port: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            place = {"RANK": rank, "WORLD_SIZE": self.workers, "MASTER_PORT": port}
            os.environ |= {name: str(value) for name, value in place.items()}
            os.environ["ROOST_CHECKPOINT_DIR"] = str(self.folder)
            from roost.train import example_torch  # after torch's settings

            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            times = ("--times", str(self._times())) if rank == 0 else ()
            goal = ("--steps", str(self.steps), "--out", str(self.folder / "out.pt"))
            status = example_torch.main([*_OPTIONS, *goal, *times])
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        finally:
            os._exit(status)

    def _times(self) -> Path:
        return self.folder / f"times-{self.lives}"

    def _steps_of_life(self) -> tuple[int, int]:
        try:
            lines = self._times().read_text().split("\n")[:-1]
        except FileNotFoundError:
            return 0, 0
        return (int(lines[0].split()[0]), int(lines[-1].split()[0])) if lines else (0, 0)

    def _checkpoints(self) -> list[int]:
        found = (re.search(r"(\d{12})\.pt$", path.name) for path in self.folder.iterdir())
        return [int(match[1]) for match in found if match]

    def _path(self, step: int) -> Path:
        return next(self.folder.glob(f"elastic-*{step:012}.pt"))


def _status(pid: int) -> int:
    """How a process ended; one that does not is killed, and is a failure of ours."""
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError("a worker that was asked to stop did not")


def measure(folder: Path, moments: int, seed: int, workers: int) -> dict[str, float]:
    """Train twice, once in peace; needs a process that has imported torch and has no threads."""
    steps, began = _STEPS_EACH * (moments + 5), time.monotonic()
    calm, wild = (_Lives(folder / name, steps, workers) for name in ("calm", "wild"))
    if any(calm.end(calm.begin())):
        raise RuntimeError((calm.folder / "log").read_text()[-1000:])
    kinds = _interrupt(wild, moments, random.Random(seed))  # noqa: S311 - repeatable
    return {
        "same": float(_same(calm.learned(), wild.learned())),
        "moments": kinds.total(),
        **{name: kinds[name] for name in sorted(set(_KINDS))},
        "steps": steps,
        "lives": wild.lives,
        "repeated": wild.repeated,
        "beyond": wild.beyond,
        "took_s": time.monotonic() - began,
    }


def _interrupt(wild: _Lives, moments: int, chance: random.Random) -> Counter[str]:
    """Interrupt a training whenever it comes to one of some random steps; it trains to its end."""
    kinds: Counter[str] = Counter()
    pids = wild.begin()
    for target in sorted(chance.sample(range(1, _STEPS_EACH * moments), moments)):
        _await(wild, target)
        time.sleep(chance.uniform(0.0, _WITHIN_S))
        kind = chance.choice(_KINDS)
        kinds[kind] += 1
        if kind == "freeze":
            _signal(pids, signal.SIGSTOP)
            time.sleep(_FROZEN_S)
            _signal(pids, signal.SIGCONT)
            continue
        if kind == "kill":
            _signal([chance.choice(pids)], signal.SIGKILL)
        _signal(pids, signal.SIGTERM)  # as Roost does when one is lost
        wild.end(pids)
        pids = wild.begin()
    if any(wild.end(pids)):
        raise RuntimeError((wild.folder / "log").read_text()[-1000:])
    return kinds


def _await(wild: _Lives, step: int) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while wild.taken < step:
        if time.monotonic() > ends:
            said = (wild.folder / "log").read_text()[-1000:]
            raise TimeoutError(f"waited in vain for step {step}: {said}")
        time.sleep(_POLL_S)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)  # none of them was waited for yet


def _same(one: Any, other: Any) -> bool:
    """Whether two states are the same to the bit."""
    torch = importlib.import_module("torch")
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str]) -> None:
    """Measure it in this process, and print what was found."""
    folder, moments, seed, workers = arguments
    for name in ("torch", "roost.train.pytorch.loop", *_LATER):
        importlib.import_module(name)
    found = measure(Path(folder), int(moments), int(seed), int(workers))
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
