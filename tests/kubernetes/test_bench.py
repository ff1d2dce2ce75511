"""``roost bench kubernetes`` on a real API server, with little of everything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.kubernetes.binaries import find
from tests.unit.cli.told import roost

from roost_bench.kubernetes import command
from roost_bench.kubernetes.command import BindingSizes

SIZES = ["--nodes", 20, "--pods", 40, "--gangs", 5]


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find()
    if found is None or found.scheduler is None:
        pytest.skip("there is no kube-scheduler here")
    monkeypatch.setattr(command, "QUICK", BindingSizes((20,), 40, 5, kept=80, jobs=9, rounds=1))


def test_both_schedulers_bind_everything_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told = roost("bench", "kubernetes", "--quick", *SIZES, "-o", "json")

    assert told.status in (0, 1), told  # how fast it is depends on what else runs here
    rows = json.loads(told.out)
    assert [(row["scheduler"], row["shape"], row["pods"]) for row in rows] == [
        ("roost", "single", 40),
        ("kube-scheduler", "single", 40),
        ("roost", "gangs", 40),
        ("kube-scheduler", "gangs", 40),
        ("roost", "arriving", 40),
        ("kube-scheduler", "arriving", 40),
        ("roost", "jobs", 9),
        ("client", "created", 9),
        ("roost", "memory", 80),
    ]
    for row in rows:
        assert row["nodes"] == 20
        # Seconds are told to the millisecond.
        assert row["pods"] / row["pods_per_s"] == pytest.approx(row["seconds_to_last"], abs=0.002)
        assert row["scheduler"] == "client" or 20 < row["peak_rss_mib"] < 500
    assert "20 nodes, memory, roost: 80 pods in" in told.err
    assert list(tmp_path.iterdir()) == []


def test_more_pods_than_there_is_room_for_are_refused() -> None:
    told = roost("bench", "kubernetes", "--quick", *SIZES[:2], "--pods", 160, "--only", "roost")

    assert told.status == 2
    assert "160 pods and a first one do not fit there" in told.err
