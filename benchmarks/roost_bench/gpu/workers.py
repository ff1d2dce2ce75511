"""Start jobs to be measured, tell them to go, read how far they are, and end them for sure."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from roost import train
from roost_bench.gpu.programs import COUNT, GO, PROGRAMS, READY, REST, RUN

_BYTES = 4096
_SOURCE = Path(train.__file__).resolve().parents[2]
_START_S = 90.0
_END_S = 20.0
_SETTLE_S = 0.5


class Broken(Exception):
    """A job did not do what it was to do."""


class MeasuredWorker:
    """One job that is measured."""

    def __init__(
        self, kind: str, folder: Path, amount: float = 0, env: Mapping[str, str] | None = None
    ) -> None:
        name = f"{kind}-{time.monotonic_ns()}"
        path, self._out = folder / name, folder / f"{name}.out"
        path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._board = mmap.mmap(file.fileno(), _BYTES)
        given = {**os.environ, "ROOST_SOURCE": str(_SOURCE), **(env or {})}
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-c", PROGRAMS[kind], kind, str(path), str(amount)],
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def get(self, place: int) -> float:
        """A number of the board."""
        return float(struct.unpack_from("d", self._board, 8 * place)[0])

    def tell(self, go: float) -> None:
        """Write what it is to do."""
        self.put(GO, go)

    def put(self, place: int, value: float) -> None:
        """Write a number on the board."""
        struct.pack_into("d", self._board, 8 * place, value)

    def until(self, place: int, within_s: float = _START_S) -> float:
        """Wait for a number of the board that is not 0."""
        self.wait(lambda: self.get(place) != 0, f"number {place}", within_s)
        return self.get(place)

    def wait(self, true: Callable[[], bool], what: str, within_s: float = _START_S) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + within_s
        while not true():
            if self.process.poll() is not None:
                raise Broken(f"a job ended with {self.process.returncode}: {self.words()}")
            if time.monotonic() > deadline:
                raise Broken(f"no {what} of a job within {within_s:g} s: {self.words()}")
            time.sleep(0.002)

    def words(self) -> str:
        """The last that it printed."""
        return self._out.read_text(errors="replace")[-1500:]

    def faults(self) -> tuple[int, int]:
        """Page faults so far: without and with the disk."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[7]), int(fields[9])

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(_END_S)
        self._board.close()


@contextmanager
def workers_of(
    folder: Path, kind: str, envs: Sequence[Mapping[str, str]], amount: float = 0
) -> Iterator[list[MeasuredWorker]]:
    """Some jobs of a kind, ready and at rest."""
    with ExitStack() as stack:
        jobs = []
        for env in envs:
            jobs.append(MeasuredWorker(kind, folder, amount, env))
            stack.callback(jobs[-1].end)
        for job in jobs:
            job.until(READY)
        yield jobs


def rates(
    jobs: list[MeasuredWorker],
    run: list[MeasuredWorker],
    for_s: float,
    during: Callable[[], None] = lambda: None,
) -> list[float]:
    """What each of some jobs gets done in a second while some of them run.

    ``during`` is called in the middle.
    """
    for job in jobs:
        job.tell(RUN if job in run else REST)
    time.sleep(_SETTLE_S)
    begun, before = time.monotonic(), [job.get(COUNT) for job in jobs]
    time.sleep(for_s / 2)
    during()
    time.sleep(for_s / 2)
    after, ended = [job.get(COUNT) for job in jobs], time.monotonic()
    for job in jobs:
        job.tell(REST)
        if job.process.poll() is not None:
            raise Broken(f"a job ended with {job.process.returncode}: {job.words()}")
    return [(b - a) / (ended - begun) for a, b in zip(before, after, strict=True)]
