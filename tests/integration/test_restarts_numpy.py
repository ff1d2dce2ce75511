"""Killed, stopped and frozen at random moments, a training learns what one left alone does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from roost.train.example.learner import TwoLayerNetwork

NURSERY = Path(__file__).with_name("nursery.py")
STEPS = 1200


def train(folder: Path, interruptions: int, sizes: str) -> tuple[TwoLayerNetwork, int]:
    arguments = [str(folder), str(STEPS), str(interruptions), sizes, "7"]
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, str(NURSERY), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    network = TwoLayerNetwork.load(folder / "example.npz", 4)
    assert network.step == STEPS
    return network, int(done.stdout.split()[-2])


@pytest.mark.parametrize(("size", "times"), [("1", 50), ("2", 25)])
def test_interrupted_or_not_the_weights_are_the_same(tmp_path: Path, size: str, times: int) -> None:
    calm, _ = train(tmp_path / "calm", 0, size)
    wild, interrupted = train(tmp_path / "wild", times, size)
    assert interrupted > times // 2
    assert wild.weights.tobytes() == calm.weights.tobytes()
    assert wild.speed.tobytes() == calm.speed.tobytes()
    assert wild.loss == calm.loss


def test_restarted_with_other_numbers_of_workers_it_learns_the_same(tmp_path: Path) -> None:
    calm, _ = train(tmp_path / "calm", 0, "1")
    wild, _ = train(tmp_path / "wild", 12, "1,2,3")
    assert np.allclose(wild.weights, calm.weights, rtol=1e-6, atol=1e-8)
    assert wild.loss == pytest.approx(calm.loss, rel=1e-6)
