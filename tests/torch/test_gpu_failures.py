"""Programs that fail on a real GPU, and what Roost says of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.torch.gpu_programs import PROGRAMS, told

from roost.core import JobId, RunId
from roost.engines import Ended, WorkerExit
from roost.jobs.failures.classify import classify


def has_cuda() -> bool:
    """Whether there is a GPU that torch can use."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - it may not be here

    return bool(torch.cuda.is_available())


def kind(code: int, output: bytes) -> str:
    """What Roost says of an end."""
    signal = -code if code < 0 else None
    exit_ = WorkerExit("worker", 0, None if signal else code, signal)
    ended = Ended(0.0, RunId(JobId("a"), 1), (exit_,), "exit")
    verdict = classify(ended, {"worker-0": output[-65536:]})
    return verdict.kind if verdict is not None else ""


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="no torch with a GPU here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_really_fails_is_understood(name: str, tmp_path: Path) -> None:
    code, output = told(name, tmp_path)

    assert kind(code, output) in PROGRAMS[name][1], output[-2000:].decode(errors="replace")
