"""Jobs in a small cluster: what they come to, whatever happens to requests and operators."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.unit.kubernetes.operator.small_cluster import SmallCluster

from roost import placement, policies
from roost.core import QueueId
from roost.jobs.clock import WallClock
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, QUEUES, SECRETS, SERVICES, Object
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.operator.reconciler import fold
from roost.kubernetes.operator.status import moment
from roost.kubernetes.operator.workload import SourceFactory


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_a_job_runs_to_its_end() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("train", workers=2)
            found = await cluster.reaches("train", "running")
            assert cluster.pods() == ["train-1-worker-0", "train-1-worker-1"]
            assert (found["replicas"], found["selector"]) == (2, "roost.dev/job=train")
            assert ("default", "roost-train") in cluster.objects(SERVICES)
            assert not cluster.objects(SECRETS)
            for name in cluster.pods():
                cluster.end(name, 0)
            await cluster.reaches("train", "succeeded")
            assert cluster.leadership is not None
            await cluster.until(lambda: not cluster.leadership.core.jobs)
            assert len(cluster.pods()) == 2  # their logs stay

    play(scenario())


@pytest.mark.parametrize("seed", range(12))
def test_requests_may_get_lost_and_operators_die(seed: int) -> None:
    """No rank has two pods, whatever is lost, and whenever the operator begins anew."""

    async def scenario() -> None:
        cluster = SmallCluster(seed, faults=0.3)
        cluster.node("a")
        cluster.node("b")
        await cluster.submit("train", workers=6, retry={"max": 5, "delay": 0})
        state = ""
        for _ in range(40):
            async with cluster.led():
                for _ in range(cluster.random.randrange(1, 40)):
                    await asyncio.sleep(0.002)
                    _check(cluster)
            state = cluster.status("train").get("state", "")
            if state == "running":
                break
        cluster.faults = 0.0
        async with cluster.led():
            found = await cluster.reaches("train", "running")
            attempt = found["attempt"]
            await cluster.until(lambda: len(cluster.alive()) == 6)
            assert len({re.sub(r".*worker", "", name) for name in cluster.alive()}) == 6
            assert all(name.startswith(f"train-{attempt}") for name in cluster.alive())
            assert found["failures"] == 0

    play(scenario())


def _check(cluster: SmallCluster) -> None:
    on = Counter(
        (pod["spec"]["nodeName"], gpu)
        for pod in cluster.objects(PODS).values()
        if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running"
        for gpu in pod["metadata"]["annotations"]["roost.dev/gpus"].split(",")
    )
    assert max(on.values(), default=1) == 1, f"two pods on one device: {on}"


@pytest.mark.parametrize("seed", range(6))
def test_deleted_and_made_again_never_mixes(seed: int) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(seed, faults=0.2)
        cluster.node("a", gpus=2)
        async with cluster.led():
            for _ in range(4):
                made = await cluster.submit("train", workers=2)
                for _ in range(cluster.random.randrange(30)):
                    await asyncio.sleep(0.002)
                    owners = {
                        pod["metadata"]["ownerReferences"][0]["uid"]
                        for pod in cluster.objects(PODS).values()
                        if pod["spec"].get("nodeName")
                    }
                    assert len(owners) <= 1
                await cluster.remove(JOBS, "train")
            made = await cluster.submit("train", workers=2)
            found = await cluster.reaches("train", "running")
            assert found["attempt"] == 1
            uids = {
                pod["metadata"]["ownerReferences"][0]["uid"]
                for pod in cluster.objects(PODS).values()
            }
            uids.add(_owner(cluster.objects(SERVICES)["default", "roost-train"]))
            assert uids == {made["metadata"]["uid"]}

    play(scenario())


def _owner(found: Object) -> str:
    return str(found["metadata"]["ownerReferences"][0]["uid"])


def test_finished_jobs_are_never_admitted_again() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led():
            for n in range(10):
                await cluster.submit(f"done-{n}")
                await cluster.reaches(f"done-{n}", "running")
                cluster.end(f"done-{n}-1-worker-0", n % 2)
                await cluster.reaches(f"done-{n}", "failed" if n % 2 else "succeeded")
        before = [cluster.status(f"done-{n}") for n in range(10)]
        for _ in range(3):
            async with cluster.led() as leadership:
                await cluster.submit("fresh")
                await cluster.reaches("fresh", "running")
                assert set(leadership.core.jobs) == {"default.fresh"}
                await cluster.remove(JOBS, "fresh")
                await cluster.until(lambda: "fresh-1-worker-0" not in cluster.pods())
        assert [cluster.status(f"done-{n}") for n in range(10)] == before
        assert len(cluster.pods()) == 10

    play(scenario())


def test_attempts_and_failures_survive_the_operator() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        await cluster.submit("train", retry={"max": 9, "delay": 0})
        for attempt in range(1, 5):
            async with cluster.led():
                found = await cluster.reaches("train", "running", attempt=attempt)
                assert found["failures"] == attempt - 1
            cluster.end(f"train-{attempt}-worker-0", 1)  # while nobody looks
        async with cluster.led():
            await cluster.reaches("train", "running", attempt=5, failures=4)
            # Of those that ended some are kept for their logs.
            await cluster.until(lambda: "train-1-worker-0" not in cluster.pods())
            assert "train-4-worker-0" in cluster.pods()

    play(scenario())


def test_a_failure_that_was_counted_is_not_counted_again() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        await cluster.submit("train", retry={"max": 9, "delay": "1h"})
        async with cluster.led():
            await cluster.reaches("train", "running")
            cluster.end("train-1-worker-0", 1)
            await cluster.reaches("train", "queued", failures=1)
        async with cluster.led() as leadership:
            await cluster.until(lambda: leadership.settled)
            await asyncio.sleep(0.1)
            assert cluster.status("train")["failures"] == 1
            assert cluster.status("train")["cause"] == "back-off"
            assert cluster.alive() == []

    play(scenario())


def test_a_rigid_job_changes_its_size_by_a_restart() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("train", workers="1..4", replicas=2)
            await cluster.reaches("train", "running", replicas=2)
            # There is nowhere to call: nobody waits for an answer, or needs a token.
            assert not cluster.objects(SECRETS)
            assert "roost.train.pod" not in str(cluster.objects(PODS))
            await cluster.change("train", spec={"replicas": 3})
            found = await cluster.reaches("train", "running", replicas=3)
            assert cluster.alive() == [f"train-1r2-worker-{n}" for n in range(3)]
            assert found["workers"]["now"] == 3

    play(scenario())


def test_a_lost_node_starts_the_job_elsewhere() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a", gpus=1)
        async with cluster.led():
            await cluster.submit("train", retry={"delay": 0})
            await cluster.reaches("train", "running", nodes=["a"])
            cluster.node("b", gpus=1)
            cluster.put(NODES, ("", "a"), None)
            found = await cluster.reaches("train", "running", nodes=["b"])
            assert (found["attempt"], found["failures"]) == (2, 0)
            assert cluster.alive() == ["train-2-worker-0"]

    play(scenario())


def test_a_job_that_is_being_deleted_is_not_started_anew() -> None:
    """With foreground deletion the object stays until its pods are gone."""

    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("train", retry={"delay": 0})
            await cluster.reaches("train", "running")
            going = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
            await cluster.patch(JOBS, "train", going, "default")
            await cluster.until(lambda: not cluster.pods())
            await asyncio.sleep(0.1)
            assert cluster.pods() == []
            await cluster.remove(JOBS, "train")
            await cluster.submit("train")
            await cluster.reaches("train", "running", attempt=1)

    play(scenario())


def test_conditions_keep_the_time_since_which_they_hold() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        async with cluster.led():
            await cluster.submit("train")
            found = await cluster.reaches("train", "queued")
            blocked = next(c for c in found["conditions"] if c["type"] == "Blocked")
            assert (blocked["status"], blocked["message"]) == (
                "True",
                "it can never run here: the cluster has no nodes",
            )
            since = moment(blocked["lastTransitionTime"])
            await cluster.change("train", spec={"ttl": "1h"})
            found = await cluster.reaches("train", "queued", observedGeneration=2)
            blocked = next(c for c in found["conditions"] if c["type"] == "Blocked")
            assert moment(blocked["lastTransitionTime"]) == since
            cluster.node("a")
            await cluster.reaches("train", "running")

    play(scenario())


def test_progress_does_not_flood_the_server() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led() as leadership:
            await cluster.submit("train")
            await cluster.reaches("train", "running")
            await asyncio.sleep(0.1)
            source: Any = leadership.reconciler.sources[0]
            before = cluster.requests
            for n in range(50):
                source.records["default.train"].progress = n / 50
                source.mark_status("default.train")
                await asyncio.sleep(0.005)
            assert cluster.requests - before <= 1
            await cluster.reaches("train", "running", progress=49 / 50)
            assert cluster.requests - before <= 2

    play(scenario())


def test_a_reader_sees_the_same_without_a_request() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("train", workers=3)
            await cluster.reaches("train", "running")
            await cluster.submit("waits", gpus=4)
            await cluster.reaches("waits", "queued")
            await cluster.submit("lost", queue="nowhere")
            await cluster.reaches("lost", "queued", cause="unknown-queue")
        before = cluster.requests
        core = fold(
            {kind: cluster.objects(kind).values() for kind in (NODES, PODS, *JobController.kinds)},
            policies.policy("priority"),
            placement.placer("consolidate"),
            WallClock().now(),
            [SourceFactory(JobController.kinds, JobController)],
        )
        assert {name: job.state.value for name, job in core.jobs.items()} == {
            "default.train": "running",
            "default.waits": "queued",
        }
        assert cluster.requests == before

    play(scenario())


def test_a_queue_that_goes_away_costs_no_attempt() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        meta = {"metadata": {"name": "ours", "namespace": "default", "uid": "q"}}
        cluster.put(QUEUES, ("default", "ours"), {**meta, "spec": {"clusterQueue": "default"}})
        async with cluster.led():
            await cluster.submit("train", queue="ours", retry={"max": 5, "delay": "1h"})
            await cluster.reaches("train", "running")
            cluster.end("train-1-worker-0", 1)
            await cluster.reaches("train", "queued", failures=1)
        cluster.put(QUEUES, ("default", "ours"), None)
        async with cluster.led():
            await cluster.reaches("train", "queued", cause="unknown-queue", attempt=1)
            cluster.put(QUEUES, ("default", "ours"), {**meta, "spec": {"clusterQueue": "default"}})
            found = await cluster.reaches("train", "queued", cause="back-off")
            assert (found["attempt"], found["failures"]) == (1, 1)

    play(scenario())


def test_a_restart_among_many_makes_nothing_new() -> None:
    """Finished, running and half-deleted jobs: no new pods, and the books are as before."""

    async def scenario() -> None:
        cluster = SmallCluster()
        for n in range(10):
            cluster.node(f"n{n}")
        for n in range(200):
            made = await cluster.submit(f"done-{n}")
            state = ("succeeded", "failed", "cancelled")[n % 3]
            made["status"] = {"state": state, "attempt": 1, "view": {"finished_at": 1.0}}
            cluster.put(JOBS, ("default", f"done-{n}"), made)
        async with cluster.led():
            for n in range(30):
                await cluster.submit(f"runs-{n}")
            for n in range(30):
                await cluster.reaches(f"runs-{n}", "running")
        cluster.put(JOBS, ("default", "runs-0"), None)  # deleted, and its pod is left
        before = {name: _uid(cluster, name) for name in cluster.pods()}
        del before["runs-0-1-worker-0"]
        for _ in range(3):
            async with cluster.led() as leadership:
                await cluster.until(lambda: "runs-0-1-worker-0" not in cluster.pods())
                await cluster.until(lambda leadership=leadership: len(leadership.core.jobs) == 29)
                assert leadership.core.queues[QueueId("default")].used_milli == 29_000
                assert {name: _uid(cluster, name) for name in cluster.pods()} == before

    play(scenario())


def _uid(cluster: SmallCluster, pod: str) -> str:
    return str(cluster.objects(PODS)["default", pod]["metadata"]["uid"])
