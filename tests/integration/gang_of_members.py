"""Plays the part of Roost for an elastic training: starts workers, says who belongs, and listens.

with Gang(tmp_path, [sys.executable, "script.py"]) as gang:
    gang.start(2)
    gang.grow(1)
    gang.lose("0")
    assert gang.ended() == {"1": 0, "2": 0}
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: Nothing of the surroundings may reach a worker.
_FOREIGN = ("ROOST_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _says(wanted: dict[str, Any], line: dict[str, Any]) -> bool:
    return wanted.items() <= line.items()


class Gang:
    """Workers of one generation, with their members.json, their pipe and their checkpoints."""

    def __init__(self, folder: Path, command: Sequence[str], **environ: object) -> None:
        self.folder = folder
        self.command = list(command)
        self.environ = {name: str(value) for name, value in environ.items()}
        self.file, self.pipe = folder / "members.json", folder / "progress"
        self.checkpoints = folder / "checkpoints"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.heard: list[dict[str, Any]] = []
        self.said: dict[str, Any] = {"version": 0, "members": [], "lost": [], "save": 0}
        self.said["offload"] = 0
        self._news = threading.Condition()
        folder.mkdir(parents=True, exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)
        os.mkfifo(self.pipe)
        # For reading and writing, so that it never ends and nobody finds it unread.
        self._reader = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.story())
        self.close()

    @property
    def members(self) -> list[str]:
        return list(self.said["members"])

    # What Roost does.

    def start(self, count: int) -> None:
        """The first workers of the generation."""
        names = [str(number) for number in range(count)]
        self.publish(names)
        for rank, name in enumerate(names):
            self._spawn(name, rank, count)

    def add(self, count: int = 1) -> list[str]:
        """New workers, that nobody knows of yet."""
        first, size = len(self.processes), len(self.members) + count
        names = [str(first + number) for number in range(count)]
        for number, name in enumerate(names):
            self._spawn(name, len(self.members) + number, size)
        return names

    def publish(self, members: Iterable[str], lost: Iterable[str] = ()) -> int:
        """A new version; returns its number."""
        self.said["version"] += 1
        self.said["address"] = f"127.0.0.1:{free_port()}"
        self.said["members"], self.said["lost"] = list(members), list(lost)
        self.write(json.dumps(self.said))
        return int(self.said["version"])

    def write(self, content: str | bytes) -> None:
        """Replace the file, by whatever."""
        draft = self.file.with_suffix(".new")
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(self.file)

    def ask(self, what: str) -> int:
        """One more 'save' or 'offload'; returns the number to be answered."""
        self.said[what] += 1
        self.write(json.dumps(self.said))
        return int(self.said[what])

    def grow(self, count: int = 1) -> dict[str, Any]:
        """Add workers, as Roost does; returns what the first one said when it trained so."""
        names = self.add(count)
        self.hear_ready(*names)
        return self.change([*self.members, *names])

    def shrink(self, *leave: str) -> dict[str, Any]:
        """Ask members to leave, and see them leave in peace."""
        found = self.change([name for name in self.members if name not in leave])
        for name in leave:
            assert self.processes[name].wait(60) == 0, self.output(name)
        return found

    def change(self, members: Iterable[str], lost: Iterable[str] = ()) -> dict[str, Any]:
        """Publish, and wait until they train so."""
        version = self.publish(members, lost)
        return self.hear_that(joined=version)

    def lose(self, *names: str) -> dict[str, Any]:
        """Kill members, and go on without them."""
        for name in names:
            self.kill(name)
        return self.change([name for name in self.members if name not in names], names)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def signal(self, number: signal.Signals, *names: str) -> None:
        for name in names or self.alive():
            self.processes[name].send_signal(number)

    # What can be seen of it.

    def hear(
        self, wanted: Callable[[dict[str, Any]], bool], timeout_s: float = 60.0
    ) -> dict[str, Any]:
        """The first line, heard already or in time, that is wanted."""
        ends = time.monotonic() + timeout_s
        place = 0
        with self._news:
            while True:
                for line in self.heard[place:]:
                    if wanted(line):
                        return line
                place = len(self.heard)
                if not self._news.wait(ends - time.monotonic()):
                    raise TimeoutError("what was waited for was not said")

    def hear_that(self, **wanted: object) -> dict[str, Any]:
        """The first line, heard already or in time, that says all of this."""
        return self.hear(partial(_says, wanted))

    def hear_new(
        self, wanted: Callable[[dict[str, Any]], bool], timeout_s: float = 60.0
    ) -> dict[str, Any]:
        """As ``hear``, of what is said from now on."""
        with self._news:
            known = {id(line) for line in self.heard}
        return self.hear(lambda line: id(line) not in known and wanted(line), timeout_s)

    def hear_ready(self, *names: str) -> None:
        """Until all of these new workers have said that they wait."""
        for name in names:
            self.hear_that(ready=name)

    def hear_step(self, step: int, timeout_s: float = 60.0) -> dict[str, Any]:
        """A report of that step or a later one."""
        return self.hear(lambda line: line.get("step", -1) >= step, timeout_s)

    def alive(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def ended(self, timeout_s: float = 60.0) -> dict[str, int]:
        """The exit status of every worker, once all have ended."""
        ends = time.monotonic() + timeout_s
        return {
            name: process.wait(max(0.1, ends - time.monotonic()))
            for name, process in self.processes.items()
        }

    def output(self, name: str) -> str:
        return (self.folder / f"worker-{name}.log").read_text(errors="replace")

    def story(self) -> str:
        """Everything, for whoever has to find out."""
        lines = [f"members.json: {self.file.read_text() if self.file.exists() else None}"]
        lines += [f"heard: {line}" for line in self.heard[-30:]]
        for name, process in self.processes.items():
            lines += [f"--- worker {name}, status {process.poll()}", self.output(name)[-3000:]]
        return "\n".join(lines)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self._over.set()
        self._thread.join()
        os.close(self._reader)

    def _spawn(self, name: str, rank: int, size: int) -> None:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        host, _, port = self.said["address"].rpartition(":")
        environ |= {
            "ROOST_MEMBERS": str(self.file),
            "ROOST_MEMBER": name,
            "ROOST_PROGRESS": str(self.pipe),
            "ROOST_CHECKPOINT_DIR": str(self.checkpoints),
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "PYTHONUNBUFFERED": "1",
            **self.environ,
        }
        with (self.folder / f"worker-{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - our own
                self.command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _listen(self) -> None:
        rest = b""
        while not self._over.is_set():
            if not select.select([self._reader], [], [], 0.05)[0]:
                continue
            *lines, rest = (rest + os.read(self._reader, 1 << 16)).split(b"\n")
            with self._news:
                self.heard += [json.loads(line) for line in lines]
                self._news.notify_all()
