"""Finds devices on a node for claims: all that they ask for, or nothing.

One device after the other is tried for one request after the other, and taken back where that
leads nowhere; so what can be had is found. A device that is like one that led nowhere is not tried
again. The devices of a request come in their order, for which of them is first makes no difference.
That keeps what people ask for cheap. The rest is bounded: a search takes so many steps, and what is
not found by then counts as not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.kubernetes.filters.claims.expressions import EvaluationError
from roost.kubernetes.filters.claims.inventory import (
    CounterId,
    Device,
    DeviceId,
    DevicePool,
)
from roost.kubernetes.filters.claims.requests import (
    MOST_DEVICES,
    Alternative,
    ClaimRequest,
    DeviceRequest,
)

#: Pools of which a node can use something, and what that is.
Seen = Sequence[tuple[DevicePool, tuple[Device, ...]]]


class GivenDevice(NamedTuple):
    """A device for an alternative of a request."""

    alternative: Alternative
    device: Device


#: What each claim is given, in the order of the claims.
Given = tuple[tuple[GivenDevice, ...], ...]


class Steps:
    """How much work is left to searches."""

    def __init__(self, most: int) -> None:
        self.left = most

    def spend(self) -> None:
        """One step; TooLong when there is none left."""
        self.left -= 1
        if self.left < 0:
            raise TooLong


class TooLong(Exception):
    """A search was given up."""


class Books(NamedTuple):
    """What is given out already: devices, and how much is left of counters that they share."""

    taken: AbstractSet[DeviceId]
    left: Mapping[CounterId, Fraction]


class _Place(NamedTuple):
    """Where a search is: which claim, which request, which way, how many devices it has of it."""

    claim: int
    request: int
    #: None: the way is still to be chosen.
    way: int | None = None
    number: int = 0
    #: The first device that is tried: those before it had their turn.
    first: int = 0


class Search:
    """One search on one node."""

    def __init__(
        self, seen: Seen, claims: Sequence[ClaimRequest], books: Books, steps: Steps
    ) -> None:
        self._seen, self._claims, self._books, self._steps = seen, claims, books, steps
        self._devices = [device for pool, devices in seen if not pool.trouble for device in devices]
        self._given: list[list[GivenDevice]] = [[] for _ in claims]
        #: Which claims have a device in this search; and what is used of counters in it.
        self._used: dict[DeviceId, set[int]] = {}
        self._counted: dict[CounterId, Fraction] = {}
        #: The value that devices of a constraint have, and how many there are.
        self._values: list[list[tuple[object, int]]] = [[(None, 0)] * len(c.alike) for c in claims]
        self._all: dict[tuple[int, int, int], list[Device]] = {}

    def found(self) -> Given | None:
        """Devices for all claims; None: there are none. InvalidSpec: a claim makes no sense."""
        self._gather()
        try:
            found = self._go(_Place(0, 0))
        except RecursionError:
            raise TooLong from None
        if not found:
            return None
        return tuple(map(tuple, self._given))

    def _gather(self) -> None:
        """Which devices are meant where all of them are asked for."""
        for c, claim in enumerate(self._claims):
            for r, request in enumerate(claim.requests):
                for w, way in enumerate(request.alternatives):
                    if way.number is None:
                        self._all[c, r, w] = self._meant(claim, way)

    def _meant(self, claim: ClaimRequest, way: Alternative) -> list[Device]:
        for pool, _ in self._seen:
            if pool.trouble:
                raise InvalidSpec(f"claim {claim.name} asks for all devices, but {pool.trouble}")
        return [device for device in self._devices if self._is_meant(claim, way, device)]

    def _go(self, at: _Place) -> bool:
        """Whether all that is left can be had from here on; then it is noted."""
        if at.claim == len(self._claims):
            return True
        claim = self._claims[at.claim]
        if at.request == len(claim.requests):
            return self._go(_Place(at.claim + 1, 0))
        request = claim.requests[at.request]
        if at.way is None:
            return any(self._go(at._replace(way=way)) for way in range(len(request.alternatives)))
        way = request.alternatives[at.way]
        every = self._all.get((at.claim, at.request, at.way))
        wanted = way.number if every is None else len(every)
        if every is not None and not every:
            return False
        assert wanted is not None  # noqa: S101 - it is counted where all are asked for
        if at.number >= wanted:
            return self._go(_Place(at.claim, at.request + 1))
        if len(self._given[at.claim]) + wanted - at.number > MOST_DEVICES:
            return False
        if every is not None:
            return self._take_next(at, request, way, every[at.number])
        return self._try_each(at, request, way)

    def _take_next(
        self, at: _Place, request: DeviceRequest, way: Alternative, device: Device
    ) -> bool:
        """All devices are asked for: this one must be had."""
        if self._is_busy(at, way, device) or not self._can_count(device):
            return False
        if not self._is_tolerated(way, device):
            return False
        if not self._put(at, request, way, device):
            raise InvalidSpec(
                f"claim {self._claims[at.claim].name} asks for all devices, which are not alike"
                f" in what they have to be alike"
            )
        if self._go(at._replace(number=at.number + 1)):
            return True
        self._take_back(at, request, way, device)
        return False

    def _try_each(self, at: _Place, request: DeviceRequest, way: Alternative) -> bool:
        failed: set[object] = set()
        for index in range(at.first, len(self._devices)):
            device = self._devices[index]
            self._steps.spend()
            if self._is_busy(at, way, device):
                continue
            if not self._is_meant(self._claims[at.claim], way, device):
                continue
            if not self._can_count(device) or not self._is_tolerated(way, device):
                continue
            if failed and self._sort_of(device) in failed:
                continue
            if self._put(at, request, way, device):
                if self._go(at._replace(number=at.number + 1, first=index + 1)):
                    return True
                self._take_back(at, request, way, device)
                failed.add(self._sort_of(device))
        return False

    # -- one device ------------------------------------------------------------------------------

    def _is_busy(self, at: _Place, way: Alternative, device: Device) -> bool:
        used = self._used.get(device.id)
        if way.admin:
            return used is not None and at.claim in used
        return bool(used) or device.id in self._books.taken

    def _is_meant(self, claim: ClaimRequest, way: Alternative, device: Device) -> bool:
        if device.unusable:
            return False
        for selector in way.selectors:
            try:
                if not device.is_meant(selector.text):
                    return False
            except EvaluationError as error:
                raise InvalidSpec(
                    f"claim {claim.name}: {selector.whose}: of device {device.id.device} of"
                    f" {device.id.driver} its expression has no value: {error}"
                ) from None
        return True

    @staticmethod
    def _is_tolerated(way: Alternative, device: Device) -> bool:
        return all(any(one.covers(taint) for one in way.tolerations) for taint in device.taints)

    def _can_count(self, device: Device) -> bool:
        """Whether enough is left of what it shares with others."""
        for counter, amount in device.counters:
            left = self._books.left.get(counter)
            if left is None or self._counted.get(counter, Fraction(0)) + amount > left:
                return False
        return True

    def _put(self, at: _Place, request: DeviceRequest, way: Alternative, device: Device) -> bool:
        """Give it out, unless a constraint speaks against it."""
        values = list(self._values[at.claim])
        for number, alike in enumerate(self._claims[at.claim].alike):
            if not alike.is_about(request, way):
                continue
            found = device.attribute(alike.attribute)
            value, count = values[number]
            if found is None or (count and found != value):
                return False
            values[number] = found, count + 1
        self._values[at.claim] = values
        self._used.setdefault(device.id, set()).add(at.claim)
        for counter, amount in device.counters:
            self._counted[counter] = self._counted.get(counter, Fraction(0)) + amount
        self._given[at.claim].append(GivenDevice(way, device))
        return True

    def _take_back(
        self, at: _Place, request: DeviceRequest, way: Alternative, device: Device
    ) -> None:
        self._given[at.claim].pop()
        for counter, amount in device.counters:
            self._counted[counter] -= amount
        self._used[device.id].discard(at.claim)
        values = self._values[at.claim]
        for number, alike in enumerate(self._claims[at.claim].alike):
            if alike.is_about(request, way):
                value, count = values[number]
                values[number] = value, count - 1

    def _sort_of(self, device: Device) -> object:
        """What is the same for devices of which one is as good as the other."""
        return (
            device.id.driver,
            tuple(self._verdicts(device)),
            tuple(device.attribute(one.attribute) for c in self._claims for one in c.alike),
            device.counters,
            device.id in self._books.taken,
            frozenset(self._used.get(device.id, ())),
        )

    def _verdicts(self, device: Device) -> Iterator[object]:
        """What each way says of a device; what says nothing is like nothing else."""
        for claim in self._claims:
            for request in claim.requests:
                for way in request.alternatives:
                    try:
                        meant = self._is_meant(claim, way, device)
                    except InvalidSpec:
                        yield device.id
                    else:
                        yield meant and self._is_tolerated(way, device)
