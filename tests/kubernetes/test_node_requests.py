"""A Job that waits for nodes on a real API server: what autoscalers see of it."""

from __future__ import annotations

import asyncio

from tests.kubernetes.jobbing import define, job, jobbing, status
from tests.kubernetes.operating import pods
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, Object


async def asked(api: Api) -> list[Object]:
    """Placeholders that say that no node has room for them."""
    found = await pods(api, labels="roost.dev/placeholder")
    return [
        pod
        for pod in found
        for condition in pod["status"].get("conditions") or ()
        if (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    ]


async def _is(api: Api, name: str, state: str) -> bool:
    return (await status(api, name)).get("state") == state


def test_a_job_asks_for_nodes_and_runs_when_they_come(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        async with jobbing(cluster, asks_for_nodes=True):
            await api.create(JOBS, job("train", workers=2, gpus=8))

            async def both() -> list[Object]:
                found = await asked(api)
                return found if len(found) == 2 else []

            found = await until(both)
            assert {pod["metadata"]["name"] for pod in found} == {
                "train-nodes-worker-0",
                "train-nodes-worker-1",
            }

            async def told() -> bool:
                said = str((await status(api, "train")).get("reason"))
                return "nodes for 2 workers were asked for at" in said

            await until(told)
            await nodes(api, 2, gpus=8)
            await until(lambda: _is(api, "train", "running"))

            async def gone() -> bool:
                return not await pods(api, labels="roost.dev/placeholder")

            await until(gone)
            workers = await pods(api, labels="roost.dev/job=train")
            assert [pod["status"]["phase"] for pod in workers] == ["Running", "Running"]
            for pod in workers:
                notes = pod["metadata"]["annotations"]
                assert notes["karpenter.sh/do-not-disrupt"] == "true"
                assert notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"

    runner.run(scenario())
