"""Programs that run beside a test and end with it."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

_TAIL = 4000


class Process:
    """One program at a time under a name; its output is kept in ``<name>.log``.

    It dies with the thread that started it even if that is killed, so start it in the main thread.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._process.pid if self.runs and self._process is not None else None

    @property
    def runs(self) -> bool:
        """Whether it was started and did not end."""
        return self._process is not None and self._process.poll() is None

    def start(self, command: Sequence[str | Path]) -> None:
        """Start it; the output goes on where that of the one before ended."""
        words = [str(word) for word in command]
        if (setpriv := shutil.which("setpriv")) is not None:
            words = [setpriv, "--pdeathsig", "KILL", "--", *words]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - ours
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def tail(self) -> str:
        """The end of what it said."""
        if not self.log.exists():
            return ""
        return self.log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
