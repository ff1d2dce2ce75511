"""What is told of a node: conditions, a label, a taint, and nothing twice."""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

from roost.errors import Conflict
from roost.kubernetes.agent.report import TAINT, NodeHealth, NodeReport
from roost.kubernetes.client.api import Api

OTHER = {"key": "team", "value": "a", "effect": "NoSchedule"}
SOUND = NodeHealth(4, {}, ())
SICK = NodeHealth(4, {1: "Xid 79: it fell off the bus"}, ("no turns: no driver",))


class OneNode:
    """An API server that keeps one node; ``late``: so many patches of it come too late."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "n1", "labels": {}, "resourceVersion": "1"},
            "spec": {"taints": [OTHER]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.late = self.patches = 0

    async def get(self, *_: object) -> dict[str, Any]:
        return copy.deepcopy(self.node)

    async def patch(self, _: object, __: str, body: dict[str, Any], **given: str) -> None:
        self.patches += 1
        if given.get("sub") == "status":
            assert given["strategy"] == "strategic"
            known = {one["type"]: one for one in self.node["status"]["conditions"]}
            known |= {one["type"]: one for one in body["status"]["conditions"]}
            self.node["status"]["conditions"] = list(known.values())
            return
        if "spec" in body:
            if self.late:
                self.late -= 1
                self.node["metadata"]["resourceVersion"] = "2"
                raise Conflict("it was changed")
            assert body["metadata"]["resourceVersion"] == self.node["metadata"]["resourceVersion"]
            self.node["spec"] = body["spec"]
        self.node["metadata"]["labels"] |= body.get("metadata", {}).get("labels", {})

    def condition(self, kind: str) -> dict[str, str]:
        (found,) = [one for one in self.node["status"]["conditions"] if one["type"] == kind]
        return dict(found)


def tell(server: OneNode, *findings: NodeHealth) -> None:
    times = iter(range(0, 6000, 60))
    report = NodeReport(cast("Api", server), "n1", lambda: float(next(times)))

    async def go() -> None:
        for one in findings:
            await report.tell(one)

    asyncio.run(go())


def test_a_sound_node_has_conditions_and_a_label_and_no_taint() -> None:
    server = OneNode()
    tell(server, SOUND, SOUND)
    assert server.condition("GpusHealthy")["status"] == "True"
    assert server.condition("GpuSharesHeld")["status"] == "True"
    assert server.node["metadata"]["labels"] == {"roost.dev/gpu-count": "4"}
    assert server.node["spec"]["taints"] == [OTHER]
    assert server.patches == 2
    tell(server, SOUND)  # another agent finds it told
    assert server.patches == 2


def test_partitions_of_gpus_are_called_what_they_are() -> None:
    server = OneNode()
    tell(server, NodeHealth(14, {}, (), "H200-1g.18gb"))
    wanted = {"roost.dev/gpu-count": "14", "roost.dev/gpu-kind": "H200-1g.18gb"}
    assert server.node["metadata"]["labels"] == wanted


def test_a_gpu_that_failed_is_named_and_keeps_others_away() -> None:
    server = OneNode()
    server.late = 1
    tell(server, SOUND, SICK)
    found = server.condition("GpusHealthy")
    assert (found["status"], found["message"]) == ("False", "GPU 1: Xid 79: it fell off the bus")
    assert found["lastTransitionTime"] == "1970-01-01T00:01:00Z"
    assert server.condition("GpuSharesHeld")["message"] == "no turns: no driver"
    assert server.node["spec"]["taints"] == [
        OTHER,
        {"key": TAINT, "value": "true", "effect": "NoSchedule"},
    ]
    tell(server, SOUND)
    assert server.node["spec"]["taints"] == [OTHER]
    assert server.condition("GpusHealthy")["status"] == "True"
