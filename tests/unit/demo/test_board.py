"""What people see of the demo: changes as lines, or a table."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from tests.unit.cli.told import roost

from roost.client.views import ChangeView, JobView, WorkersView
from roost.demo.board import LineBoard, _picture

WAITS = JobView("a-1", state="queued", reason="first in line")
RUNS = JobView(
    "a-1", state="running", attempt=1, workers=WorkersView(1, 2, 1), progress=0.5, loss=0.25
)
GREW = ChangeView("resize", "1 → 2 workers in 0.4 s", 7.0, 0.4, 0.1, 1, 2)
GROWN = JobView("a-1", state="running", attempt=1, workers=WorkersView(1, 2, 2), change=GREW)
AGAIN = JobView("a-1", state="running", attempt=2, workers=WorkersView(1, 2, 1), progress=0.5)


def test_elsewhere_than_on_a_terminal_every_change_is_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LineBoard() as lines:
        for view in (WAITS, WAITS, RUNS, RUNS, GROWN, GROWN, AGAIN):
            lines.show({"a": view})
        lines.note("b: killed")

    told = [re.sub(r"^ +\d+\.\d s  ", "", line) for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "a: queued: first in line",
        "a: running",
        "a: 1 → 2 workers in 0.4 s",
        "a: running, attempt 2",
        "b: killed",
    ]


def test_the_table_has_a_row_for_each_job() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(_picture({"a": WAITS, "b": RUNS}, "3.0 s"))

    head, first, second, passed = out.getvalue().splitlines()
    assert head.split() == ["JOB", "WORKERS", "STATE", "DONE", "LOSS", "TRY", "WHY"]
    assert first.split()[:3] == ["a", "0/1", "queued"]
    assert first.rstrip().endswith("first in line")
    assert second.split()[:3] == ["b", "1/1..2", "running"]
    assert second.split()[-2:] == ["0.250", "1"]
    assert passed.strip() == "after 3.0 s"


def test_the_help_tells_both_demos() -> None:
    text = roost("demo", "--help").out
    assert "kill a worker" in text
    assert "policies" in text
