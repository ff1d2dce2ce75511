"""A pool of equal nodes as Cluster Autoscaler keeps one: it reads nothing but pods and nodes.

Pods that say ``Unschedulable`` are packed onto what is free and what is coming, the first that
fits; for the rest it asks for more nodes, which come some time later. A node that was empty for a
while is marked and removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.kubernetes.client.kinds import NODES, PODS, Object
from roost_bench.teams.cluster import MemoryCluster, merged

GPUS = "nvidia.com/gpu"
_OVER = ("Succeeded", "Failed")
_TAINT = "ToBeDeletedByClusterAutoscaler"


@dataclass(slots=True)
class NodePool:
    """Nodes that come and go."""

    cluster: MemoryCluster
    most: int = 4
    gpus: int = 8
    boot_s: float = 90.0
    idle_s: float = 300.0
    #: When nodes that were asked for are there.
    coming: list[float] = field(default_factory=list)
    made: int = 0
    _empty_since: dict[str, float] = field(default_factory=dict)
    _marked: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Grow or shrink by what pods say now."""
        now = self.cluster.now()
        for at in [at for at in self.coming if at <= now]:
            self.coming.remove(at)
            self._join()
        self._grow(now)
        self._shrink(now)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.cluster.objects(NODES))

    def _grow(self, now: float) -> None:
        free = [*self._free().values(), *(self.gpus for _ in self.coming)]
        for need in sorted(self._wanted(), reverse=True):
            room = next((n for n, left in enumerate(free) if left >= need), None)
            if room is not None:
                free[room] -= need
            elif self.size + len(self.coming) < self.most and need <= self.gpus:
                self.coming.append(now + self.boot_s)
                free.append(self.gpus - need)

    def _shrink(self, now: float) -> None:
        used = {pod["spec"]["nodeName"] for pod in self._alive() if pod["spec"].get("nodeName")}
        for key, node in list(self.cluster.objects(NODES).items()):
            name = key[1]
            if name in used:
                self._empty_since.pop(name, None)
                if self._marked.pop(name, None) is not None:
                    self._taint(node, [])
                continue
            since = self._empty_since.setdefault(name, now)
            if name in self._marked:
                if now - self._marked[name] >= 10.0:  # noqa: PLR2004 - a moment to be heard
                    self._forget(name)
                    self.cluster.lose(name)
            elif now - since >= self.idle_s:
                self._marked[name] = now
                self._taint(node, [{"key": _TAINT, "effect": "NoSchedule"}])

    def fail(self) -> str:
        """Let the machine with most pods on it break; its name."""
        counts = {name: 0 for _, name in self.cluster.objects(NODES)}
        for pod in self._alive():
            if pod["spec"].get("nodeName") in counts:
                counts[pod["spec"]["nodeName"]] += 1
        name = max(sorted(counts), key=counts.__getitem__, default="")
        if name:
            self._forget(name)
            self.cluster.lose(name)
        return name

    def _forget(self, name: str) -> None:
        self._empty_since.pop(name, None)
        self._marked.pop(name, None)

    def _taint(self, node: Object, taints: list[Object]) -> None:
        changed = merged(node, {"spec": {"taints": taints}})
        self.cluster.put(NODES, ("", node["metadata"]["name"]), changed)

    def _join(self) -> None:
        self.made += 1
        name = f"pool-{self.made}"
        offers = {"cpu": "64", "memory": "512Gi", "pods": "110", GPUS: str(self.gpus)}
        node = {
            "metadata": {"name": name, "uid": name, "labels": {"pool": "gpu"}},
            "spec": {},
            "status": {
                "allocatable": offers,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.cluster.put(NODES, ("", name), node)

    def _wanted(self) -> list[int]:
        """What pods ask for that say that they can be nowhere."""
        return [
            gpus_of(pod)
            for pod in self._alive()
            if not pod["spec"].get("nodeName")
            and any(
                one.get("reason") == "Unschedulable"
                for one in pod["status"].get("conditions") or ()
            )
        ]

    def _free(self) -> dict[str, int]:
        free = {
            name: self.gpus for _, name in self.cluster.objects(NODES) if name not in self._marked
        }
        for pod in self._alive():
            node = pod["spec"].get("nodeName")
            if node in free:
                free[node] -= gpus_of(pod)
        return free

    def _alive(self) -> list[Object]:
        pods = self.cluster.objects(PODS).values()
        return [pod for pod in pods if pod["status"]["phase"] not in _OVER]


def gpus_of(pod: Object) -> int:
    """The GPUs that a pod asks for."""
    return sum(
        int((container.get("resources") or {}).get("limits", {}).get(GPUS, 0))
        for container in pod["spec"]["containers"]
    )
