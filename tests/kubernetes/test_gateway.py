"""The same words on a cluster: ``roost --context`` against a real API server."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.kubernetes.jobbing import all_gone, define, jobbing
from tests.kubernetes.operating import bound, gang
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.kubelet import Kubelet
from tests.support.kubernetes.nodes import create, nodes, until

from roost.client import Client, JobHandle
from roost.client.machine import ServerMachine
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, PODS, QUEUES
from roost.kubernetes.gateway.local import Gateway
from roost.kubernetes.gateway.transport import ClusterTransport


def context(plane: ControlPlane) -> str:
    return str(yaml.safe_load(Path(plane.kubeconfig).read_text())["current-context"])


@contextmanager
def client(plane: ControlPlane) -> Iterator[Client]:
    """What a command line has while it runs; it blocks, and so belongs into a thread."""
    gateway = Gateway(context(plane), str(plane.kubeconfig))
    url, token = gateway.open()
    try:
        with Client(url, token) as found:
            found.machine = ServerMachine(same=False, takes_folders=False)
            yield found
    finally:
        gateway.close()


def typed(plane: ControlPlane, *args: str) -> tuple[int, str]:
    """A command line as people type it."""
    program = Path(sys.executable).with_name("roost")
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "COLUMNS": "200"}

    async def run() -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            program,
            *args,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()

    return asyncio.run(run())


def become(job: JobHandle, state: str) -> None:
    """Wait until a job is in a state."""
    deadline = time.monotonic() + 60
    while job.status().state != state:
        assert time.monotonic() < deadline, job.view
        time.sleep(0.1)


def sleeping(name: str, **given: object) -> dict[str, object]:
    return {"name": name, "image": "busybox", "command": ["sleep", "9"], **given}


def test_the_same_words_work_on_a_cluster(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    def talk() -> None:
        with client(cluster) as here:
            half = here.submit(sleeping("half", resources={"gpu": 0.5}))
            pair = here.submit(sleeping("pair", workers=2))
            big = here.submit(sleeping("big", workers=2, resources={"gpu": 4}))
            assert half.id.startswith("default.half-")
            assert here.job("half").id == half.id
            become(half, "running")
            become(pair, "running")
            assert {job.id for job in here.jobs()} == {half.id, pair.id, big.id}
            (node,) = [node for node in here.nodes() if node["gpus_free"] < 4]
            assert node["gpus_free"] == 1.5

            why = big.explain()
            assert why["cause"] == "no-capacity"
            assert "fewer than 8 GPUs are free" in why["reason"]
            assert why["remedies"]
            told = ""
            for _ in range(100):  # events are written some a second
                told = " ".join(line.text for line in big.events())
                if "fewer than 8 GPUs" in told:
                    break
                time.sleep(0.1)
            assert "fewer than 8 GPUs" in told
            assert here.state()["core"]["jobs"]

            assert pair.suspend().state == "suspended"
            assert pair.resume().state in {"queued", "starting", "running"}
            assert big.cancel().state == "cancelled"
            big.delete()
            with pytest.raises(NotFound):
                here.job(big.id)
            with pytest.raises(Conflict, match="not on Kubernetes"):
                half.snapshot("one")

    async def go() -> None:
        await define(api)
        await nodes(api, 2, gpus=4, labels={"roost.dev/gpus-as": "both"})
        async with jobbing(cluster):
            await asyncio.to_thread(talk)
            code, said = await asyncio.to_thread(
                typed, cluster, "--context", context(cluster), "list"
            )
            assert (code, "half-" in said, "running" in said) == (0, True, True)

    runner.run(go())


def test_gangs_of_others_are_listed_explained_and_left_to_their_owners(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    def talk() -> None:
        with client(cluster) as here:
            ring = here.job("default.group.ring")
            become(ring, "running")
            large = here.job("large")
            assert (large.id, large.view.state) == ("default.group.large", "queued")
            deadline = time.monotonic() + 60
            while not large.status().reason:  # its pods are told after a second
                assert time.monotonic() < deadline
                time.sleep(0.1)
            why = large.explain()
            assert why["cause"] == "no-capacity"
            assert "8 GPUs" in why["reason"]
            with pytest.raises(Conflict, match=r"belongs to Pod large .* kubectl"):
                large.cancel()
            part = here.job("half").explain()
            assert part["reason"] == "waits for the whole gang: 1 of 2 pods can be placed"

    async def go() -> None:
        await define(api)
        await nodes(api, 2, gpus=4)
        async with jobbing(cluster):
            await create(api, PODS, gang("ring", 4))
            # Else the large one takes all GPUs if it is complete first.
            await until(lambda: bound(api, 4))
            await create(api, PODS, [*gang("large", 8), *gang("half", 2)[:1]])
            await asyncio.to_thread(talk)
            where = ("--context", context(cluster))
            code, said = await asyncio.to_thread(typed, cluster, *where, "list", "-A")
            assert (code, "default.group.large" in said) == (0, True), said
            for verb in ("get", "explain", "events"):
                code, said = await asyncio.to_thread(typed, cluster, *where, verb, "large")
                assert (code, "8 GPUs" in said) == (0, True), said
            assert said.count("FailedScheduling") == 1, said

    runner.run(go())


def test_the_same_request_twice_is_one_job(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    def talk() -> None:
        with client(cluster) as here:
            first = here.submit(sleeping("once"), key="k1")
            assert here.submit(sleeping("once"), key="k1").id == first.id
            assert first.status().cause == "unseen"  # nobody operates here
        with client(cluster) as here:
            assert here.submit(sleeping("once"), key="k1").id == first.id

    runner.run(define(api))
    talk()


def test_what_a_cluster_refuses_is_said_in_a_sentence(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    runner.run(define(api))
    with client(cluster) as here:
        with pytest.raises(InvalidSpec, match="needs an image"):
            here.submit({"name": "bare", "command": ["sleep", "9"]})
        with pytest.raises(RoostError, match="nope"):
            here.submit(sleeping("lost", queue="nope"))
        with pytest.raises(NotFound, match="no job"):
            here.job("nobody")


def test_a_context_that_is_not_there_is_named(cluster: ControlPlane) -> None:
    code, said = typed(cluster, "--context", "nowhere", "list")
    assert code == 2
    assert "nowhere" in said
    assert "Traceback" not in said


def test_a_queue_is_made_on_the_cluster(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    def talk() -> None:
        with client(cluster) as here:
            here.set_queue("vision", {"quota_milli": 2000})
            become(here.submit(sleeping("see", queue="vision")), "running")
            (queue,) = [queue for queue in here.queues() if queue["id"] == "vision"]
            assert queue["gpus_used"] == 1

    async def go() -> None:
        await define(api)
        await nodes(api, 1, gpus=4)
        async with jobbing(cluster):
            await asyncio.to_thread(talk)
        promise = await api.get(CLUSTER_QUEUES, "vision")
        assert promise["spec"]["quota"] == 2
        assert (await api.get(QUEUES, "vision", "default"))["spec"] == {"clusterQueue": "vision"}

    runner.run(go())


def test_logs_of_pods_are_read_and_followed(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path
) -> None:
    script = "for n in 1 2 3; do echo line $n; sleep 0.2; done"

    def talk() -> list[str]:
        with client(cluster) as here:
            job = here.submit(
                {"name": "talk", "image": "busybox", "run": script, "resources": {"gpu": 1}}
            )
            followed = list(job.logs(follow=True))
            assert job.wait(timeout=60).state == "succeeded"
            assert list(job.logs()) == followed
            assert job.workers() == ["worker-0"]
            return followed

    async def go() -> list[str]:
        await define(api)
        async with Kubelet(api, "node-a", tmp_path, gpus=1), jobbing(cluster):
            return await asyncio.to_thread(talk)

    assert runner.run(go()) == ["line 1", "line 2", "line 3"]


def test_logs_outlive_their_pods(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path
) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo begun; while :; do sleep 0.05; done"

    def talk() -> str:
        with client(cluster) as here:
            job = here.submit({"name": "talk", "image": "busybox", "run": script})
            become(job, "running")
            deadline = time.monotonic() + 60
            while not list(job.logs()):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            job.cancel()
            become(job, "cancelled")
            return job.id

    async def go() -> None:
        await define(api)
        async with Kubelet(api, "node-a", tmp_path, gpus=1), jobbing(cluster):
            job = await asyncio.to_thread(talk)
            await until(lambda: all_gone(api, job.partition(".")[2]))
            words = ("--context", context(cluster), "logs", job)

            async def said() -> str:
                return (await asyncio.to_thread(typed, cluster, *words))[1]

            async def kept() -> bool:
                text = await said()  # the shell may tell of its child between the two
                return text.startswith("begun\n") and text.endswith("saved\n")

            await until(kept)

    runner.run(go())


def test_forecasts_are_of_the_policy_that_the_operator_runs(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    text = "tiresias:limits=60/600,promote=4"

    def told() -> tuple[str, str, list[str]]:
        with client(cluster) as here:
            plan, state = here.plan(sleeping("one")), here.state()
            return state["policy"], state["placer"], plan["notes"]

    async def go() -> None:
        await define(api)
        await nodes(api, 1, gpus=4)
        policy, placer, notes = await asyncio.to_thread(told)
        assert (policy, placer) == ("priority", "topology")
        assert "no operator was seen" in notes[0]
        async with jobbing(cluster, policy=text, placer="pack"):
            assert await asyncio.to_thread(told) == (text, "pack", [])
        policy, _, notes = await asyncio.to_thread(told)
        assert policy == text
        assert "no operator leads now" in notes[0]

    runner.run(go())


def test_what_is_read_without_a_gateway_is_what_a_gateway_says(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    def answers(here: Client, job: str) -> dict[str, object]:
        return {
            "jobs": here.page(sort="name").raw,
            "some": here.page(state=["queued"], sort="-gpus", limit=1).raw,
            "job": here.job(job).view.raw,
            "file": here.job(job).document(),
            "nodes": here.nodes(),
            "queues": here.queues(),
            "events": sorted(line.text for line in here.history(job)),
        }

    def talk() -> None:
        with client(cluster) as here:
            held = here.submit(sleeping("held", resources={"gpu": 0.5}))
            here.submit(sleeping("big", workers=2, resources={"gpu": 4}))
            become(held, "running")
            transport = ClusterTransport(context(cluster), str(cluster.kubeconfig))
            with Client("http://127.0.0.1", transport=transport) as reader:
                for _ in range(50):  # what is written meanwhile is seen a moment apart
                    read, said = answers(reader, held.id), answers(here, held.id)
                    for page in (read, said):
                        forget_revisions(page)
                    if read == said:
                        break
                    time.sleep(0.2)
                assert read == said
                assert transport._gateway is None
                assert reader.job(held.id).explain()["job"] == held.id
                assert transport._gateway is not None

    async def go() -> None:
        await define(api)
        await nodes(api, 2, gpus=4)
        await api.create(CLUSTER_QUEUES, {"metadata": {"name": "team"}, "spec": {"quota": 2}})
        async with jobbing(cluster):
            await asyncio.to_thread(talk)

    runner.run(go())


def forget_revisions(value: object) -> None:
    """Leave out what counts the changes that one gateway has seen."""
    if isinstance(value, dict):
        value.pop("rev", None)
    for part in value.values() if isinstance(value, dict) else value:  # type: ignore[attr-defined]
        if isinstance(part, dict | list):
            forget_revisions(part)
