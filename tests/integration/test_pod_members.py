"""Real trainings in pods: they grow, shrink and lose workers, and the operator may be away."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration.pod_nursery import RUN, Nursery, address, kill

from roost.kubernetes.jobs.pod_membership import PublishView, StopPods, WentOnWithout
from roost.train.example.learner import BATCH, Lessons, TwoLayerNetwork

WIDTH = 8
ENDLESS = "1000000000"
NUMPY = [sys.executable, "-m", "roost.train.example", "--size", str(WIDTH), "--steps", ENDLESS]
NUMPY += ["--save-every", "1000"]


def play(folder: Path, command: list[str], scene: Callable[[Nursery], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), Nursery(folder / "run", command) as nursery:
            await scene(nursery)

    asyncio.run(run())


def undisturbed(steps: int) -> TwoLayerNetwork:
    """What one worker, left alone, learns in so many steps."""
    network, lessons = TwoLayerNetwork.new(WIDTH, 1), Lessons(1)
    for _ in range(steps):
        slope, missed = network.slope(*lessons.batch(network.step, 0, 1))
        network.move(slope / BATCH)
        network.loss = missed / BATCH
    return network


async def learned(nursery: Nursery, *members: str) -> TwoLayerNetwork:
    """Stop all; they learned the same as one worker left alone."""
    nursery.meeting.release(RUN)
    nursery.signal(signal.SIGTERM, *members)
    ended = await nursery.ended()
    assert {member: ended[member] for member in members} == dict.fromkeys(members, 143)
    network = TwoLayerNetwork.load(nursery.checkpoints / "example.npz", WIDTH)
    expected = undisturbed(network.step)
    assert network.loss == pytest.approx(expected.loss, rel=1e-6)
    assert np.allclose(network.weights, expected.weights, rtol=1e-6, atol=1e-8)
    return network


def spoil(nursery: Nursery) -> None:
    """Whoever reads a checkpoint from now on says that it starts anew."""
    (nursery.checkpoints / "example.npz").write_bytes(b"nobody may read this")


def test_a_training_grows_and_shrinks_and_reads_no_checkpoint(tmp_path: Path) -> None:
    async def scene(nursery: Nursery) -> None:
        await nursery.begin(2)
        await nursery.trains_on()
        spoil(nursery)
        grown = await nursery.resize(3)
        assert grown.members == ("0", "1", "2")
        assert 0.0 < grown.pause_s < min(5.0, grown.took_s)
        await nursery.trains_on()
        shrunk = await nursery.resize(1)
        assert shrunk.members == ("0",)
        assert {nursery.statuses["1"], nursery.statuses["2"]} == {0}
        step = await nursery.trains_on()
        assert (await learned(nursery, "0")).step >= step
        assert nursery.steps() == sorted(nursery.steps())
        outputs = "".join(nursery.output(member) for member in nursery.pods)
        assert "anew" not in outputs
        views = [one.view for one in nursery.effects if isinstance(one, PublishView)]
        assert {view["address"].rpartition(":")[0] for view in views} == {address("0")}
        assert len({view["address"] for view in views}) == 3
        assert {line["from"] for line in nursery.heard if "step" in line} == {"0"}

    play(tmp_path, NUMPY, scene)


def test_an_operator_that_is_away_for_a_while_loses_nothing(tmp_path: Path) -> None:
    async def scene(nursery: Nursery) -> None:
        await nursery.begin(2)
        before = await nursery.trains_on()
        known = len(nursery.heard)
        wish = nursery.want(3)
        while "2" not in nursery.pods:  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.01)
        spoil(nursery)
        # The new worker gets ready while nobody listens; nothing is heard, and all go on.
        await nursery.away(3.0, lambda: unheard(nursery, known))
        assert (await nursery.changed(wish)).members == ("0", "1", "2")
        assert await nursery.trains_on() > before
        # Again, right after everybody was told of a change, and before it is known to be done.
        wish = nursery.want(1)
        await nursery.away(0.5)
        assert (await nursery.changed(wish)).members == ("0",)
        await nursery.trains_on()
        assert nursery.steps() == sorted(nursery.steps())
        assert {one for one in nursery.effects if isinstance(one, StopPods)} == set()
        assert nursery.output("0").count("the operator is there again") >= 1
        await learned(nursery, "0")
        assert "anew" not in nursery.output("0") + nursery.output("2")

    def unheard(nursery: Nursery, known: int) -> None:
        assert not [line for line in nursery.heard[known:] if line.get("ready")]

    play(tmp_path, NUMPY, scene)


def test_a_pod_that_dies_is_left_out(tmp_path: Path) -> None:
    async def scene(nursery: Nursery) -> None:
        await nursery.begin(3)
        before = await nursery.trains_on()
        spoil(nursery)
        kill(nursery.pods["0"])
        await nursery.until(lambda: any(isinstance(one, WentOnWithout) for one in nursery.effects))
        (lost,) = [one for one in nursery.effects if isinstance(one, WentOnWithout)]
        assert lost.members == ("1", "2")
        assert await nursery.trains_on() > before
        assert (await nursery.resize(3)).members == ("1", "2", "3")
        await learned(nursery, "1", "2", "3")

    play(tmp_path, NUMPY, scene)


def test_a_pod_that_is_to_go_alone_is_left_out_and_one_of_all_stops(tmp_path: Path) -> None:
    async def scene(nursery: Nursery) -> None:
        await nursery.begin(3)
        before = await nursery.trains_on()
        nursery.signal(signal.SIGTERM, "1")  # as when its node is drained
        nursery.leave("1")
        await nursery.until(lambda: "1" in nursery.statuses)
        assert nursery.statuses == {"1": 0}
        assert await nursery.trains_on() > before
        assert nursery.members.members == ("0", "2")
        nursery.signal(signal.SIGTERM, "2")  # and nobody leaves it out: then all stop
        assert await nursery.ended() == {"0": 143, "1": 0, "2": 143}
        assert "stopped at step" in nursery.output("2")

    play(tmp_path, NUMPY, scene)
