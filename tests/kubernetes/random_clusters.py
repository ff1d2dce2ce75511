"""Random small clusters and a pod for each: would it get a node?

A cluster has one to three nodes, and pods that are there already and fit there. The pod asks for
amounts near to what is left, for ports, for labels, and tolerates some taints; it wants to be near
some pods, far from others, or spread. Each is the same for the same seed.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from tests.kubernetes.random_selectors import NodeTerms
from tests.kubernetes.random_volumes import RandomVolumes
from tests.support.kubernetes.nodes import node, pod

from roost.kubernetes.client.kinds import Object

MIG, GPU, HCA = "nvidia.com/mig-1g.5gb", "nvidia.com/gpu", "rdma/hca"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_UNITS = {
    "cpu": "{}",
    "memory": "{}Gi",
    MIG: "{}",
    GPU: "{}",
    HCA: "{}",
    "hugepages-2Mi": "{}Mi",
    "ephemeral-storage": "{}Gi",
}
#: What must be asked for in the same amount as a limit.
_LIMITED = (MIG, GPU, HCA, "hugepages-2Mi")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_ADDRESSES = ("", "10.0.0.1", "10.0.0.2", "0.0.0.0")  # noqa: S104 - written, not listened on


class SmallCluster:
    """Nodes, the pods on them, and a pod that looks for a place among them."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.name = f"case-{seed}"
        count = self._chance.choice((1, 1, 1, 2, 3))
        self._nodes = [self._node() for _ in range(count)]
        self._there = [
            (at, each) for at, one in enumerate(self._nodes) for each in self._residents(one[2])
        ]
        self._wanted = self._pod()
        self._fellows = _Fellows(seed, len(self._there))
        self._node_terms = NodeTerms(seed, count)
        self._volumes = RandomVolumes(seed, count, len(self._there))
        if self._volumes.decide:  # and nothing else: of all at once hardly any pod finds a place
            asked = [_container({"cpu": 1}, [])]
            self._wanted = {"containers": asked, "nodeSelector": {}}
            self._fellows = _Fellows(seed, len(self._there), shy=False)

    def nodes(self, copy_of: str) -> list[Object]:
        """Its nodes, in a copy of the cluster."""
        made = []
        for at, (labels, taints, has) in enumerate(self._nodes):
            own = {**labels, "cluster": f"{self.name}-{copy_of}", "at": str(at)}
            own |= self._node_terms.labels(at)
            own |= self._volumes.labels(at)
            made.append(node(f"{self.name}-{copy_of}-{at}", gpus=0, labels=own, taints=taints))
            made[-1]["status"]["allocatable"] = dict(has)
            made[-1]["status"]["capacity"] = dict(has)
            del made[-1]["metadata"]["labels"]["type"]  # nothing runs, nothing ends
        return made

    def residents(self, copy_of: str) -> list[Object]:
        """The pods that are there already, in a copy of the cluster."""
        return [
            pod(
                f"{self.name}-{copy_of}-on-{number}",
                gpus=0,
                scheduler="somebody",
                nodeName=f"{self.name}-{copy_of}-{at}",
                containers=[container],
                **self._fellows.resident(number, f"{self.name}-{copy_of}"),
                **self._volumes.resident(number, f"{self.name}-{copy_of}"),
            )
            for number, (at, container) in enumerate(self._there)
        ]

    def wanted(self, copy_of: str, scheduler: str, at: str = "") -> Object:
        """The pod that looks for a place in a copy of the cluster, or on one node there."""
        spec = copy.deepcopy(self._wanted)
        selector = {**spec.pop("nodeSelector"), "cluster": f"{self.name}-{copy_of}"}
        if at:
            selector["at"] = at
        name = f"{self.name}-{copy_of}-{f'at-{at}' if at else 'wanted'}"
        labels, wishes = self._fellows.wanted(f"{self.name}-{copy_of}")
        affinity = {**spec.pop("affinity", {}), **wishes.pop("affinity", {})}
        if terms := self._node_terms.terms(f"{self.name}-{copy_of}"):
            required = affinity.setdefault("nodeAffinity", {_REQUIRED: {"nodeSelectorTerms": []}})
            required[_REQUIRED]["nodeSelectorTerms"] += terms
        more = {"affinity": affinity} if affinity else {}
        # Its claims are its own: what the first one took is not there for the second.
        volumes = self._volumes.wanted(f"{self.name}-{'p' if at else copy_of}")
        spec = {**spec, **wishes, **more, **volumes, "nodeSelector": selector}
        return pod(name, gpus=0, scheduler=scheduler, labels=labels, **spec)

    def storage(self, copy_of: str) -> list[Object]:
        """Claims, volumes and limits of a copy of the cluster."""
        name = f"{self.name}-{copy_of}"
        made = [*self._volumes.limits(name), *self._volumes.of_residents(name)]
        return made + self._volumes.of_wanted(name)

    def storage_again(self) -> list[Object]:
        """The same once more for a pod that is to go to one node, wherever the first one went."""
        return self._volumes.of_wanted(f"{self.name}-p")

    def _node(self) -> tuple[dict[str, str], list[dict[str, str]], dict[str, str]]:
        pick = self._chance.choice
        labels = {"zone": pick("ab")}
        if pick((True, False)):
            labels["rank"] = pick(("1", "5", "x"))
        taints = [
            {"key": pick(("red", "blue")), "value": pick(("", "v")), "effect": pick(_EFFECTS)}
            for _ in range(pick((0, 0, 0, 1)))
        ]
        amounts = {
            "cpu": pick((4, 8)),
            "memory": pick((4, 8)),
            MIG: pick((0, 3, 4)),
            GPU: pick((0, 4, 5)),
            HCA: pick((0, 3, 4)),
            "hugepages-2Mi": pick((0, 8)),
            "ephemeral-storage": pick((4, 8)),
        }
        has = {name: _UNITS[name].format(n) for name, n in amounts.items() if n}
        return labels, taints, {**has, "pods": str(pick((2, 3, 4, 110)))}

    def _residents(self, has: dict[str, str]) -> list[Object]:
        """Up to three containers, each of another pod, that fit together on a node."""
        pick, most = self._chance.choice, int(has["pods"])
        ports = self._chance.sample([(n, p) for n in (80, 81) for p in ("TCP", "UDP")], 3)
        made = []
        for number, protocol in ports[: min(pick((0, 1, 2, 3)), most)]:
            asked = {"cpu": 1, "memory": 1, "ephemeral-storage": pick((0, 1))}
            made.append(_container(asked, [_port(number, pick(_ADDRESSES), protocol)]))
        return made

    def _pod(self) -> Object:
        pick = self._chance.choice
        amounts = {
            "cpu": pick((1, 2, 4, 7)),
            "memory": pick((1, 2, 5)),
            MIG: pick((1, 3, 4)),
            GPU: pick((1, 4, 5)),
            HCA: pick((2, 3, 4)),
            "hugepages-2Mi": pick((4, 8, 10)),
            "ephemeral-storage": pick((2, 4, 7)),
        }
        names = self._chance.sample(sorted(amounts), pick((0, 1, 1, 2)))
        asked = {"cpu": 1, **{name: amounts[name] for name in names}}
        ports = [
            _port(pick((80, 81)), pick(_ADDRESSES), pick(("TCP", "UDP")))
            for _ in range(pick((0, 0, 0, 1, 2)))
        ]
        spec: Object = {"containers": [_container(asked, ports)], "nodeSelector": {}}
        if pick((True, False, False)):
            spec["tolerations"] = [self._toleration()]
        if pick((True, False, False)):
            terms = [{"matchExpressions": [self._expression()]} for _ in range(pick((1, 2)))]
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
        if pick((True, False, False, False)):
            spec["nodeSelector"] = {"zone": pick("ab")}
        return spec

    def _toleration(self) -> dict[str, str]:
        pick = self._chance.choice
        found = {"effect": pick(("", "NoSchedule", "NoExecute"))}
        if pick((True, False)):
            return {**found, "operator": "Exists", "key": pick(("", "red", "blue"))}
        return {**found, "key": pick(("red", "blue")), "value": pick(("", "v"))}

    def _expression(self) -> dict[str, Any]:
        pick = self._chance.choice
        operator = pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        key = "rank" if operator in ("Gt", "Lt") else pick(("zone", "rank", "none"))
        found: dict[str, Any] = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = self._chance.sample(("a", "b", "1", "5"), pick((1, 2)))
        elif operator in ("Gt", "Lt"):
            found["values"] = [pick(("0", "3", "5"))]
        return found


class _Fellows:
    """What the pods of a cluster want of each other, drawn apart from all else."""

    def __init__(self, seed: int, residents: int, *, shy: bool = True) -> None:
        self._chance = Random(seed + 0.5)
        self._apps = [self._chance.choice("xy") for _ in range(residents + 1)]
        often = (shy, False, False)
        self._terms = [self._terms_of(often, "podAntiAffinity") for _ in range(residents)]
        self._near = self._terms_of(often, "podAffinity")
        self._apart = self._terms_of(often, "podAntiAffinity")
        count = self._chance.choice((0, 0, 1, 2)) if shy else 0
        self._spread = [self._constraint() for _ in range(count)]

    def resident(self, number: int, cluster: str) -> Object:
        """Labels and wishes of a pod that is there."""
        found: Object = {"labels": self._labels(number, cluster)}
        if self._terms[number]:
            found["affinity"] = {"podAntiAffinity": _scoped(self._terms[number], cluster)}
        return found

    def wanted(self, cluster: str) -> tuple[dict[str, str], Object]:
        """Labels and wishes of the pod that looks for a place."""
        given = (("podAffinity", self._near), ("podAntiAffinity", self._apart))
        affinity = {name: _scoped(terms, cluster) for name, terms in given if terms}
        wishes: Object = {"affinity": affinity} if affinity else {}
        once = {one["topologyKey"]: one for one in self._spread}
        if once:
            wishes["topologySpreadConstraints"] = [
                {**one, "labelSelector": _inside(one["labelSelector"], cluster)}
                for one in once.values()
            ]
        return self._labels(-1, cluster), wishes

    def _labels(self, number: int, cluster: str) -> dict[str, str]:
        return {"app": self._apps[number], "in": cluster}

    def _terms_of(self, often: tuple[bool, ...], name: str) -> list[Object]:
        pick = self._chance.choice
        if not pick(often):
            return []
        count = pick((1, 1, 2)) if name == "podAffinity" else 1
        return [
            {"labelSelector": self._selector(), "topologyKey": pick(("zone", "at", "rank"))}
            for _ in range(count)
        ]

    def _selector(self) -> Object:
        pick = self._chance.choice
        if pick((True, False)):
            return {"matchLabels": {"app": pick("xyz")}}
        operator = pick(("In", "NotIn", "Exists", "DoesNotExist"))
        found: dict[str, Any] = {"key": pick(("app", "none")), "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = [pick("xy")]
        return {"matchExpressions": [found]}

    def _constraint(self) -> Object:
        pick = self._chance.choice
        found: Object = {
            "maxSkew": pick((1, 1, 2)),
            "topologyKey": pick(("zone", "at", "rank")),
            "whenUnsatisfiable": pick(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self._selector(),
            "nodeTaintsPolicy": pick(("Honor", "Ignore")),
        }
        if found["whenUnsatisfiable"] == "DoNotSchedule" and pick((True, False, False)):
            found["minDomains"] = pick((1, 2, 3))
        return found


def _scoped(terms: list[Object], cluster: str) -> Object:
    """Terms that mean pods of one cluster alone."""
    inside = [{**one, "labelSelector": _inside(one["labelSelector"], cluster)} for one in terms]
    return {_REQUIRED: inside}


def _inside(selector: Object, cluster: str) -> Object:
    exact = {**selector.get("matchLabels", {}), "in": cluster}
    return {**selector, "matchLabels": exact}


def _port(number: int, address: str, protocol: str) -> Object:
    found: Object = {"containerPort": 8000, "hostPort": number, "protocol": protocol}
    return {**found, "hostIP": address} if address else found


def _container(asked: dict[str, int], ports: list[Object]) -> Object:
    requests = {name: _UNITS[name].format(n) for name, n in asked.items() if n}
    limits = {name: amount for name, amount in requests.items() if name in _LIMITED}
    once = {(p["hostPort"], p["protocol"], p.get("hostIP")): p for p in ports}
    return {
        "name": "main",
        "image": "example.org/train:1",
        "ports": [{**p, "containerPort": 8000 + n} for n, p in enumerate(once.values())],
        "resources": {"requests": requests, "limits": limits},
    }
