"""What the agent tells of its node: two conditions, a taint while a GPU is unhealthy, one label.

    condition GpusHealthy     False: which GPUs failed, and how
    condition GpuSharesHeld   False: why shares on this node cannot be held
    taint roost.dev/gpu-unhealthy:NoSchedule   as long as GpusHealthy is False
    label roost.dev/gpu-count                  how many GPUs there are, however they are counted

Nothing is written that is written already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from roost.errors import Conflict
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, Object
from roost.kubernetes.objects.nodes import GPU_COUNT, GPU_KIND
from roost.kubernetes.objects.values import labels_of, section, sections

HEALTHY, HELD = "GpusHealthy", "GpuSharesHeld"
TAINT = "roost.dev/gpu-unhealthy"


class NodeHealth(NamedTuple):
    """What there is to tell: unhealthy GPUs, and why shares are not held."""

    gpus: int
    faults: Mapping[int, str]
    unheld: Sequence[str]
    #: What partitions of GPUs are called; "" where GPUs are whole.
    kind: str = ""

    def conditions(self) -> dict[str, tuple[bool, str, str]]:
        """Whether, why in a word, and in a sentence; by type."""
        faults = "; ".join(f"GPU {gpu}: {why}" for gpu, why in sorted(self.faults.items()))
        return {
            HEALTHY: (
                (False, "GpuFailed", faults)
                if faults
                else (True, "NoFaults", f"{self.gpus} GPUs answer")
            ),
            HELD: (
                (False, "Unheld", "; ".join(self.unheld))
                if self.unheld
                else (True, "Held", "shares of GPUs are held")
            ),
        }


class NodeReport:
    """Writes findings on the node's object."""

    def __init__(self, api: Api, node: str, now: Callable[[], float]) -> None:
        self._api, self._node, self._now = api, node, now
        self._told: NodeHealth | None = None

    async def tell(self, findings: NodeHealth) -> None:
        """Write what is new; raises what the API raises, and is to be called again then."""
        if findings == self._told:
            return
        found = await self._api.get(NODES, self._node)
        if changed := self._conditions(found, findings):
            body = {"status": {"conditions": changed}}
            await self._api.patch(NODES, self._node, body, sub="status", strategy="strategic")
        labels = {GPU_COUNT: str(findings.gpus)}
        if findings.kind:
            labels[GPU_KIND] = findings.kind
        if labels.items() - labels_of(found).items():
            await self._api.patch(NODES, self._node, {"metadata": {"labels": labels}})
        await self._taint(found, unhealthy=bool(findings.faults))
        self._told = findings

    def _conditions(self, node: Object, findings: NodeHealth) -> list[Object]:
        now = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        known = {one.get("type"): one for one in sections(section(node, "status"), "conditions")}
        changed = []
        for kind, (holds, reason, message) in findings.conditions().items():
            new = {
                "type": kind,
                "status": "True" if holds else "False",
                "reason": reason,
                "message": message,
            }
            old = known.get(kind, {})
            if {name: old.get(name) for name in new} != new:
                same = old.get("status") == new["status"]
                since = old.get("lastTransitionTime", now) if same else now
                times = {"lastHeartbeatTime": now, "lastTransitionTime": since}
                changed.append({**new, **times})
        return changed

    async def _taint(self, node: Object, *, unhealthy: bool) -> None:
        taints = sections(section(node, "spec"), "taints")
        others = [one for one in taints if one.get("key") != TAINT]
        if unhealthy == (len(others) < len(taints)):
            return
        ours = [{"key": TAINT, "value": "true", "effect": "NoSchedule"}] if unhealthy else []
        # The list as a whole, and only if nobody changed the node meanwhile.
        version = section(node, "metadata").get("resourceVersion")
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": [*others, *ours]}}
        try:
            await self._api.patch(NODES, self._node, body)
        except Conflict:
            fresh = await self._api.get(NODES, self._node)
            await self._taint(fresh, unhealthy=unhealthy)
