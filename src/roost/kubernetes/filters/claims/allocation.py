"""Allocations as claims carry them: which devices, set up how, used from which nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.claims.inventory import DeviceId, Reach, node_matcher
from roost.kubernetes.filters.claims.search import GivenDevice
from roost.kubernetes.objects.nodes import NodeFacts
from roost.kubernetes.objects.values import listed, section, sections, text


def allocation_of(
    claim: Object, given: Iterable[GivenDevice], classes: Mapping[str, Object]
) -> Object:
    """The allocation of a claim that is given these devices."""
    given = tuple(given)
    config = [*_of_classes(given, classes), *_of_claim(claim, given)]
    devices: Object = {"results": [_result(one) for one in given]}
    if config:
        devices["config"] = config
    selector = _selector([one.device.reach for one in given])
    return {"devices": devices, **({"nodeSelector": selector} if selector else {})}


def devices_of(allocation: Object) -> Iterator[DeviceId]:
    """The devices that an allocation keeps from others."""
    for one in sections(section(allocation, "devices"), "results"):
        if one.get("adminAccess") is not True:
            yield DeviceId(text(one, "driver"), text(one, "pool"), text(one, "device"))


def reaches(allocation: Object) -> Callable[[NodeFacts], bool]:
    """A test of nodes: whether the devices of an allocation can be used there."""
    selector = section(allocation, "nodeSelector")
    return node_matcher(selector) if selector else lambda _node: True


def _result(given: GivenDevice) -> Object:
    way, device = given
    found: Object = {"request": way.name, **device.id._asdict()}
    if way.admin:
        found["adminAccess"] = True
    if way.tolerations:  # for whoever evicts from devices that are tainted later
        found["tolerations"] = [
            {name: value for name, value in one._asdict().items() if value}
            for one in way.tolerations
        ]
    return found


def _of_classes(given: Iterable[GivenDevice], classes: Mapping[str, Object]) -> Iterator[Object]:
    """What classes say of how their devices are set up, each once for all requests."""
    requests: dict[str, dict[str, None]] = {}
    for way, _ in given:
        requests.setdefault(way.device_class, {})[way.name] = None
    for name, asked in requests.items():
        for one in sections(section(classes.get(name) or {}, "spec"), "config"):
            yield {"source": "FromClass", "requests": [*asked], **one}


def _of_claim(claim: Object, given: Iterable[GivenDevice]) -> Iterator[Object]:
    """What the claim says of it, as far as it is about what was chosen."""
    chosen = {name for way, _ in given for name in (way.name, way.name.partition("/")[0])}
    for one in sections(section(section(claim, "spec"), "devices"), "config"):
        about = listed(one, "requests")
        if not about or not chosen.isdisjoint(about):
            yield {"source": "FromClaim", **one}


def _selector(reach: Iterable[Reach]) -> Object | None:
    """The nodes from which all devices can be used; None: all nodes."""
    fields: list[Object] = []
    labels: list[Object] = []
    for one in reach:
        if one.node:
            by_name = {"key": "metadata.name", "operator": "In", "values": [one.node]}
            return {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
        for term in sections(one.selector or {}, "nodeSelectorTerms")[:1]:
            for into, name in ((fields, "matchFields"), (labels, "matchExpressions")):
                into += [each for each in sections(term, name) if each not in into]
    term = {
        **({"matchFields": fields} if fields else {}),
        **({"matchExpressions": labels} if labels else {}),
    }
    return {"nodeSelectorTerms": [term]} if term else None
