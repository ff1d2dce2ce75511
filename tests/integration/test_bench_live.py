"""Every measure of ``roost bench live`` runs, in small, and cleans up."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost.cli.bench_live import measures


@pytest.mark.parametrize("name", measures())
def test_a_measure_gives_figures_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    told = roost("bench", "live", "--quick", "--only", name, "-o", "json")

    assert told.status in (0, 1), told.err  # whether goals are met is for a quiet machine
    figures = json.loads(told.out)
    assert figures[0]["name"].startswith(name)
    assert figures[0]["goal"] is not None
    assert all(figure["value"] >= 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []
