"""A training in name only that changes its size while it runs, for chaos to watch.

Run as a file: ``elastic_witness.py FOLDER STEPS [MIB]``. Each of its processes holds a lock of its
own and keeps the ledger of ``witness``, and holds so much memory of a GPU if there is one. The
first member counts steps of 10 ms and saves each; what it counted is in a file of the job. When
asked to, all leave the GPU, and stand still until they are to come back.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from roost import train
from roost.train.members import Left, Members, tell

_STEP_S = 0.01
_CLASH = 99
_STOPPED = 143


class Held:
    """Memory of a GPU, which leaves it and comes back; nothing where PyTorch can use none."""

    def __init__(self, mib: int) -> None:
        self._torch: Any = None
        if mib:
            with suppress(ImportError):
                self._torch = importlib.import_module("torch")
        if self._torch is not None and not self._torch.cuda.is_available():
            self._torch = None
        if self._torch is not None:
            self._content = self._torch.ones(mib << 20, dtype=self._torch.uint8, device="cuda")

    def move(self, where: str) -> None:
        """Be in the memory of the GPU (``cuda``), or in that of the host (``cpu``)."""
        if self._torch is not None:
            self._content = self._content.to(where)
            self._torch.cuda.empty_cache()


class Witness:
    """One process of it."""

    def __init__(self, folder: Path, total: int, held: Held) -> None:
        env = os.environ
        self.folder, self.total, self.held = folder, total, held
        self.members = Members.here()
        self.job, self.attempt = env["ROOST_JOB"], env["ROOST_ATTEMPT"]
        self.name = f"worker-{env['ROOST_GENERATION']}.{self.members.me}"
        #: The last wish for a checkpoint that was answered.
        self.answered = 0
        #: What was last asked about the GPU: to leave it (odd), to come back (even).
        self.offloaded = 0
        self.over = (train.checkpoint_dir() or Path()) / "over"

    def say(self, what: str) -> None:
        """Write a line into the ledger."""
        with (self.folder / "ledger").open("a", encoding="utf-8") as ledger:
            ledger.write(f"{what} {self.job} {self.name} {self.attempt} {os.getpid()}\n")

    def stop(self, *_: object) -> None:
        """Leave at once."""
        self.say("stop")
        os._exit(_STOPPED)

    def run(self) -> None:
        """Take steps until all are done, or this member is not wanted any more."""
        lock = (self.folder / "locks" / f"{self.job}.{self.name}.{self.attempt}").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.say("clash")
            sys.exit(_CLASH)
        self.say("start")
        signal.signal(signal.SIGTERM, self.stop)
        tell(elastic=True, member=self.members.me)
        if self.rank is None:
            tell(ready=self.members.me)
            while self.rank is None:
                time.sleep(_STEP_S)
        while not self.over.exists():
            self._step()
            time.sleep(_STEP_S)
        self.say("stop")

    @property
    def rank(self) -> int | None:
        """Its place among the members, as they are wanted now."""
        return self.members.look().rank(self.members.me)

    def _step(self) -> None:
        view, rank = self.members.look(), self.rank
        if rank is None:
            self.say("stop")
            raise Left
        if view.version > self.members.version:
            self.members.settle(view)
            if rank == 0:
                tell(joined=view.version, member=self.members.me, world=view.size, pause_s=0.0)
        if view.offload != self.offloaded:
            self.offloaded = view.offload
            self.held.move("cpu" if view.offload % 2 else "cuda")
            tell(offloaded=view.offload, member=self.members.me)
        if rank == 0 and not view.offload % 2:
            done = _saved() + 1
            with (self.folder / "steps" / self.job).open("a", encoding="ascii") as counted:
                counted.write(f"{done}\n")
            train.save("step", lambda file: file.write(b"%d" % done))
            train.report(done, self.total, saved=done)
            if view.save > self.answered:
                self.answered = view.save
                tell(saved_for=view.save)
            if done >= self.total:
                self.over.touch()


def _saved() -> int:
    file = train.latest_checkpoint("step")
    return int(file.read_text()) if file else 0


if __name__ == "__main__":
    folder, steps, *mib = sys.argv[1:]
    Witness(Path(folder), int(steps), Held(int(mib[0]) if mib else 0)).run()
