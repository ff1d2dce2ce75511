"""What elastic training with PyTorch costs: the pause of a resize, and the overhead on a step.

``resize`` grows a job of two workers to three and back while it runs, and lets ``torchrun`` do the
same by its own means, a restart of all workers from the last checkpoint. A pause is the time from
the end of the last step before to the end of the first one after, less a usual step.
``overhead`` trains the same network by turns in a plain loop around DDP and in ours.
Each runs as a program, too: ``python -m roost.cli.bench_elastic resize|overhead``.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

_EXAMPLE = "roost.train.example_torch"
_SIZE = ("--steps", "1000000", "--size", "256", "--depth", "2", "--batch", "192")
_PATIENCE_S = 120.0
_SETTLE_S = 1.5
_POLL_S = 0.01

#: A line of a file of times: step, workers, moment.
Times = list[tuple[int, int, float]]


def pauses() -> dict[str, float]:
    """Seconds that a resize 2 → 3 and back stops the training, here and under torchrun."""
    with tempfile.TemporaryDirectory() as name:
        grown, shrunk = _pauses_here(Path(name))
    with tempfile.TemporaryDirectory() as name:
        restarted = _pause_of_torchrun(Path(name))
    return {"grow_s": grown, "shrink_s": shrunk, "torchrun_s": restarted}


def overhead(steps: int = 1200, size: int = 640) -> dict[str, float]:
    """Seconds of a step of two workers in a plain loop around DDP, and in the elastic one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gang = _Gang(
            folder,
            [sys.executable, "-m", "roost.cli.bench_elastic", "worker", str(steps), str(size)],
        )
        with gang.running(2):
            first = gang.workers["0"]
            first.wait(_PATIENCE_S * 5)
        told: dict[str, float] = json.loads((folder / "worker-0.log").read_text().splitlines()[-1])
    return told


def _pauses_here(folder: Path) -> tuple[float, float]:
    times = folder / "times"
    gang = _Gang(folder, [sys.executable, "-m", _EXAMPLE, *_SIZE, "--times", str(times)])
    with gang.running(2):
        _await(lambda: len(_read(times)) > 100, "the training begins")  # noqa: PLR2004
        gang.start("2", 2, 3)
        _await(lambda: '"ready": "2"' in gang.said(), "the third worker is ready")
        gang.publish(["0", "1", "2"])
        _await(lambda: _last(times, 3), "three train")
        time.sleep(_SETTLE_S)
        gang.publish(["0", "1"])
        time.sleep(_SETTLE_S)
        _await(lambda: _last(times, 2), "two train again")
        # All workers write: one that lives all along is enough, and its steps are the gang's.
        rows = _read(times)
    return _gap(rows, 2, 3), _gap(rows, 3, 2)


def _pause_of_torchrun(folder: Path) -> float:
    """The time it stands still when a third agent joins two."""
    times, port = folder / "times", _free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3", "--nproc-per-node=1"]
    command += [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=bench"]
    command += ["--rdzv-conf=last_call_timeout=1", "-m", _EXAMPLE, *_SIZE, "--times", str(times)]
    # Agents that share their own store with the workers do not get past a change of members.
    environ = _environ(
        ROOST_CHECKPOINT_DIR=folder / "checkpoints", TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    )
    agents: list[subprocess.Popen[bytes]] = []
    try:
        for count in (2, 1):
            for _ in range(count):
                with (folder / f"agent-{len(agents)}.log").open("wb") as log:
                    agents.append(_popen(command, environ, log))
            workers = 2 if count == 2 else 3  # noqa: PLR2004 - two agents, then a third
            _await(partial(_last, times, workers), f"{workers} train under torchrun")
            time.sleep(_SETTLE_S)
        return _gap(_read(times), 2, 3)
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait()


class _Gang:
    """The part of Roost: a file of members, and workers that read it."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder, self.command = folder, command
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._version = 0

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Workers from the beginning; all have ended at the end."""
        self.publish([str(rank) for rank in range(count)])
        try:
            for rank in range(count):
                self.start(str(rank), rank, count)
            yield
        finally:
            for worker in self.workers.values():
                worker.kill()
                worker.wait()

    def start(self, name: str, rank: int, size: int) -> None:
        """One more worker."""
        environ = _environ(
            ROOST_MEMBERS=self.folder / "members.json",
            ROOST_MEMBER=name,
            ROOST_PROGRESS=self.folder / "said",
            ROOST_CHECKPOINT_DIR=self.folder / "checkpoints",
            RANK=rank,
            WORLD_SIZE=size,
        )
        with (self.folder / f"worker-{name}.log").open("wb") as log:
            self.workers[name] = _popen(self.command, environ, log)

    def publish(self, members: list[str]) -> None:
        """Other members."""
        self._version += 1
        said = {"version": self._version, "address": f"127.0.0.1:{_free_port()}"}
        draft = self.folder / "members.new"
        draft.write_text(json.dumps(said | {"members": members, "lost": []}))
        draft.replace(self.folder / "members.json")

    def said(self) -> str:
        """What the workers told."""
        path = self.folder / "said"
        return path.read_text() if path.exists() else ""


def _worker(steps: int, size: int) -> None:
    """By turns a plain loop and ours, among the same workers, on the same data."""
    import torch
    from torch import nn
    from torch.nn.functional import mse_loss
    from torch.utils.data import TensorDataset

    from roost import train

    torch.set_num_threads(1)
    batch, block = 64, 20
    rows, answers = torch.randn(4096, size), torch.randn(4096, size)

    def made() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))

    plain_model = made()
    plain = torch.optim.SGD(plain_model.parameters(), lr=0.01, momentum=0.9)
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    took: dict[str, list[float]] = {"plain_s": [], "elastic_s": []}
    with train.elastic(
        model, optimizer, TensorDataset(rows, answers), batch_size=batch, steps=steps
    ) as run:
        wrapped = run._crew.group.wrap(plain_model, unused=False)  # noqa: SLF001 - the same group
        share = batch // run.size
        began = time.perf_counter()
        for inputs, wanted in run:
            run.step(mse_loss(run.model(inputs), wanted))
            now = time.perf_counter()
            took["elastic_s"].append(now - began)
            if run.step_number % block == 0:
                order = torch.randperm(len(rows))
                for turn in range(block):
                    began = time.perf_counter()
                    mine = order[turn * batch + run.rank * share :][:share]
                    loss = mse_loss(wrapped(rows[mine]), answers[mine])
                    loss.backward()  # type: ignore[no-untyped-call]
                    plain.step()
                    plain.zero_grad(set_to_none=True)
                    took["plain_s"].append(time.perf_counter() - began)
            began = time.perf_counter()
        rank = run.rank
    if rank == 0:
        told = {name: _usual(some) for name, some in took.items()}
        told["mean_plain_s"], told["mean_elastic_s"] = (_mean(some) for some in took.values())
        sys.stdout.write(f"{json.dumps(told)}\n")
        sys.stdout.flush()


def _usual(values: list[float]) -> float:
    """The quarter of the quicker ones, less those at the beginning: others use this machine."""
    return statistics.quantiles(values[len(values) // 10 :], n=4)[0]


def _mean(values: list[float]) -> float:
    """Of the quicker nine tenths."""
    kept = sorted(values[len(values) // 10 :])
    return statistics.fmean(kept[: len(kept) * 9 // 10])


def _gap(rows: Times, before: int, after: int) -> float:
    """From the last step of so many workers to the first of so many others, less a usual step."""
    first = next(
        index
        for index in range(1, len(rows))
        if rows[index][1] == after and any(row[1] == before for row in rows[:index])
    )
    start = max(row[2] for row in rows[:first] if row[1] == before)
    usual = [b[2] - a[2] for a, b in pairwise(rows) if b[0] == a[0] + 1]
    return rows[first][2] - start - statistics.median(usual)


def _read(times: Path) -> Times:
    """The steps, each once: when the first worker was done with it."""
    if not times.exists():
        return []
    lines = [line.split() for line in times.read_text().splitlines()]
    rows = [(int(step), int(size), float(at)) for step, size, at in lines]
    found: dict[tuple[int, int], tuple[int, int, float]] = {}
    for row in sorted(rows, key=lambda row: row[2]):
        found.setdefault((row[0], row[1]), row)
    return list(found.values())


def _last(times: Path, size: int) -> bool:
    rows = _read(times)
    return bool(rows) and rows[-1][1] == size


def _await(done: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError(f"waited in vain until {what}")
        time.sleep(_POLL_S)


def _environ(**more: object) -> dict[str, str]:
    foreign = ("ROOST_", "RANK", "WORLD_SIZE", "MASTER_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in more.items()}


def _popen(command: list[str], environ: Mapping[str, str], log: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own
        command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str]) -> None:
    """Run one of the measures, or be a worker of one."""
    match arguments:
        case ["worker", steps, size]:
            _worker(int(steps), int(size))
        case ["resize"]:
            sys.stdout.write(f"{json.dumps(pauses())}\n")
        case ["overhead"]:
            sys.stdout.write(f"{json.dumps(overhead())}\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
