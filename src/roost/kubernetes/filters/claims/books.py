"""Claims as they stand, and which devices are given out: written by anybody, or only decided yet.

What the API server answers to a write counts at once; the mirror may tell older versions after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.claims.allocation import devices_of
from roost.kubernetes.filters.claims.inventory import CounterId, DeviceId, Inventory, PoolId
from roost.kubernetes.filters.claims.search import Books
from roost.kubernetes.objects.values import section, sections, text

#: Namespace and name.
Key: TypeAlias = tuple[str, str]


class Decision(NamedTuple):
    """An allocation that is to be written, and the pods that wait for it."""

    uid: str
    allocation: Object
    node: NodeId
    pods: set[Key]


class ClaimBooks:
    """All claims, what they have, and what is decided for them."""

    def __init__(self, inventory: Inventory) -> None:
        self.claims: dict[Key, Object] = {}
        self.decisions: dict[Key, Decision] = {}
        #: Pods that are to be bound, by the claims that they will use.
        self.users: dict[Key, set[Key]] = {}
        self._inventory = inventory
        self._taken: Counter[DeviceId] = Counter()
        #: Devices that are taken, by pool: of few of them counters are shared.
        self._of_pool: dict[PoolId, set[DeviceId]] = {}

    def learn(self, key: Key, found: Object | None) -> bool:
        """Note a claim as it is now; whether that was news."""
        before = self.claims.get(key)
        if before is not None and found is not None and _is_older(found, before):
            return False
        if before is not None:
            self._count(allocation(before), -1)
            del self.claims[key]
        if found is not None:
            self.claims[key] = found
            self._count(allocation(found), 1)
        return True

    def decide(self, key: Key, decision: Decision) -> None:
        """Give devices to a claim that is to be written."""
        self.decisions[key] = decision
        self._count(decision.allocation, 1)

    def drop(self, key: Key, pod: Key) -> None:
        """A pod does not wait for a decision any more."""
        decision = self.decisions.get(key)
        if decision is not None:
            decision.pods.discard(pod)
            if not decision.pods:
                del self.decisions[key]
                self._count(decision.allocation, -1)

    def use(self, key: Key, pod: Key) -> None:
        """A pod that is to be bound relies on a claim."""
        self.users.setdefault(key, set()).add(pod)

    def leave(self, key: Key, pod: Key) -> None:
        """It does not any more, or the API server knows."""
        users = self.users.get(key)
        if users is not None:
            users.discard(pod)
            if not users:
                del self.users[key]
        self.drop(key, pod)

    def books(self, freed: Iterable[Key], pools: Iterable[PoolId]) -> Books:
        """What is given out, but for what some claims have, that would give it back."""
        given_back = Counter(
            device for key in freed for device in _devices(allocation(self.claims[key]))
        )
        taken: AbstractSet[DeviceId] = self._taken.keys()
        if given_back:
            taken = {one for one in taken if self._taken[one] > given_back[one]}
        left: dict[CounterId, Fraction] = {}
        for name in pools:
            self._count_left(name, taken, left)
        return Books(taken, left)

    def _count_left(
        self, name: PoolId, taken: Iterable[DeviceId], left: dict[CounterId, Fraction]
    ) -> None:
        pool = self._inventory.pool(name)
        if pool is None or not any(part.counters for part in pool.slices):
            return
        for part in pool.slices:
            for counter, amount in part.counters.items():
                left[counter] = left[counter._replace(slice="")] = amount
        there = self._of_pool.get(name, set()) & set(taken)
        for part in pool.slices:
            for device in part.devices:
                if device.id in there:
                    for counter, amount in device.counters:
                        left[counter] = left.get(counter, Fraction(0)) - amount

    def _count(self, given: Object | None, by: int) -> None:
        for device in _devices(given):
            self._taken[device] += by
            there = self._of_pool.setdefault(PoolId(device.driver, device.pool), set())
            if self._taken[device] > 0:
                there.add(device)
                continue
            del self._taken[device]
            there.discard(device)
            if not there:
                del self._of_pool[PoolId(device.driver, device.pool)]


def allocation(claim: Object) -> Object | None:
    """The allocation that is written on a claim."""
    status = claim.get("status")
    found = status.get("allocation") if isinstance(status, dict) else None
    return found if isinstance(found, dict) else None


def consumers(claim: Object) -> list[Object]:
    """For whom a claim is reserved."""
    return sections(section(claim, "status"), "reservedFor")


def is_free_but_for(claim: Object, pod_uid: str) -> bool:
    """Whether nobody but a pod has it reserved: what it has can be given back."""
    return all(text(one, "uid") == pod_uid for one in consumers(claim))


def _devices(given: Object | None) -> list[DeviceId]:
    try:
        return [] if given is None else list(devices_of(given))
    except InvalidSpec:  # the schema of the server does not let it be
        return []


def _is_older(found: Object, known: Object) -> bool:
    one, other = found["metadata"], known["metadata"]
    if one.get("uid") != other.get("uid"):
        return False
    versions = [str(meta.get("resourceVersion") or "") for meta in (one, other)]
    return all(v.isdecimal() for v in versions) and int(versions[0]) < int(versions[1])
