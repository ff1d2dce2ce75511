"""The demo from end to end, in small, and interrupted in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.integration.commands import ROOST
from tests.unit.cli.told import roost

from roost.demo import jobs, show
from roost.demo.jobs import TrainingJob

SMALL = (
    TrainingJob("long", 0.0, 4.0, killed_at=0.3),
    TrainingJob("pair", 0.1, 0.5, (2, 2)),
    TrainingJob("elastic", 0.2, 0.5, (1, 2)),
)


def belonging_to(folder: Path) -> list[int]:
    """Processes that name a folder on their command line or in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


def test_jobs_are_trained_killed_recovered_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(show, "LESSONS", SMALL)
    monkeypatch.setattr(jobs, "trainer", lambda: jobs.NUMPY)  # torch is slow to start

    told = roost("demo")

    assert told.status == 0, told.err
    assert re.search(r"long: worker-0, process \d+, killed on purpose at [3-9]\d %", told.out)
    assert "long: killed from outside; tried again, attempt 2" in told.out
    assert re.search(r"long: goes on from its checkpoint, at step [1-9]", told.out)
    rows = {line.split()[0]: line.split() for line in told.out.splitlines() if " % " in line}
    assert {name: rows[name][-1] for name in ("long", "pair", "elastic")} == {
        "long": "2",
        "pair": "1",
        "elastic": "1",
    }
    assert re.search(r"^mean +\d+\.\d s +\d+\.\d s +[+-]\d+\.\d %$", told.out, re.MULTILINE)
    assert told.out.count("\n  roost ") == 3
    assert list(tmp_path.iterdir()) == []
    assert belonging_to(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "status", "after"),
    [(signal.SIGINT, 130, "elastic: running"), (signal.SIGTERM, 143, "server ")],
)
def test_interrupted_it_leaves_nothing(
    tmp_path: Path, number: signal.Signals, status: int, after: str
) -> None:
    with subprocess.Popen(  # noqa: S603 - our own
        [ROOST, "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if after in line:
                break
        assert belonging_to(tmp_path / "roost-demo-") != []
        process.send_signal(number)
        _, err = process.communicate(timeout=60)

    assert process.returncode == status
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert belonging_to(tmp_path / "roost-demo-") == []
