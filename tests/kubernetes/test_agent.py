"""The agent within a test, on a real API server and a kubelet's own protocol."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
from tests.support.kubernetes.nodes import node, until
from tests.unit.kubernetes.agent.fake_kubelet import FakeKubelet

from roost.core.spec import CPU_SLOT, NodeId, NodeSpec
from roost.engines.local.devices import Machine
from roost.errors import Conflict
from roost.kubernetes.agent.agent import AgentOptions, NodeAgent
from roost.kubernetes.agent.report import TAINT
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, Object

NAME = "gpus"
WHOLE = "nvidia.com/gpu"
SLOTS = Machine(NodeSpec(NodeId(NAME), 4, CPU_SLOT), (0,))


@pytest.mark.usefixtures("cluster")
def test_a_gpu_that_fails_becomes_a_condition_and_a_taint(api: Api, runner: asyncio.Runner) -> None:
    async def story(folder: Path) -> None:
        await api.create(NODES, node(NAME, gpus=0))
        async with FakeKubelet(folder) as kubelet:
            options = AgentOptions(NAME, folder / "home", folder, slots=4)
            agent = NodeAgent(api, options, SLOTS)
            running = asyncio.create_task(agent.run())
            try:
                await kubelet.until(WHOLE, 4)
                await until(lambda: says("GpusHealthy", "True"))
                with pytest.raises(Conflict, match="another agent runs on this node"):
                    await NodeAgent(api, options, SLOTS).run()
                agent.fail(1, "Xid 79: it fell off the bus")
                await kubelet.until(WHOLE, 3)
                found = await until(lambda: says("GpusHealthy", "False"))
                assert found["message"] == "GPU 1: Xid 79: it fell off the bus"
                await until(is_tainted)
                await kubelet.restart()
                await kubelet.until(WHOLE, 3)  # it is told again, and of the same
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    async def says(kind: str, status: str) -> Object:
        found = (await api.get(NODES, NAME))["status"]["conditions"]
        (told,) = [one for one in found if one["type"] == kind] or [{}]
        return told if told.get("status") == status else {}

    async def is_tainted() -> bool:
        taints = (await api.get(NODES, NAME))["spec"].get("taints") or ()
        return {"key": TAINT, "value": "true", "effect": "NoSchedule"} in taints

    async def bounded(folder: Path) -> None:
        # An agent that ends waits for its sharing daemon for up to ten minutes.
        async with asyncio.timeout(120):
            await story(folder)

    with tempfile.TemporaryDirectory(prefix="roost-") as made:
        runner.run(bounded(Path(made)))
