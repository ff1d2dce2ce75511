"""``roost bench gpu`` where there is no GPU: it says so, and leaves nothing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost_bench.gpu.command import MEASURES
from roost_bench.gpu.program import LIMITS, measures

WITHOUT = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")


def test_the_command_names_all_measures() -> None:
    assert list(MEASURES) == list(LIMITS) == list(measures())


def test_an_unknown_measure() -> None:
    told = roost("bench", "gpu", "--only", "look")
    assert told.status != 0
    assert "did you mean 'lock'" in told.err


@WITHOUT
def test_without_a_gpu_every_measure_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told = roost("bench", "gpu", "--quick", "--only", "lock,limits", "-o", "json")
    assert told.status == 1
    measures = json.loads(told.out)["measures"]
    assert "no NVIDIA driver" in measures["lock"]["error"]
    assert "no NVML" in measures["limits"]["error"]
    assert list(tmp_path.iterdir()) == []
