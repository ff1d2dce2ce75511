"""Claims of devices that nothing can fill: a class or a driver that is not there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from roost.errors import InvalidSpec
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
)
from roost.kubernetes.objects.values import section, sections, text

#: How selectors name the driver that they mean.
_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
_MOST = 5


async def claim_faults(api: Api) -> AsyncIterator[tuple[str, str]]:
    """Each claim that waits for devices of which there can be none, and what to do."""
    claims, _ = await api.list(RESOURCE_CLAIMS)
    waiting = [one for one in claims if not section(section(one, "status"), "allocation")]
    if not waiting:
        return
    classes = {one["metadata"]["name"]: one for one in (await api.list(DEVICE_CLASSES))[0]}
    slices, _ = await api.list(RESOURCE_SLICES)
    drivers = {text(section(one, "spec"), "driver") for one in slices}
    faults = [
        (f"resourceclaim {one['metadata']['namespace']}/{one['metadata']['name']}", why)
        for one in waiting
        if (why := _fault(one, classes, drivers))
    ]
    for fault in faults[:_MOST]:
        yield fault
    if len(faults) > _MOST:
        yield "resourceclaims", f"{len(faults) - _MOST} more wait for what is not there"


def _fault(claim: Object, classes: dict[str, Object], drivers: set[str]) -> str:
    """Why one of its requests cannot be filled; empty if all might be."""
    try:
        return next(filter(None, (_lacks(way, classes, drivers) for way in _required(claim))), "")
    except InvalidSpec as error:
        return f"cannot be read: {error}"


def _required(claim: Object) -> Iterator[Object]:
    """What each of its requests asks for; where there is a choice, the last resort."""
    for request in sections(section(section(claim, "spec"), "devices"), "requests"):
        choices = sections(request, "firstAvailable")
        yield choices[-1] if choices else section(request, "exactly")


def _lacks(way: Object, classes: dict[str, Object], drivers: set[str]) -> str:
    name = text(way, "deviceClassName")
    known = classes.get(name)
    if known is None:
        return f"names DeviceClass {name!r}, which does not exist: make it, or delete the claim"
    selectors = [*sections(section(known, "spec"), "selectors"), *sections(way, "selectors")]
    for each in selectors:
        expression = text(section(each, "cel"), "expression")
        named = [] if "!(" in expression else _DRIVER.findall(expression)
        if named and drivers.isdisjoint(named):
            return (
                f"asks for devices of driver {' or '.join(named)}, of which no node has any: "
                "install the driver, or delete the claim"
            )
    return ""
