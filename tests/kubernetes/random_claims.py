"""Random devices and claims, and a pod for them: would it get a node?

A case has one to three nodes, slices of their devices and of devices that all of them see, claims
that have some of these already, and a pod with one or two claims. Each is the same for the same
seed. Everything has names of its own, and every driver is of one case, so that many are there at a
time.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from tests.support.kubernetes.nodes import node, pod

from roost.kubernetes.client.kinds import Object

_DRIVER = "gpu.example.com"
_MODELS = ("A100", "H100", "T4")


class ClaimCase:
    """Nodes with devices, and a pod that claims some."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        pick = self._chance.choice
        self.name = f"claims-{seed}"
        self._count = pick((1, 1, 2, 3))
        self._slices = [made for at in range(self._count) for made in self._of_node(at)]
        if pick((True, False, False)):
            self._slices.append(self._shared())
        self._classes = {"any": [], "good": [self._expression()]}
        self._taken = [one for one in self._ids() if self._chance.random() < 0.25]
        self._claims = [self._claim() for _ in range(pick((1, 1, 1, 2)))]
        #: Whether a claim has devices already, and for whom.
        self._earlier = pick(("", "", "", "", "idle", "used"))
        if len(self._claims) > 1 and self._earlier == "idle":
            self._earlier = ""  # kube-scheduler needs two attempts, and is asked after the first

    def driver(self, copy_of: str) -> str:
        """The driver of a copy."""
        return f"{copy_of}{self.name}.{_DRIVER}"

    def nodes(self, copy_of: str) -> list[Object]:
        """Its nodes, in a copy."""
        made = []
        for at in range(self._count):
            labels = {"cluster": f"{self.name}-{copy_of}", "at": str(at), "half": str(at % 2)}
            made.append(node(self._node(copy_of, at), gpus=0, labels=labels))
            del made[-1]["metadata"]["labels"]["type"]  # nothing runs, nothing ends
        return made

    def slices(self, copy_of: str) -> list[Object]:
        """Its slices, in a copy."""
        return [self._filled(one, copy_of) for one in self._slices]

    def classes(self, copy_of: str) -> list[Object]:
        """Its classes, in a copy; each is of its own driver."""
        own = f'device.driver == "{_DRIVER}"'
        return [
            self._filled(
                {
                    "metadata": {"name": f"NAME-{name}"},
                    "spec": {"selectors": _selectors([own, *expressions])},
                },
                copy_of,
            )
            for name, expressions in self._classes.items()
        ]

    def claims(self, copy_of: str) -> list[tuple[Object, Object]]:
        """Its claims, in a copy, with the status that is written on each; empty is none."""
        made = []
        for number, one in enumerate(self._taken):
            status = self._status([one], number, f"resident-{number}")
            made.append(({"name": f"NAME-taken-{number}", "spec": _one_device()}, status))
        for number, spec in enumerate(self._claims):
            status = {}
            free = [one for one in self._ids() if one not in self._taken]
            if self._earlier and number == 0 and free:
                status = self._status([free[0]], 99, "else" if self._earlier == "used" else "")
                first = spec["requests"][0]
                if "firstAvailable" in first:
                    status["allocation"]["devices"]["results"][0]["request"] = "r0/w0"
            made.append(({"name": f"NAME-wanted-{number}", "spec": spec}, status))
        return [
            (
                self._filled(
                    {
                        "metadata": {"name": one["name"], "namespace": "default"},
                        "spec": {"devices": one["spec"]},
                    },
                    copy_of,
                ),
                self._filled(status, copy_of),
            )
            for one, status in made
        ]

    def wanted(self, copy_of: str, scheduler: str) -> Object:
        """The pod that looks for a place."""
        claims = [
            {"name": f"c{n}", "resourceClaimName": f"{self.name}-{copy_of}-wanted-{n}"}
            for n in range(len(self._claims))
        ]
        return pod(
            f"{self.name}-{copy_of}",
            gpus=0,
            scheduler=scheduler,
            nodeSelector={"cluster": f"{self.name}-{copy_of}"},
            resourceClaims=claims,
        )

    def told(self) -> Object:
        """The case, to be looked at."""
        return {
            "slices": [one["spec"] for one in self.slices("r")],
            "classes": self._classes,
            "taken": self._taken,
            "earlier": self._earlier,
            "claims": self._claims,
        }

    # -- what is drawn ---------------------------------------------------------------------------

    def _of_node(self, at: int) -> list[Object]:
        """The slices of a node: one, two of one pool, or one that is out of date besides."""
        pick = self._chance.choice
        sort = pick(("one", "one", "one", "two", "stale"))
        pool = {"name": f"NAME-{at}", "generation": 2, "resourceSliceCount": 1 + (sort == "two")}
        found = [self._slice(f"NAME-{at}-0", pool, "a", {"nodeName": f"NODE-{at}"})]
        if sort == "two":
            found.append(self._slice(f"NAME-{at}-1", pool, "b", {"nodeName": f"NODE-{at}"}))
        if sort == "stale":
            old = {**pool, "generation": 1}
            found.append(self._slice(f"NAME-{at}-1", old, "old", {"nodeName": f"NODE-{at}"}))
        return found

    def _shared(self) -> Object:
        """A slice that several nodes see."""
        half = {"key": "half", "operator": "In", "values": [self._chance.choice("01")]}
        # Never those of other cases: these have other drivers.
        where: Object = self._chance.choice(
            ({"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [half]}]}})
        )  # fmt: skip
        pool = {"name": "NAME-net", "generation": 1, "resourceSliceCount": 1}
        return self._slice("NAME-net", pool, "net", where)

    def _slice(self, name: str, pool: Object, prefix: str, where: Object) -> Object:
        count = self._chance.choice((1, 2, 3, 4))
        devices = [self._device(f"{prefix}{number}", number) for number in range(count)]
        spec = {"driver": _DRIVER, "pool": pool, **where, "devices": devices}
        return {"metadata": {"name": name}, "spec": spec}

    def _device(self, name: str, number: int) -> Object:
        pick = self._chance.choice
        attributes: Object = {
            "model": {"string": pick(_MODELS)},
            "index": {"int": number},
            "ecc": {"bool": pick((True, False))},
            "firmware": {"version": pick(("1.2.3", "1.10.0", "2.0.0-rc.1"))},
            "fabric.example.com/rail": {"string": pick("xy")},
        }
        # What is not everywhere: expressions about it may have no value.
        if pick((True, True, False)):
            attributes["numa"] = {"int": pick((0, 1))}
        capacity = {"memory": {"value": pick(("16Gi", "40Gi", "80Gi"))}}
        return {"name": name, "attributes": attributes, "capacity": capacity}

    def _expression(self) -> str:
        pick = self._chance.choice
        own, memory = f'device.attributes["{_DRIVER}"]', f'device.capacity["{_DRIVER}"].memory'
        model, size = pick(_MODELS), pick(("16Gi", "40Gi", "64Gi"))
        return str(
            pick(
                (
                    f'{own}.model == "{model}"',
                    f'{own}.model in ["{model}", "A100"]',
                    f'{own}.model.matches("^[AH]100$")',
                    f'!{own}.model.startsWith("T")',
                    f"{own}.index < 2 || {own}.ecc",
                    f"{own}.index % 2 == 0",
                    f'{memory}.compareTo(quantity("{size}")) >= 0',
                    f'{memory}.isGreaterThan(quantity("{size}"))',
                    f'{own}.firmware.isGreaterThan(semver("1.9.0"))',
                    f'{own}.firmware.compareTo(semver("2.0.0")) < 0 && {own}.firmware.minor() < 5',
                    'device.attributes["fabric.example.com"].rail == "x"',
                    f"has({own}.numa) && {own}.numa == 0",
                    f'"numa" in {own} ? {own}.numa == 1 : {own}.ecc',
                    f"cel.bind(gpu, {own}, gpu.ecc && gpu.index > 0)",
                    f"{own}.?numa.orValue(1) == 1",
                    f'["{model}", "T4"].exists(m, m == {own}.model)',
                    "true",
                    "false",
                )
            )
        )

    def _claim(self) -> Object:
        pick = self._chance.choice
        names = [f"r{number}" for number in range(pick((1, 1, 2, 3)))]
        requests: list[Object] = []
        for name in names:
            if pick((True, False, False)):
                ways = [{"name": f"w{n}", **self._way()} for n in range(pick((1, 2, 3)))]
                requests.append({"name": name, "firstAvailable": ways})
            else:
                requests.append({"name": name, "exactly": self._way()})
        found: Object = {"requests": requests}
        if pick((True, False, False)):
            attribute = pick((f"{_DRIVER}/model", f"{_DRIVER}/numa", "fabric.example.com/rail"))
            about = self._chance.sample(names, pick((0, len(names))))
            found["constraints"] = [
                {"matchAttribute": attribute, **({"requests": about} if about else {})}
            ]
        return found

    def _way(self) -> Object:
        pick = self._chance.choice
        made: Object = {"deviceClassName": f"NAME-{pick(('any', 'any', 'good'))}"}
        if pick((True, *[False] * 7)):
            made["allocationMode"] = "All"
        else:
            made |= {"allocationMode": "ExactCount", "count": pick((1, 1, 1, 2, 3))}
        if pick((True, False)):
            made["selectors"] = _selectors([self._expression()])
        return made

    # -- names -----------------------------------------------------------------------------------

    def _ids(self) -> list[tuple[str, str]]:
        """Pools and devices that are there and not out of date."""
        return [
            (one["spec"]["pool"]["name"], each["name"])
            for one in self._slices
            for each in one["spec"]["devices"]
            if not each["name"].startswith("old")
        ]

    def _status(self, devices: list[tuple[str, str]], number: int, pod_name: str) -> Object:
        results = [
            {"request": "r0", "driver": _DRIVER, "pool": pool, "device": device}
            for pool, device in devices
        ]
        found: Object = {"allocation": {"devices": {"results": results}}}
        at = devices[0][0].removeprefix("NAME-")
        if at != "net":
            by_name = {"key": "metadata.name", "operator": "In", "values": [f"NODE-{at}"]}
            selector = {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
            found["allocation"]["nodeSelector"] = selector
        if pod_name:
            found["reservedFor"] = [
                {"resource": "pods", "name": pod_name, "uid": f"{self.name}-{number}"}
            ]
        return found

    def _node(self, copy_of: str, at: int) -> str:
        return f"{self.name}-{copy_of}-{at}"

    def _filled(self, made: Any, copy_of: str) -> Any:
        """An object with the names of a copy in it."""
        if isinstance(made, dict):
            return {key: self._filled(value, copy_of) for key, value in made.items()}
        if isinstance(made, list):
            return [self._filled(value, copy_of) for value in made]
        if not isinstance(made, str):
            return copy.copy(made)
        own = f"{self.name}-{copy_of}"
        return made.replace(_DRIVER, self.driver(copy_of)).replace("NAME", own).replace("NODE", own)


def _selectors(expressions: list[str]) -> list[Object]:
    return [{"cel": {"expression": one}} for one in expressions]


def _one_device() -> Object:
    way = {"deviceClassName": "NAME-any", "allocationMode": "ExactCount", "count": 1}
    return {"requests": [{"name": "r0", "exactly": way}]}
