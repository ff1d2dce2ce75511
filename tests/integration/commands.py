"""The ``roost`` command as a process of its own, the way users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: The installed script.
ROOST = str(Path(sys.executable).with_name("roost"))
JOBS = "id,submitted_at,work_s,gpus\na,0,100,1\nb,0,50,4\nc,10,30,8\n"


def run(*args: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(  # noqa: S603 - our own
        [str(arg) for arg in args],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def one_error(err: str) -> str:
    """The line of an error, if it is one."""
    assert err.startswith("roost: error: "), err
    assert len(err.splitlines()) == 1, err
    return err
