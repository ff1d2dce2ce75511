"""What workers printed last is kept when their pods go, and nothing waits for it for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from tests.unit.kubernetes.operator.small_cluster import SmallCluster

from roost.kubernetes.client.kinds import CONFIG_MAPS, JOBS, PODS, Object
from roost.kubernetes.jobs.log_keeper import OPEN_S
from roost.kubernetes.jobs.request import CANCEL
from roost.kubernetes.objects.kept_logs import LogEnd, decode_logs, kept_name

AGAIN = {"max": 9, "delay": 0}


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class Talkative(SmallCluster):
    """A cluster whose pods say goodbye; ``mute``: its kubelets never answer."""

    mute = False

    async def delete(self, kind: Any, name: str, namespace: str = "", **given: Any) -> None:
        if kind is PODS:
            self.logs[name] = self.logs.get(name, b"") + b"saved before the end\n"
        await super().delete(kind, name, namespace, **given)

    async def follow(self, namespace: str, name: str, **given: Any) -> AsyncIterator[bytes]:
        if self.mute:
            await asyncio.Event().wait()
        async for piece in super().follow(namespace, name, **given):
            yield piece

    def kept(self, attempt: int = 1, job: str = "train") -> Object | None:
        return self.objects(CONFIG_MAPS).get(("default", kept_name(job, attempt)))

    async def cancel(self, job: str = "train") -> None:
        await self.change(job, metadata={"annotations": {CANCEL: "ann"}})


def test_the_last_words_of_a_cancelled_job_are_kept_with_it() -> None:
    async def scenario() -> None:
        cluster = Talkative()
        cluster.node("a")
        async with cluster.led():
            made = await cluster.submit("train", workers=2)
            await cluster.reaches("train", "running")
            cluster.logs["train-1-worker-1"] = b"epoch 1\n"
            await cluster.cancel()
            await cluster.reaches("train", "cancelled")
            await cluster.until(cluster.kept)
            found = cluster.kept()
            assert found is not None
            assert decode_logs(found) == {
                "worker-0": LogEnd(b"saved before the end\n", is_whole=True),
                "worker-1": LogEnd(b"epoch 1\nsaved before the end\n", is_whole=True),
            }
            (owner,) = found["metadata"]["ownerReferences"]
            assert owner["uid"] == made["metadata"]["uid"]

    play(scenario())


def test_a_pod_that_ended_by_itself_may_go_later() -> None:
    async def scenario() -> None:
        cluster = Talkative()
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("train", workers=2)
            await cluster.reaches("train", "running")
            cluster.logs["train-1-worker-0"] = b"ValueError: no data\n"
            cluster.end("train-1-worker-0", 1)
            await cluster.reaches("train", "failed")
            await cluster.until(cluster.kept)
            found = cluster.kept()
            assert found is not None
            texts = {worker: log.text for worker, log in decode_logs(found).items()}
            assert texts == {
                "worker-0": b"ValueError: no data\n",
                "worker-1": b"saved before the end\n",
            }

    play(scenario())


def test_three_attempts_are_kept_and_what_is_not_ours_stays() -> None:
    async def scenario() -> None:
        cluster = Talkative()
        cluster.node("a")
        theirs = {"metadata": {"name": kept_name("train", 2)}, "data": {"mine": "yes"}}
        await cluster.create(CONFIG_MAPS, theirs, "default")
        async with cluster.led():
            await cluster.submit("train", workers=2, retry=AGAIN)
            for attempt in range(1, 6):
                await cluster.reaches("train", "running", attempt=attempt)
                await cluster.remove(PODS, f"train-{attempt}-worker-0")
                await cluster.until(lambda n=attempt: cluster.kept(n))
            await cluster.until(lambda: not cluster.kept(1))
        kept = [found for n in range(1, 6) if (found := cluster.kept(n)) and decode_logs(found)]
        assert [one["metadata"]["name"] for one in kept] == [
            kept_name("train", n) for n in (3, 4, 5)
        ]
        found = cluster.kept(2)
        assert found is not None
        assert found["data"] == {"mine": "yes"}

    play(scenario())


def test_kubelets_that_do_not_answer_hold_nobody_up_and_nothing_is_written() -> None:
    async def scenario() -> None:
        cluster = Talkative()
        cluster.mute = True
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("train", workers=4)
            await cluster.reaches("train", "running")
            began = time.monotonic()
            await cluster.cancel()
            await cluster.until(lambda: not cluster.alive())
            assert time.monotonic() - began >= OPEN_S * 0.9  # one wait for all of them
            await cluster.reaches("train", "cancelled")
            assert cluster.kept() is None

    play(scenario())


def test_a_job_that_is_deleted_leaves_no_log_behind() -> None:
    async def scenario() -> None:
        cluster = Talkative()
        cluster.node("a")
        async with cluster.led() as leadership:
            await cluster.submit("train")
            await cluster.reaches("train", "running")
            await cluster.remove(JOBS, "train")
            await cluster.until(lambda: not cluster.pods() and not leadership.core.jobs)
            await asyncio.sleep(0.05)
            assert cluster.kept() is None

    play(scenario())
