"""Devices as drivers publish them: ResourceSlices, the pools that they make, which nodes see them.

A pool is what one driver offers under one name. Only slices of its newest generation count, and
only when all of them are there: half a pool may say other things than the whole. A pool that names
a device twice is not used. A slice that is written in a way that is not known here offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.claims.expressions import (
    Domains,
    EvaluationError,
    Value,
    compiled,
    quantity_of,
    version_of,
)
from roost.kubernetes.objects.constraints import constraints_of, selects
from roost.kubernetes.objects.nodes import NodeFacts
from roost.kubernetes.objects.values import integer, listed, quoted, section, sections, text

_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


class DeviceId(NamedTuple):
    """What a device is called in the whole cluster."""

    driver: str
    pool: str
    device: str


class PoolId(NamedTuple):
    """A pool in the whole cluster."""

    driver: str
    pool: str


class CounterId(NamedTuple):
    """A counter that devices share: of a slice, or of the pool wherever it is published there."""

    pool: PoolId
    slice: str
    set: str
    counter: str


class DeviceTaint(NamedTuple):
    """A mark that keeps claims off a device which do not tolerate it."""

    key: str
    value: str
    effect: str


class Reach(NamedTuple):
    """The nodes from which something can be used: one, those that are selected, or all."""

    node: str = ""
    selector: Object | None = None
    everywhere: bool = False

    def matcher(self) -> Callable[[NodeFacts], bool]:
        """A fast test of nodes."""
        if self.node:
            return lambda node: node.name == self.node
        if self.everywhere:
            return lambda _node: True
        return node_matcher(self.selector) if self.selector else lambda _node: False


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device that can be given out.

    ``attributes`` and ``counters`` are as they are published; ``seen`` is what expressions see.
    """

    id: DeviceId
    attributes: Mapping[str, Object]
    seen: Value
    reach: Reach
    taints: tuple[DeviceTaint, ...] = ()
    counters: tuple[tuple[CounterId, Fraction], ...] = ()
    #: Why it is not given out; empty if it is.
    unusable: str = ""
    #: What expressions said of it.
    said: dict[str, bool | EvaluationError] = field(default_factory=dict)

    def is_meant(self, expression: str) -> bool:
        """Whether an expression is true of it; EvaluationError if it is neither true nor false."""
        found = self.said.get(expression)
        if found is None:
            try:
                found = compiled(expression).holds(self.seen)
            except EvaluationError as error:
                found = error
            self.said[expression] = found
        if isinstance(found, EvaluationError):
            raise found
        return found

    def attribute(self, name: str) -> tuple[str, object] | None:
        """The type and the value of an attribute by its full name; None: it has none."""
        found = self.attributes.get(name)
        if found is None:
            domain, _, short = name.partition("/")
            found = self.attributes.get(short) if domain == self.id.driver else None
        return next(iter(found.items()), None) if found else None


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A part of a pool."""

    name: str
    pool: PoolId
    generation: int
    count: int
    reach: Reach
    #: Its devices each say from which nodes they can be used.
    by_device: bool
    devices: tuple[Device, ...]
    counters: Mapping[CounterId, Fraction]


@dataclass(frozen=True, slots=True, eq=False)
class DevicePool:
    """A pool as it stands: the slices of its newest generation, and what is wrong with them."""

    id: PoolId
    slices: tuple[Slice, ...]
    trouble: str


class Inventory:
    """All slices, by what they are for."""

    def __init__(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._of_pool: dict[PoolId, dict[str, Slice]] = {}
        self._pools: dict[PoolId, DevicePool] = {}
        #: Pools with a slice for a node alone, and pools that others can see.
        self._local: dict[str, set[PoolId]] = {}
        self._wide: dict[PoolId, int] = {}
        self._matchers: dict[str, Callable[[NodeFacts], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._slices)

    def put(self, name: str, found: Object | None) -> None:
        """A slice is there, is not what it was, or is gone."""
        before = self._slices.pop(name, None)
        if before is not None:
            self._forget(before)
        if found is None:
            return
        try:
            made = slice_of(found)
        except InvalidSpec:
            return  # of a later version, or nonsense: it offers nothing
        self._slices[name] = made
        self._of_pool.setdefault(made.pool, {})[name] = made
        self._pools.pop(made.pool, None)
        if made.reach.node:
            self._local.setdefault(made.reach.node, set()).add(made.pool)
        else:
            self._wide[made.pool] = self._wide.get(made.pool, 0) + 1
            self._matchers[name] = made.reach.matcher()

    def _forget(self, gone: Slice) -> None:
        there = self._of_pool[gone.pool]
        del there[gone.name]
        self._pools.pop(gone.pool, None)
        self._matchers.pop(gone.name, None)
        node = gone.reach.node
        if not node:
            self._wide[gone.pool] -= 1
            if not self._wide[gone.pool]:
                del self._wide[gone.pool]
        elif not any(one.reach.node == node for one in there.values()):
            self._local[node].discard(gone.pool)
            if not self._local[node]:
                del self._local[node]
        if not there:
            del self._of_pool[gone.pool]

    def pool(self, name: PoolId) -> DevicePool | None:
        """A pool by its name."""
        found = self._pools.get(name)
        if found is None and name in self._of_pool:
            found = self._pools[name] = _pool(name, self._of_pool[name].values())
        return found

    def seen_from(self, node: NodeFacts) -> Iterator[tuple[DevicePool, tuple[Device, ...]]]:
        """Pools of which a node can use something, in order, and what that is."""
        names = self._local.get(node.name, set()) | self._wide.keys()
        for name in sorted(names):
            pool = self.pool(name)
            if pool is None:
                continue
            devices = tuple(self._usable(pool, node))
            if devices:
                yield pool, devices

    def _usable(self, pool: DevicePool, node: NodeFacts) -> Iterator[Device]:
        for part in pool.slices:
            if part.by_device:
                yield from (one for one in part.devices if one.reach.matcher()(node))
            elif part.reach.node == node.name or (
                not part.reach.node and self._matchers[part.name](node)
            ):
                yield from part.devices


def _pool(name: PoolId, there: Iterable[Slice]) -> DevicePool:
    newest = max(one.generation for one in there)
    slices = tuple(
        sorted((one for one in there if one.generation == newest), key=lambda one: one.name)
    )
    devices = [device.id for one in slices for device in one.devices]
    trouble = ""
    if any(one.count != len(slices) for one in slices):
        trouble = f"pool {name.pool} of {name.driver} is being updated"
    elif len(set(devices)) < len(devices):
        trouble = f"pool {name.pool} of {name.driver} names a device twice"
    return DevicePool(name, slices, trouble)


def slice_of(found: Object) -> Slice:
    """A ResourceSlice; InvalidSpec if it is not written as one."""
    spec = section(found, "spec")
    name = str(section(found, "metadata").get("name"))
    pool = section(spec, "pool")
    owner = PoolId(text(spec, "driver"), text(pool, "name"))
    reach = _reach(spec)
    by_device = spec.get("perDeviceNodeSelection") is True
    if not (reach.node or reach.selector or reach.everywhere or by_device):
        raise InvalidSpec("it does not say for which nodes it is")
    counters = {
        CounterId(owner, name, text(one, "name"), counter): _amount(value)
        for one in sections(spec, "sharedCounters")
        for counter, value in section(one, "counters").items()
    }
    # Up to Kubernetes 1.34 devices use counters of their slice, later those of another one.
    home = name if counters else ""
    return Slice(
        name=name,
        pool=owner,
        generation=integer(pool, "generation"),
        count=integer(pool, "resourceSliceCount", 1),
        reach=reach,
        by_device=by_device,
        devices=tuple(
            _device(one, owner, home, _reach(one) if by_device else reach)
            for one in sections(spec, "devices")
        ),
        counters=counters,
    )


def _reach(of: Object) -> Reach:
    selector = section(of, "nodeSelector") or None
    if selector is not None:
        node_matcher(selector)  # refuse what makes no sense
    return Reach(text(of, "nodeName"), selector, of.get("allNodes") is True)


def node_matcher(selector: Object) -> Callable[[NodeFacts], bool]:
    """A test of nodes, from a selector of nodes; InvalidSpec if it makes no sense."""
    return selects(constraints_of({"affinity": {"nodeAffinity": {_AFFINITY: selector}}}))


def _device(found: Object, pool: PoolId, slice_name: str, reach: Reach) -> Device:
    attributes = Domains()
    unusable = ""
    given = section(found, "attributes")
    for name in given:
        try:
            _put(attributes, name, pool.driver, _value(section(given, name)))
        except EvaluationError as error:
            unusable = f"attribute {quoted(name)}: {error}"
    capacity = Domains()
    amounts = section(found, "capacity")
    for name in amounts:
        amount = quantity_of(str(section(amounts, name).get("value")))
        _put(capacity, name, pool.driver, amount)
    if listed(found, "bindingConditions"):
        unusable = "it has to be made ready before a pod is bound, which Roost does not wait for"
    if found.get("allowMultipleAllocations"):
        unusable = "it is given out in parts, which Roost does not do"
    return Device(
        id=DeviceId(pool.driver, pool.pool, text(found, "name")),
        attributes=given,
        seen={
            "driver": pool.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": found.get("allowMultipleAllocations") is True,
        },
        reach=reach,
        taints=tuple(_taints(found)),
        counters=tuple(_consumed(found, pool, slice_name)),
        unusable=unusable,
    )


def _put(into: Domains, name: str, driver: str, value: Value) -> None:
    domain, slash, short = name.partition("/")
    if not slash:
        domain, short = driver, name
    there = into.setdefault(domain, {})
    assert isinstance(there, dict)  # noqa: S101 - made here
    there[short] = value


def _value(attribute: Object) -> Value:
    """The value of an attribute, which has exactly one."""
    if "int" in attribute:
        return integer(attribute, "int")
    if "bool" in attribute:
        return attribute["bool"] is True
    if "string" in attribute:
        return text(attribute, "string")
    found = version_of(text(attribute, "version")) if "version" in attribute else None
    if found is None:
        raise EvaluationError("it has no value that Roost knows")
    return found


def _taints(found: Object) -> Iterator[DeviceTaint]:
    """The taints that keep claims off."""
    for taint in sections(found, "taints"):
        effect = text(taint, "effect")
        if effect != "None":
            yield DeviceTaint(text(taint, "key"), text(taint, "value"), effect)


def _consumed(found: Object, pool: PoolId, slice_name: str) -> Iterator[tuple[CounterId, Fraction]]:
    for one in sections(found, "consumesCounters"):
        for counter, value in section(one, "counters").items():
            yield CounterId(pool, slice_name, text(one, "counterSet"), counter), _amount(value)


def _amount(counter: object) -> Fraction:
    value = counter.get("value") if isinstance(counter, dict) else None
    found = quantity_of(str(value))
    if found is None:
        raise InvalidSpec(f"a counter must be a quantity, got {quoted(value)}")
    return found.amount
