"""Lines for Roost, on the pipe named by ROOST_PROGRESS, and for people, in the log.

A line for Roost is written at once or not at all: it is short enough to be one piece on a pipe, and
a pipe that is full, or that is not read, never delays the training. Outside of Roost there is none.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

#: A pipe takes so many bytes as one piece, even with several writers.
_LONGEST = 4096


def tell(**fields: object) -> bool:
    """Tell Roost a line, from any worker; False if it was not written. Never raises."""
    with suppress(Exception):
        path = os.environ.get("ROOST_PROGRESS")
        line = f"{json.dumps(fields)}\n".encode()
        if path and fields and len(line) < _LONGEST:
            return _append(path, line)
    return False


def say(line: str) -> None:
    """Write a line to the log of this worker. Never raises."""
    with suppress(OSError, ValueError):  # no reader, or the disk is full
        sys.stderr.write(f"roost.train: {line}\n")
        sys.stderr.flush()


def _append(path: str, line: bytes) -> bool:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        return os.write(file, line) == len(line)
    finally:
        os.close(file)
