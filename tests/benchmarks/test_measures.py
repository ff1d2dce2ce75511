"""Every measure of ``roost bench live`` runs, in small, and cleans up."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost_bench.live import torchrun
from roost_bench.live.command import measures

#: It begins torch six times, a minute on a busy machine; ``test_elastic_torch`` sees the same.
SLOW = ("resize-loss",)


@pytest.mark.parametrize("name", [name for name in measures() if name not in SLOW])
def test_a_measure_gives_figures_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torchrun, "pause", lambda *_: 5.0)  # takes a minute on a busy machine

    told = roost("bench", "live", "--quick", "--only", name, "-o", "json")

    assert told.status in (0, 1), told.err  # whether goals are met is for a quiet machine
    figures = json.loads(told.out)
    if not figures:
        pytest.skip(told.err.strip())
    assert figures[0]["name"].startswith(name)
    assert figures[0]["goal"] is not None
    assert all(figure["value"] >= 0 or name == "overhead" for figure in figures)
    assert list(tmp_path.iterdir()) == []
