"""What a claim asks for: requests with alternatives, constraints among what they are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.claims.expressions import compiled
from roost.kubernetes.filters.claims.inventory import DeviceTaint
from roost.kubernetes.objects.values import integer, listed, quoted, section, sections, text

#: The most devices of a claim, and the most pods that share one, as API servers have it.
MOST_DEVICES, MOST_CONSUMERS = 32, 256


class DeviceToleration(NamedTuple):
    """What a request puts up with."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: DeviceTaint) -> bool:
        """Whether it puts up with a taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (
            self.operator in ("", "Equal") and self.value == taint.value
        )


class Selector(NamedTuple):
    """An expression, and who says it."""

    text: str
    whose: str


class Alternative(NamedTuple):
    """One way to satisfy a request.

    ``name`` is what its devices are listed under. ``number`` is None where all devices are asked
    for that are meant. ``admin``: besides whoever else has them.
    """

    name: str
    device_class: str
    selectors: tuple[Selector, ...]
    number: int | None
    admin: bool
    tolerations: tuple[DeviceToleration, ...]


class DeviceRequest(NamedTuple):
    """Devices that are asked for under a name: by the first alternative that can be had."""

    name: str
    alternatives: tuple[Alternative, ...]


class Alike(NamedTuple):
    """That devices of some requests, or of all, have the same value of an attribute."""

    attribute: str
    requests: frozenset[str]

    def is_about(self, request: DeviceRequest, alternative: Alternative) -> bool:
        """Whether devices of a request, chosen in that way, are meant."""
        return not self.requests or not self.requests.isdisjoint((request.name, alternative.name))


class ClaimRequest(NamedTuple):
    """All that a claim asks for."""

    name: str
    requests: tuple[DeviceRequest, ...]
    alike: tuple[Alike, ...]


def request_of(claim: Object, classes: Mapping[str, Object]) -> ClaimRequest:
    """What a claim asks for; InvalidSpec says why nothing can be found for it."""
    name = str(claim["metadata"]["name"])
    devices = section(section(claim, "spec"), "devices")
    try:
        found = ClaimRequest(
            name,
            tuple(_request(one, classes) for one in sections(devices, "requests")),
            tuple(_alike(one) for one in sections(devices, "constraints")),
        )
    except InvalidSpec as error:
        raise InvalidSpec(f"claim {name}: {error}") from None
    least = sum(min(one.number or 0 for one in each.alternatives) for each in found.requests)
    if least > MOST_DEVICES:
        raise InvalidSpec(f"claim {name} asks for {least} devices; it can have {MOST_DEVICES}")
    return found


def counts_of(claim: Object) -> Counter[str]:
    """How many devices of each class a claim asks for at most; all of them count as the most."""
    counts: Counter[str] = Counter()
    try:
        for one in sections(section(section(claim, "spec"), "devices"), "requests"):
            ways = (
                [section(one, "exactly")] if "exactly" in one else sections(one, "firstAvailable")
            )
            most: Counter[str] = Counter()
            for way in ways:
                every = text(way, "allocationMode") == "All"
                number = MOST_DEVICES if every else min(integer(way, "count", 1), MOST_DEVICES)
                most |= Counter({text(way, "deviceClassName"): number})
            counts += most
    except InvalidSpec:
        return Counter()  # whoever looks for its devices says what is wrong
    return counts


def _request(found: Object, classes: Mapping[str, Object]) -> DeviceRequest:
    name = text(found, "name")
    if found.get("exactly") is not None:
        ways: tuple[Alternative, ...] = (_alternative(section(found, "exactly"), name, classes),)
    else:
        ways = tuple(
            _alternative(one, f"{name}/{text(one, 'name')}", classes)
            for one in sections(found, "firstAvailable")
        )
    if not ways:
        raise InvalidSpec(f"request {quoted(name)} is of a sort that Roost does not know")
    return DeviceRequest(name, ways)


def _alternative(found: Object, name: str, classes: Mapping[str, Object]) -> Alternative:
    wanted = text(found, "deviceClassName")
    there = classes.get(wanted)
    if there is None:
        raise InvalidSpec(f"request {quoted(name)}: there is no DeviceClass {quoted(wanted)}")
    if section(found, "capacity"):
        raise InvalidSpec(f"request {quoted(name)} asks for a part of a device, by its capacity")
    mode = text(found, "allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        raise InvalidSpec(f"request {quoted(name)}: the mode {quoted(mode)} is not known")
    of_class = _selectors(section(there, "spec"), f"DeviceClass {wanted}")
    return Alternative(
        name,
        wanted,
        (*of_class, *_selectors(found, f"request {name}")),
        None if mode == "All" else integer(found, "count", 1),
        found.get("adminAccess") is True,
        tuple(
            DeviceToleration(*(text(one, part) for part in DeviceToleration._fields))
            for one in sections(found, "tolerations")
        ),
    )


def _selectors(of: Object, whose: str) -> tuple[Selector, ...]:
    found = []
    for one in sections(of, "selectors"):
        expression = text(section(one, "cel"), "expression")
        if not expression:
            raise InvalidSpec(f"{whose} has a selector of a sort that Roost does not know")
        try:
            compiled(expression)
        except InvalidSpec as error:
            raise InvalidSpec(f"{whose}: {error}") from None
        found.append(Selector(expression, whose))
    return tuple(found)


def _alike(found: Object) -> Alike:
    attribute = text(found, "matchAttribute")
    if not attribute:
        raise InvalidSpec("it has a constraint of a sort that Roost does not know")
    return Alike(attribute, frozenset(map(str, listed(found, "requests"))))
