"""``roost bench gpu`` where there is no GPU: it says so, and leaves nothing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost_bench.gpu import mixed
from roost_bench.gpu.command import MEASURES
from roost_bench.gpu.figures import GpuBench, GpuFigure
from roost_bench.gpu.program import LIMITS, measures
from roost_bench.gpu.programs import FIRST, PROGRAMS, READY, SECOND

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


class Idle:
    """A worker that does as it is told."""

    def __init__(self) -> None:
        self.board = {READY: 1.0, FIRST: 4.0, SECOND: 12.0}

    def until(self, place: int) -> float:
        self.board[SECOND] = 12.0  # it has measured again
        return self.board[place]

    def get(self, place: int) -> float:
        return self.board[place]

    def put(self, place: int, value: float) -> None:
        self.board[place] = value

    def end(self) -> None:
        pass


def mixture(monkeypatch: pytest.MonkeyPatch, both: float) -> dict[str, GpuFigure]:
    """The measures of mixed programs, where each of two gets that part of what it does alone."""

    def made_up(jobs: list[Idle], run: list[Idle], *_: object) -> list[float]:
        return [100.0 * (both if len(run) > 1 else 1.0) if job in run else 0.0 for job in jobs]

    monkeypatch.setattr(mixed, "MeasuredWorker", lambda *_: Idle())
    monkeypatch.setattr(mixed, "rates", made_up)
    monkeypatch.setattr(mixed, "by_turns", lambda _b, _n, jobs, *_, **__: made_up(jobs, jobs))
    bench = GpuBench(Path("/nowhere"), quick=True, notes={}, within_s=60.0)
    return {one.name: one for part in (mixed.mixed, mixed.latency) for one in part(bench)}


def test_shares_of_mixed_programs_have_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mixture(monkeypatch, 0.5)
    assert found["queue 0.5 + busy 0.5: queue: error"].passed
    assert found["best-effort: busy and another"].passed
    assert not found["equal: half-idle and busy"].passed
    assert found["service: p99 against the plain driver's"].value == 1.0
    assert not found["trainer beside the service"].passed
    good = mixture(monkeypatch, 0.7)
    assert good["equal: half-idle and busy"].passed
    assert not good["queue 0.5 + busy 0.5: queue: error"].passed
    assert good["trainer beside the service"].passed


def test_every_program_is_python() -> None:
    for name, source in PROGRAMS.items():
        compile(source, name, "exec")
