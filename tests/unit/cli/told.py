"""The command line inside this process: what it prints, and the status it ends with."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from roost.cli import main

#: Three jobs for one node of 8 GPUs: a and b run at once, c waits for both.
JOBS = "id,submitted_at,work_s,gpus\na,0,100,1\nb,0,50,4\nc,10,30,8\n"


@dataclass(frozen=True, slots=True)
class Told:
    """What a command said."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error; anything else is a failure."""
        assert self.status == 2, self
        assert self.err.startswith("roost: error: "), self
        assert self.err.endswith("\n"), self
        assert len(self.err.splitlines()) == 1, self
        assert "Traceback" not in self.err, self
        return self.err.removeprefix("roost: error: ").rstrip("\n")


def roost(*args: object) -> Told:
    """Run a command."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([str(arg) for arg in args])
        except SystemExit as end:
            status = end.code
    return Told(status or 0, _text(out), _text(err))


def write_jobs(folder: Path, text: str = JOBS, name: str = "jobs.csv") -> Path:
    """A small trace."""
    path = folder / name
    path.write_text(text)
    return path


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
