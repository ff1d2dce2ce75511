"""Workers of a training without a server, for measures that are about the training alone.

``TrainingGang`` plays the part of Roost: it starts workers and names the members. The times of
steps come from a file to which each worker appends a line per step.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

from roost.errors import Fatal

#: Seconds until whatever is waited for must be so.
PATIENCE_S = 120.0
_POLL_S = 0.01
_LAST = 2000

#: Lines of a file of times: step, workers, moment.
Times = list[tuple[int, int, float]]


class TrainingGang:
    """A file of members, and workers that read it."""

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
            end(self.workers.values())

    def start(self, name: str, rank: int, size: int) -> None:
        """One more worker."""
        environ = environ_of(
            ROOST_MEMBERS=self.folder / "members.json",
            ROOST_MEMBER=name,
            ROOST_PROGRESS=self.folder / "said",
            ROOST_CHECKPOINT_DIR=self.folder / "checkpoints",
            RANK=rank,
            WORLD_SIZE=size,
        )
        with (self.folder / f"worker-{name}.log").open("wb") as log:
            self.workers[name] = popen(self.command, environ, log)

    def publish(self, members: list[str]) -> None:
        """Other members."""
        self._version += 1
        said = {"version": self._version, "address": f"127.0.0.1:{free_port()}"}
        draft = self.folder / "members.new"
        draft.write_text(json.dumps(said | {"members": members, "lost": []}))
        draft.replace(self.folder / "members.json")

    def said(self) -> str:
        """What the workers told."""
        path = self.folder / "said"
        return path.read_text() if path.exists() else ""

    def printed(self, name: str) -> str:
        """What a worker printed."""
        return (self.folder / f"worker-{name}.log").read_text(errors="replace")

    def done(self, within_s: float = PATIENCE_S) -> None:
        """Wait until all have ended in peace; raises Fatal if one does not."""
        for name, worker in self.workers.items():
            try:
                status = worker.wait(within_s)
            except subprocess.TimeoutExpired:
                raise Fatal(f"worker {name} goes on after {within_s:g} s") from None
            if status:
                raise Fatal(f"worker {name} ended with {status}: {self.printed(name)[-_LAST:]}")


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes, and wait until they are gone."""
    for process in processes:
        process.kill()
        process.wait()


def gap(rows: Times, before: int, after: int) -> float:
    """From the last step of so many workers to the first of so many others, less a usual step."""
    first = next(
        index
        for index in range(1, len(rows))
        if rows[index][1] == after and any(row[1] == before for row in rows[:index])
    )
    start = max(row[2] for row in rows[:first] if row[1] == before)
    usual = [b[2] - a[2] for a, b in pairwise(rows) if b[0] == a[0] + 1]
    return rows[first][2] - start - statistics.median(usual)


def read(times: Path) -> Times:
    """The steps, each once: when the first worker was done with it."""
    if not times.exists():
        return []
    lines = [line.split() for line in times.read_text().splitlines()]
    rows = [(int(step), int(size), float(at)) for step, size, at in lines]
    found: dict[tuple[int, int], tuple[int, int, float]] = {}
    for row in sorted(rows, key=lambda row: row[2]):
        found.setdefault((row[0], row[1]), row)
    return list(found.values())


def last(times: Path, size: int) -> bool:
    """Whether the last step was taken by so many workers."""
    rows = read(times)
    return bool(rows) and rows[-1][1] == size


def wait_until(done: Callable[[], object], what: str) -> None:
    """Wait until it is so; raises Fatal if it takes too long."""
    ends = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > ends:
            raise Fatal(f"waited {PATIENCE_S:g} s in vain until {what}")
        time.sleep(_POLL_S)


def environ_of(**more: object) -> dict[str, str]:
    """The variables of a worker: ours without what another training would read."""
    foreign = ("ROOST_", "RANK", "WORLD_SIZE", "MASTER_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in more.items()}


def popen(
    command: list[str], environ: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a process that prints into a file."""
    return subprocess.Popen(  # noqa: S603 - our own
        command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
