"""Random volumes for the pods of a random cluster: bound, waiting, missing, too many.

Each set of claims of a cluster has volumes and classes of its own, so that what one scheduler does
with one set leaves the others as they are.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.support.kubernetes.storage import (
    DRIVER,
    NOBODY,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounting,
    storage_class,
    volume,
)

from roost.kubernetes.client.kinds import Object

_ZONE = "topology.kubernetes.io/zone"
_ALONE = "ReadWriteOncePod"
#: A driver that says how much storage is left.
COUNTING = "counting.example.org"


class _Wish(NamedTuple):
    """A claim of the pod that looks for a place, and what there is for it."""

    sort: str
    size: int
    zones: tuple[str, ...]
    volumes: tuple[tuple[int, str, str], ...]
    labels: bool


class RandomVolumes:
    """The storage of a cluster with some nodes and pods there, the same for the same seed."""

    def __init__(self, seed: int, nodes: int, residents: int) -> None:
        self._chance = Random(seed + 0.25)
        pick = self._chance.choice
        #: Whether volumes decide where the pod goes: in every other cluster, which has some.
        self.decide = seed % 2 == 1
        self._zoned = [pick(("", "a", "b", "c")) for _ in range(nodes)]
        self._limits = [pick((None, None, 0, 1, 2, 3)) for _ in range(nodes)]
        self._mounted = [pick((0, 0, 1, 2)) for _ in range(residents)]
        self._wishes = [self._wish() for _ in range(pick((1, 1, 2)) if self.decide else 0)]
        #: Whether the pod that is there first has a claim of the pod that looks for a place.
        self._shared = bool(residents) and pick((True, False))

    def labels(self, at: int) -> dict[str, str]:
        """What the labels of a node say of its zone beside the cluster's own."""
        return {_ZONE: self._zoned[at]} if self._zoned[at] else {}

    def limits(self, cluster: str) -> list[Object]:
        """How many volumes the nodes of a copy take."""
        return [
            csi_node(f"{cluster}-{at}", count=count)
            for at, count in enumerate(self._limits)
            if count is not None
        ]

    def of_residents(self, cluster: str) -> list[Object]:
        """The claims and volumes of the pods that are there."""
        made: list[Object] = []
        for number, count in enumerate(self._mounted):
            for other in range(count):
                made += _bound(f"{cluster}-on-{number}-{other}")
        return made

    def resident(self, number: int, cluster: str) -> Object:
        """What a pod that is there has mounted."""
        names = [f"{cluster}-on-{number}-{other}" for other in range(self._mounted[number])]
        if self._shared and not number:
            names += [
                f"{cluster}-claim-{at}"
                for at, wish in enumerate(self._wishes)
                if wish.sort in ("alone", "bound")
            ]
        return mounting(*names) if names else {}

    def of_wanted(self, cluster: str, zone: str = "zone") -> list[Object]:
        """The claims of the pod that looks for a place, and what there is for them."""
        made: list[Object] = []
        for at, wish in enumerate(self._wishes):
            made += _made(f"{cluster}-claim-{at}", wish, zone)
        return made

    def wanted(self, cluster: str) -> Object:
        """What the pod that looks for a place mounts."""
        names = [f"{cluster}-claim-{at}" for at in range(len(self._wishes))]
        return mounting(*names) if names else {}

    def _wish(self) -> _Wish:
        pick = self._chance.choice
        sort = pick(
            ("bound", "bound", "zoned", "alone", "late", "missing", "unclassed")
            + ("static",) * 4
            + ("dynamic",) * 3
            + ("counted",) * 2
        )
        return _Wish(
            sort,
            pick((1, 2, 5)),
            pick(((), ("a",), ("b",), ("a", "b"), ("c",))),
            tuple(
                (pick((1, 2, 5, 9)), pick(("", "a", "b")), pick(("ReadWriteOnce", "ReadOnlyMany")))
                for _ in range(pick((0, 1, 2)))
            ),
            pick((True, False, False)),
        )


def names_bound(objects: list[Object]) -> list[str]:
    """The claims among these that their volumes are made for."""
    return [
        one["metadata"]["name"]
        for one in objects
        if one["kind"] == "PersistentVolumeClaim" and one["spec"].get("volumeName")
    ]


def _bound(name: str, at: dict[str, str] | None = None, **spec: Any) -> list[Object]:
    """A claim and its volume, for their controller to bind."""
    asks = claim(name, **spec)
    asks["spec"]["volumeName"] = f"v-{name}"
    return [asks, volume(f"v-{name}", at=at, claimed_by=asks, **spec)]


def _made(name: str, wish: _Wish, zone: str) -> list[Object]:
    size = f"{wish.size}Gi"
    match wish.sort:
        case "bound":
            return _bound(name, {zone: wish.zones[0]} if wish.zones else None)
        case "zoned":
            found = _bound(name)
            if wish.zones:
                found[1]["metadata"]["labels"] = {_ZONE: "__".join(wish.zones)}
            return found
        case "alone":
            return _bound(name, accessModes=[_ALONE])
        case "late":
            return [claim(name)]
        case "unclassed":
            return [claim(name, storage_class=f"{name}-none")]
        case "static":
            return [*_static(name, wish, zone), claim(name, storage_class=name, size=size)]
        case "dynamic":
            made = storage_class(name, zones=wish.zones, key=zone)
            return [
                made,
                *_static(name, wish, zone)[1:],
                claim(name, storage_class=name, size=size),
            ]
        case "counted":
            left = [
                capacity(f"{name}-{at}", name, f"{gib}Gi", {zone: where} if where else {})
                for at, (gib, where, _) in enumerate(wish.volumes)
            ]
            made = storage_class(name, COUNTING)
            return [made, *left, claim(name, storage_class=name, size=size)]
    return []


def _static(name: str, wish: _Wish, zone: str) -> list[Object]:
    """A class that makes no volumes, and some that are there."""
    made = [storage_class(name, NOBODY)]
    for number, (gib, where, access) in enumerate(wish.volumes):
        at = {zone: where} if where else None
        labels = {"fast": "yes"} if wish.labels else {}
        made.append(
            volume(
                f"v-{name}-{number}",
                at=at,
                storage_class=name,
                size=f"{gib}Gi",
                labels=labels,
                accessModes=[access],
            )
        )
    return made


def drivers() -> list[Object]:
    """The drivers of all clusters."""
    return [csi_driver(DRIVER), csi_driver(COUNTING, counts=True)]
