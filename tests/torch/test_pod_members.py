"""A real training with PyTorch in pods: it grows and shrinks."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
from tests.integration.pod_nursery import Nursery
from tests.integration.test_pod_members import ENDLESS, play

TRAINING = [sys.executable, "-m", "roost.train.example_torch", "--size", "8", "--steps", ENDLESS]
TRAINING += ["--save-every", "1000"]


def test_a_training_grows_and_shrinks(tmp_path: Path) -> None:
    async def scene(nursery: Nursery) -> None:
        await nursery.begin(2)
        before = await nursery.trains_on()
        assert (await nursery.resize(3)).members == ("0", "1", "2")
        await nursery.trains_on()
        assert (await nursery.resize(1)).members == ("0",)
        after = await nursery.trains_on()
        assert after > before
        assert nursery.steps() == sorted(nursery.steps())
        losses = [line["loss"] for line in nursery.heard if "loss" in line]
        assert all(np.isfinite(losses))
        assert losses[-1] < losses[0]
        nursery.signal(signal.SIGTERM, "0")
        assert await nursery.ended() == {"0": 143, "1": 0, "2": 0}

    play(tmp_path, TRAINING, scene)
