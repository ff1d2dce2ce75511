"""Roost Jobs on a real API server; KWOK plays the kubelets."""

from __future__ import annotations

import asyncio

import pytest
from tests.kubernetes.jobbing import (
    SPACE,
    all_gone,
    condition,
    define,
    job,
    jobbing,
    patched,
    pods,
    pretend,
    reaches,
    status,
)
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, pod, until
from tests.support.kubernetes.proxy import Chances, FaultyProxy

from roost.errors import InvalidSpec
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    PODS,
    QUEUES,
    Object,
    ResourceKind,
)


def test_a_job_runs_and_succeeds(cluster: ControlPlane, api: Api, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 2, gpus=4)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", workers=3), SPACE)
            found = await reaches(api, "train", "running")
            made = await pods(api, "train")

            assert [pod["metadata"]["name"] for pod in made] == [
                f"train-1-worker-{n}" for n in range(3)
            ]
            assert {pod["spec"]["nodeName"] for pod in made} == set(found["nodes"])
            assert found["workers"] == {"now": 3, "min": 3, "max": 3}
            assert (found["gpus"], found["attempt"], found["replicas"]) == (3, 1, 3)
            assert condition(found, "Running")["status"] == "True"
            for pod in made:
                await pretend(api, pod, "succeeds")
            found = await reaches(api, "train", "succeeded")
            assert condition(found, "Succeeded")["status"] == "True"
            assert condition(found, "Running")["status"] == "False"
            assert found["gpus"] == 0

    runner.run(scenario())


def test_a_failed_job_is_tried_again_and_then_fails(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with jobbing(cluster):
            rule = {"max": 1, "delay": "0.2s"}
            await api.create(JOBS, job("train", workers=2, retry=rule), SPACE)
            await reaches(api, "train", "running")
            await pretend(api, (await pods(api, "train"))[1], "fails")
            found = await reaches(api, "train", "running", attempt=2)
            assert found["failures"] == 1

            of_it = [p for p in await pods(api, "train") if "train-2-" in p["metadata"]["name"]]
            assert len(of_it) == 2
            await pretend(api, of_it[0], "fails")
            found = await reaches(api, "train", "failed")
            assert (found["attempt"], found["failures"]) == (2, 2)
            assert condition(found, "Failed")["status"] == "True"
            assert "tries" in condition(found, "Failed")["message"]
            assert found["view"]["exit_code"] == 1
            # Those that failed stay for their logs, the others have gone.
            left = {pod["metadata"]["name"] for pod in await pods(api, "train")}
            assert left == {"train-1-worker-1", "train-2-worker-0"}

    runner.run(scenario())


def test_a_job_steps_aside_and_goes_on(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=2)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", workers=2), SPACE)
            await reaches(api, "train", "running")
            await patched(api, "train", spec={"suspend": True})
            found = await reaches(api, "train", "suspended")
            assert await all_gone(api, "train")
            assert (found["gpus"], condition(found, "Admitted")["status"]) == (0, "False")

            await api.create(JOBS, job("other", workers=2), SPACE)
            await reaches(api, "other", "running")
            await patched(api, "train", spec={"suspend": False})
            await until(lambda: _waits(api, "train"))
            await api.delete(JOBS, "other", SPACE)
            found = await reaches(api, "train", "running")
            assert found["attempt"] == 1
            assert len(await pods(api, "train")) == 2

    runner.run(scenario())


async def _waits(api: Api, name: str) -> bool:
    found = await status(api, name)
    return found.get("cause") == "no-capacity"


def test_a_job_that_is_submitted_suspended_does_not_start(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", suspend=True), SPACE)
            await reaches(api, "train", "suspended")
            assert await all_gone(api, "train")
            await patched(api, "train", spec={"suspend": False})
            await reaches(api, "train", "running")

    runner.run(scenario())


def test_cancelled_deleted_and_made_again(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=1)
        async with jobbing(cluster):
            await api.create(JOBS, job("train"), SPACE)
            await reaches(api, "train", "running")
            await patched(api, "train", metadata={"annotations": {"roost.dev/cancel": "ada"}})
            found = await reaches(api, "train", "cancelled")
            assert found["reason"] == "cancelled by ada"
            assert await all_gone(api, "train")

            await api.create(JOBS, job("second"), SPACE)
            await reaches(api, "second", "running")
            first = (await pods(api, "second"))[0]["metadata"]["uid"]
            await api.delete(JOBS, "second", SPACE)
            made = await api.create(JOBS, job("second"), SPACE)
            found = await reaches(api, "second", "running")
            assert found["attempt"] == 1
            (pod,) = await pods(api, "second")
            assert pod["metadata"]["uid"] != first
            owner = pod["metadata"]["ownerReferences"][0]["uid"]
            assert owner == made["metadata"]["uid"]

            await api.delete(JOBS, "second", SPACE)
            await until(lambda: all_gone(api, "second"))

    runner.run(scenario())


def test_what_cannot_be_is_said_in_a_sentence(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=4)
        async with jobbing(cluster):
            await api.create(JOBS, job("lost", queue="nowhere"), SPACE)
            found = await reaches(api, "lost", "queued", cause="unknown-queue")
            blocked = condition(found, "Blocked")
            assert (blocked["status"], blocked["reason"]) == ("True", "UnknownQueue")
            assert "no Queue 'nowhere' in namespace 'default'" in blocked["message"]
            await api.create(QUEUES, _queue("nowhere", "far-away"), SPACE)
            await until(lambda: _says(api, "lost", "far-away"))
            await api.create(CLUSTER_QUEUES, _cluster_queue("far-away", limit=8))
            found = await reaches(api, "lost", "running")
            assert condition(found, "Blocked")["status"] == "False"

            await api.create(JOBS, job("huge", gpus=8), SPACE)
            found = await reaches(api, "huge", "queued", cause="can-never-fit")
            assert "8 GPUs" in condition(found, "Blocked")["message"]
            since = condition(found, "Blocked")["lastTransitionTime"]
            await asyncio.sleep(1.1)
            await nodes(api, 1, gpus=8, prefix="large")
            found = await reaches(api, "huge", "running")
            assert condition(found, "Blocked")["lastTransitionTime"] > since

            body = job("nameless")
            del body["spec"]["image"]
            await api.create(JOBS, body, SPACE)
            found = await reaches(api, "nameless", "failed")
            assert "image" in condition(found, "Failed")["message"]

            bad = job("peeping", pod={"annotations": {"roost.dev/gpus": "0"}})
            with pytest.raises(InvalidSpec):
                await api.create(JOBS, bad, SPACE)

    runner.run(scenario())


async def _says(api: Api, name: str, words: str) -> bool:
    return words in str((await status(api, name)).get("reason"))


def _queue(name: str, target: str) -> Object:
    return {
        "apiVersion": QUEUES.api_version,
        "kind": "Queue",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"clusterQueue": target},
    }


def _cluster_queue(name: str, **spec: float) -> Object:
    return {
        "apiVersion": CLUSTER_QUEUES.api_version,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_a_new_operator_goes_on_where_the_last_one_was(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=4)
        async with jobbing(cluster):
            await api.create(JOBS, job("done"), SPACE)
            await reaches(api, "done", "running")
            await pretend(api, (await pods(api, "done"))[0], "succeeds")
            await reaches(api, "done", "succeeded")
            rule = {"max": 3, "delay": "0.1s"}
            await api.create(JOBS, job("train", workers=2, retry=rule), SPACE)
            await reaches(api, "train", "running")
            await pretend(api, (await pods(api, "train"))[0], "fails")
            await reaches(api, "train", "running", attempt=2)
            await api.create(JOBS, job("stays"), SPACE)
            await reaches(api, "stays", "running")
            await api.create(JOBS, job("waits", gpus=4), SPACE)
            await reaches(api, "waits", "queued")
        done = await status(api, "done")
        # It ends while nobody looks.
        await pretend(api, (await pods(api, "train"))[-1], "fails")
        async with jobbing(cluster):
            found = await reaches(api, "train", "running", attempt=3)
            assert found["failures"] == 2
            assert await status(api, "done") == done
            assert len(await pods(api, "done")) == 1
            assert (await status(api, "waits"))["state"] == "queued"
            now = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await pods(api, "train")}
            assert {name for name in now if "-3-" in name} == {
                "train-3-worker-0",
                "train-3-worker-1",
            }
        before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await pods(api, "train")}
        async with jobbing(cluster):
            await reaches(api, "train", "running", attempt=3)
            await asyncio.sleep(0.5)
            now = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await pods(api, "train")}
            assert now == before

    runner.run(scenario())


def test_an_object_goes_when_its_time_is_over(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", ttl="1s"), SPACE)
            await reaches(api, "train", "running")
            await pretend(api, (await pods(api, "train"))[0], "succeeds")
            await reaches(api, "train", "succeeded")
            await until(lambda: _is_gone(api, "train"))
            await until(lambda: all_gone(api, "train"))

    runner.run(scenario())


async def _is_gone(api: Api, name: str) -> bool:
    return not await status(api, name)


def test_a_pod_that_somebody_deletes_starts_the_gang_anew(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", workers=2, retry={"delay": "0.1s"}), SPACE)
            await reaches(api, "train", "running")
            await api.delete(PODS, "train-1-worker-1", SPACE)
            found = await reaches(api, "train", "running", attempt=2)
            assert found["failures"] == 0  # it was not its own fault
            assert len(await pods(api, "train")) == 2

    runner.run(scenario())


def test_what_stands_in_the_way_is_named(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        await api.create(PODS, pod("train-1-worker-0", gpus=0, scheduler="nobody"), SPACE)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", retry={"delay": "0.1s"}), SPACE)
            # The next attempt has other names.
            found = await reaches(api, "train", "running", attempt=2)
            assert "is not this job's" in str(found["view"]["verdict"])
            names = [one["metadata"]["name"] for one in await pods(api, "train")]
            assert names == ["train-2-worker-0"]

    runner.run(scenario())


def test_a_job_moves_to_another_node(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 2, gpus=1)
        async with jobbing(cluster):
            await api.create(JOBS, job("train"), SPACE)
            before = (await reaches(api, "train", "running"))["nodes"]
            (other,) = {"node-0000", "node-0001"} - set(before)
            await patched(api, "train", metadata={"annotations": {"roost.dev/migrate": other}})
            await reaches(api, "train", "running", nodes=[other])
            (moved,) = await pods(api, "train")
            assert moved["metadata"]["name"] == "train-1r2-worker-0"
            assert moved["spec"]["nodeName"] == other
            found = await api.get(JOBS, "train", SPACE)
            assert "roost.dev/migrate" not in found["metadata"].get("annotations", {})

    runner.run(scenario())


def test_events_tell_what_happened(cluster: ControlPlane, api: Api, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with jobbing(cluster):
            await api.create(JOBS, job("train"), SPACE)
            await reaches(api, "train", "running")
            await until(lambda: _told(api, "Running"))
            assert await _told(api, "Starting")

    runner.run(scenario())


async def _told(api: Api, reason: str) -> bool:
    found, _ = await api.list(EVENTS, SPACE)
    return any(one["reason"] == reason and one["regarding"]["kind"] == "Job" for one in found)


def test_kubectl_scales_a_job(cluster: ControlPlane, api: Api, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=4)
        async with jobbing(cluster):
            await api.create(JOBS, job("train", workers="1..4", replicas=1), SPACE)
            await reaches(api, "train", "running", replicas=1)
            await api.patch(JOBS, "train", {"spec": {"replicas": 3}}, SPACE, sub="scale")
            await reaches(api, "train", "running", replicas=3)
            found = await pods(api, "train")
            assert len([one for one in found if "nodeName" in one["spec"]]) == 3
            scale = await api.patch(JOBS, "train", {}, SPACE, sub="scale")
            assert scale["status"] == {"replicas": 3, "selector": "roost.dev/job=train"}

    runner.run(scenario())


def test_queues_tell_what_they_hold(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=2)
        await api.create(CLUSTER_QUEUES, _cluster_queue("vision", limit=2))
        await api.create(QUEUES, _queue("ours", "vision"), SPACE)
        async with jobbing(cluster):
            await api.create(JOBS, job("one", gpus=2, queue="ours"), SPACE)
            await reaches(api, "one", "running")
            await api.create(JOBS, job("two", queue="ours"), SPACE)
            found = await reaches(api, "two", "queued")
            assert found["cause"] == "over-quota"
            await until(lambda: _holds(api, CLUSTER_QUEUES, "vision", ""))
            await until(lambda: _holds(api, QUEUES, "ours", SPACE))

    runner.run(scenario())


def test_a_quota_is_given_back_by_whoever_borrowed_it(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 2, gpus=4)
        for name in ("lab", "shop"):
            await api.create(CLUSTER_QUEUES, _cluster_queue(name, quota=4))
            await api.create(QUEUES, _queue(name, name), SPACE)
        async with jobbing(cluster):
            for name in ("first", "second"):
                await api.create(JOBS, job(name, gpus=4, queue="lab"), SPACE)
                await reaches(api, name, "running")
            await api.create(JOBS, job("owed", gpus=4, queue="shop"), SPACE)
            await reaches(api, "owed", "running")
            await reaches(api, "second", "queued")
            assert (await reaches(api, "first", "running"))["attempt"] == 1

    runner.run(scenario())


async def _holds(api: Api, kind: ResourceKind, name: str, namespace: str) -> bool:
    found = (await api.get(kind, name, namespace)).get("status") or {}
    return (found.get("used"), found.get("waiting"), found.get("running")) == (2, 1, 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_requests_and_answers_that_get_lost(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, seed: int
) -> None:
    chances = Chances(lose_request=0.08, lose_answer=0.08, repeat=0.05, refuse=0.05, cut_watch=0.02)

    async def scenario() -> None:
        await define(api)
        await nodes(api, 4, gpus=8)
        async with (
            FaultyProxy(cluster.url, cluster.authority, seed=seed, chances=chances) as proxy,
            jobbing(cluster, server=proxy.url, lease_s=6.0),
        ):
            for n in range(6):
                await api.create(JOBS, job(f"train-{n}", workers=4), SPACE)
            for n in range(6):
                found = await reaches(api, f"train-{n}", "running", 60)
                made = await pods(api, f"train-{n}")
                ranks = [one["metadata"]["labels"]["roost.dev/index"] for one in made]
                assert sorted(ranks) == ["0", "1", "2", "3"], (found["attempt"], ranks)
            await api.delete(JOBS, "train-0", SPACE)
            await until(lambda: all_gone(api, "train-0"), 40)

    runner.run(scenario())
