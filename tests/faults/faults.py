"""A cluster to be hurt, and the tools to hurt it with."""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import witness
from tests.support.server_process import ServerProcess
from tests.support.trial import SubmittedJob, Trial

#: The words of a shell that wait until somebody makes a file.
WAIT = 'until [ -e "$GO" ]; do sleep 0.02; done'


@contextmanager
def trial(folder: Path, seed: int = 1, slots: int = 4, store: str = "") -> Iterator[Trial]:
    """A cluster in a folder; nothing of it is left at the end."""
    found = Trial(folder / "trial", random.Random(seed), slots, store)
    try:
        yield found
    except BaseException:
        print(found.server.said()[-4000:])  # noqa: T201 - pytest shows it with the failure
        raise
    finally:
        found.close()


def script(one: Trial, text: str, **more: Any) -> dict[str, Any]:
    """A job file of a shell script that is tried once; it has to wait for a file, it may."""
    return {
        "name": "fault",
        "run": text,
        "env": {witness.MARK: str(one.folder), "GO": str(one.folder / "go")},
        "retry": 0,
        "checkpoint": {"grace": 0.2},
        **more,
    }


def lasting(one: Trial, seconds: float = 30.0) -> SubmittedJob:
    """A witness that takes a while, submitted."""
    return one.submit(witness.document(one.folder, one.chance, seconds))


def running(one: Trial, seconds: float = 30.0) -> SubmittedJob:
    """A witness that runs and takes a while."""
    job = lasting(one, seconds)
    one.until(job, "running")
    return job


def cancel_all(one: Trial) -> None:
    """Nothing that runs is needed any more, nor what was asked for without an answer."""
    one.repeat()
    for job in one.jobs:
        if job.id and not job.deleted:
            one.command(job, "cancel")


def until(done: Callable[[], object], within_s: float = 60.0, pause_s: float = 0.02) -> bool:
    """Wait until something is so; False if it takes too long."""
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def refused(server: ServerProcess, within_s: float = 60.0, options: Sequence[str] = ()) -> str:
    """What a server said that was just started and must end by itself, with an error."""
    before = len(server.said())
    server.start(options=options)
    status = server.ended(within_s)
    server.kill()
    assert status not in (None, 0), f"it ended with {status}"
    said = server.said()[before:]
    assert "Traceback" not in said, said
    return said


@contextmanager
def tiny_disk(megabytes: int) -> Iterator[Path]:
    """A file system of that size."""
    folder = Path(tempfile.mkdtemp(prefix="roost-tiny-", dir="/tmp"))
    size = f"size={megabytes}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)  # noqa: S603, S607
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)  # noqa: S603, S607
        folder.rmdir()


@cache
def can(*command: str) -> bool:
    """Whether a command works here."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603
    except OSError:
        return False
