"""Devices are found for claims exactly where there are some, against trying everything out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random

import pytest
from tests.support.effort import examples

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.claims.inventory import CounterId, Device, Inventory
from roost.kubernetes.filters.claims.requests import ClaimRequest, request_of
from roost.kubernetes.filters.claims.search import Books, Given, GivenDevice, Search, Seen, Steps
from roost.kubernetes.objects.nodes import NodeFacts

DRIVER = "gpu.example.com"
NODE = NodeFacts(NodeId("n"), {}, (), (), {}, usable=True, whole=True, split=True, sized=True)
CLASSES: dict[str, Object] = {
    "any": {"metadata": {"name": "any"}, "spec": {}},
    "big": {
        "metadata": {"name": "big"},
        "spec": {
            "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].size >= 2'}}]
        },
    },
}


class Case:
    """Devices on a node, some of them taken, and claims for them."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = Random(seed)
        inventory = Inventory()
        for number in range(chance.choice((1, 1, 2))):
            inventory.put(f"s{number}", self._slice(f"s{number}"))
        self.seen: Seen = list(inventory.seen_from(NODE))
        self.devices = [device for _, devices in self.seen for device in devices]
        taken = {one.id for one in self.devices if chance.random() < 0.1}
        left = {
            counter: amount
            for pool, _ in self.seen
            for part in pool.slices
            for counter, amount in part.counters.items()
        }
        for one in self.devices:
            for counter, amount in one.counters if one.id in taken else ():
                left[counter] -= amount
        self.books = Books(taken, left)
        self.claims = [
            request_of(self._claim(f"c{number}"), CLASSES)
            for number in range(chance.choice((1, 1, 2)))
        ]

    def _slice(self, name: str) -> Object:
        pick = self._chance.choice
        counters = pick((False, False, True))
        devices = []
        for number in range(pick((2, 3, 4, 5))):
            attributes: Object = {"size": {"int": pick((1, 2, 3))}, "half": {"string": pick("ab")}}
            made: Object = {"name": f"d{number}", "attributes": attributes}
            if pick((True, False, False)):
                attributes["numa"] = {"int": pick((0, 1))}
            if pick((True, False, False, False)):
                made["taints"] = [{"key": "worn", "value": "v", "effect": "NoSchedule"}]
            if counters and pick((True, True, False)):
                used: Object = {"part": {"value": pick(("1", "2", "500m"))}}
                made["consumesCounters"] = [{"counterSet": "set", "counters": used}]
            devices.append(made)
        spec: Object = {
            "driver": DRIVER,
            "nodeName": "n",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        if counters:
            shared = {"name": "set", "counters": {"part": {"value": pick(("1", "2", "3"))}}}
            spec["sharedCounters"] = [shared]
        return {"metadata": {"name": name}, "spec": spec}

    def _claim(self, name: str) -> Object:
        pick = self._chance.choice
        names = [f"r{number}" for number in range(pick((1, 1, 2, 3)))]
        requests: list[Object] = []
        for each in names:
            if pick((True, False, False)):
                ways = [{"name": f"w{n}", **self._way()} for n in range(pick((1, 2)))]
                requests.append({"name": each, "firstAvailable": ways})
            else:
                admin: Object = {"adminAccess": True} if pick((True, *[False] * 7)) else {}
                requests.append({"name": each, "exactly": {**self._way(), **admin}})
        devices: Object = {"requests": requests}
        if pick((True, False)):
            about = self._chance.sample(names, pick((0, 1, len(names))))
            alike: Object = {"matchAttribute": f"{DRIVER}/{pick(('half', 'half', 'numa'))}"}
            devices["constraints"] = [{**alike, "requests": about}]
        return {"metadata": {"name": name}, "spec": {"devices": devices}}

    def _way(self) -> Object:
        pick = self._chance.choice
        made: Object = {"deviceClassName": pick(("any", "any", "big"))}
        if pick((True, *[False] * 5)):
            made["allocationMode"] = "All"
        else:
            made["count"] = pick((1, 1, 1, 2, 3))
        if pick((True, False, False)):
            size = pick((1, 2, 3))
            expression = f'device.attributes["{DRIVER}"].size {pick(("==", "<=", ">"))} {size}'
            made["selectors"] = [{"cel": {"expression": expression}}]
        if pick((True, False, False)):
            made["tolerations"] = [{"operator": "Exists"}]
        return made


def is_right(case: Case, given: Given) -> bool:
    """Whether what was given is what was asked for."""
    earlier: set[object] = set()
    amounts: dict[CounterId, Fraction] = {}
    for claim, mine in zip(case.claims, given, strict=True):
        ids = [one.device.id for one in mine]
        if len(set(ids)) < len(ids) or not _alike(claim, mine):
            return False
        for request in claim.requests:
            own = [one for one in mine if one.alternative in request.alternatives]
            if not _satisfies(case, own, earlier):
                return False
        for one in mine:
            for counter, amount in one.device.counters:
                amounts[counter] = amounts.get(counter, Fraction(0)) + amount
        earlier.update(ids)
    return all(amount <= case.books.left[counter] for counter, amount in amounts.items())


def _satisfies(case: Case, own: Sequence[GivenDevice], earlier: set[object]) -> bool:
    """Whether a request has what one of its alternatives asks for."""
    ways = {one.alternative for one in own}
    if len(ways) != 1:
        return False
    (way,) = ways
    meant = [one for one in case.devices if all(one.is_meant(s.text) for s in way.selectors)]
    devices = [one.device for one in own]
    if len(devices) != (way.number or len(meant)):
        return False
    # Not even beside one that an earlier claim of the pod looks at.
    busy = set() if way.admin else case.books.taken | earlier
    return all(
        one in meant and one.id not in busy and _tolerates(way.tolerations, one) for one in devices
    )


def _tolerates(tolerations: Sequence[object], device: Device) -> bool:
    """All tolerations of these cases are of everything."""
    return bool(tolerations) or not device.taints


def _alike(claim: ClaimRequest, mine: Sequence[GivenDevice]) -> bool:
    for alike in claim.alike:
        values = [
            one.device.attribute(alike.attribute)
            for one in mine
            for request in claim.requests
            if one.alternative in request.alternatives and alike.is_about(request, one.alternative)
        ]
        if None in values or len(set(values)) > 1:
            return False
    return True


def everything(case: Case) -> Iterator[Given]:
    """All ways to give any devices to any alternatives."""

    def of_request(claim: ClaimRequest, number: int) -> Iterator[tuple[GivenDevice, ...]]:
        for way in claim.requests[number].alternatives:
            sizes = [way.number] if way.number is not None else range(1, len(case.devices) + 1)
            for size in sizes:
                for chosen in itertools.combinations(case.devices, size):
                    yield tuple(GivenDevice(way, one) for one in chosen)

    slots = [(c, r) for c, claim in enumerate(case.claims) for r in range(len(claim.requests))]
    for chosen in itertools.product(*(list(of_request(case.claims[c], r)) for c, r in slots)):
        yield tuple(
            tuple(
                one
                for (c, _), part in zip(slots, chosen, strict=True)
                if c == index
                for one in part
            )
            for index in range(len(case.claims))
        )


def searched(case: Case) -> tuple[Given | None, str]:
    """What is found, or why there is nothing to be found."""
    try:
        return Search(case.seen, case.claims, case.books, Steps(1_000_000)).found(), ""
    except InvalidSpec as error:
        return None, str(error)


#: A case with more ways than that is left to others.
MOST_WAYS = 5_000


@pytest.mark.parametrize("block", range(4))
def test_devices_are_found_where_there_are_some(block: int) -> None:
    found = tried = 0
    for seed in range(block * 1_000_000, block * 1_000_000 + examples(400)):
        case = Case(seed)
        ways = list(itertools.islice(everything(case), MOST_WAYS + 1))
        if len(ways) > MOST_WAYS:
            continue
        tried += 1
        possible = any(is_right(case, given) for given in ways)
        given, why = searched(case)
        if why:  # told as an error, whatever else could be had
            assert "alike" in why, f"case {seed}: {why}"
            continue
        assert (given is not None) == possible, f"case {seed}"
        assert given is None or is_right(case, given), f"case {seed}"
        found += given is not None
    assert tried // 10 < found < tried * 9 // 10
