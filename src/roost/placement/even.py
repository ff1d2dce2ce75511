"""Workers and servers of a job, evenly over as few nodes as can hold them.

Theorem 1 of Optimus (Peng et al., EuroSys 2018): with equal nodes, what crosses the network in a
step is least when a job is on the smallest number of nodes that hold it, with the same number of
servers and the same number of workers on each. So for k = 1, 2, ... nodes the gang is cut into k
portions as equal as can be, until k nodes are found with room for one each: first nodes where the
job is already, then those with the fewest free devices that will do, so that others stay whole.

It works on gangs of whole GPUs, or none, with one role at most beside the workers. Any other job
asks, and gangs that no even split fits, are told None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from roost.core.allocation import WORKER, Part
from roost.core.ledger import Ledger
from roost.core.node import PLENTY, Node, is_other_use, lowest, mask_of
from roost.core.spec import WHOLE, Level, NodeId, NodeSpec, Resources, Shape
from roost.placement.placers import Pack


class Portion(NamedTuple):
    """What one node takes of a gang."""

    workers: int
    servers: int


class Refusals:
    """Nodes that were found to have too little for some portion, until their books change.

    Many nodes may have devices to spare and no CPUs: they need not all be looked at every time.
    """

    __slots__ = ("_known", "_stamp")

    def __init__(self) -> None:
        self._known: dict[tuple[Resources, Resources | None, Portion], int] = {}
        self._stamp = -1

    def mask(self, ledger: Ledger, key: tuple[Resources, Resources | None, Portion]) -> int:
        """Nodes that are known to have too little for such a portion."""
        if self._stamp != ledger.stamp:
            changed = ledger.changed_since(self._stamp)
            if changed is None or len(self._known) > _MANY:
                self._known.clear()
            else:
                better = 0
                for node in changed:
                    better |= node.bit
                self._known = {known: mask & ~better for known, mask in self._known.items()}
            self._stamp = ledger.stamp
        return self._known.get(key, 0)

    def add(self, key: tuple[Resources, Resources | None, Portion], nodes: int) -> None:
        """These have too little."""
        self._known[key] = self._known.get(key, 0) | nodes


#: How many sorts of portions are remembered.
_MANY = 256


def even(
    ledger: Ledger,
    shape: Shape,
    own: Mapping[NodeId, int] | None = None,
    poor: Refusals | None = None,
) -> tuple[Part, ...] | None:
    """Devices for a gang, evenly on the fewest nodes; ``own`` are devices to keep if possible."""
    if not divisible(shape):
        return None
    own, poor = own or {}, poor or Refusals()
    servers = shape.roles[0].workers if shape.roles else 0
    for nodes in range(1, max(shape.workers, servers) + 1):
        chosen = _choose(ledger, shape, portions(shape.workers, servers, nodes), own, poor)
        if chosen is not None:
            return tuple(_parts(ledger, shape, chosen, own))
    return None


def divisible(shape: Shape) -> bool:
    """Whether a gang is of the sort that is spread evenly."""
    return (
        len(shape.roles) <= 1
        and shape.within in (None, Level.CLUSTER)
        and shape.resources.share_milli == WHOLE
        and all(not role.resources.gpus for role in shape.roles)
        and not shape.resources.extras
        and not any(role.resources.extras for role in shape.roles)
        and all(role.resources.pool == shape.resources.pool for role in shape.roles)
    )


def fewest(node: NodeSpec, worker: Resources, server: Resources, size: Portion) -> int:
    """How many such nodes, were they empty, hold so many workers and servers evenly; 0: none do."""
    for nodes in range(1, max(size) + 1):
        if all(_holds(node, worker, server, one) for one in portions(*size, nodes)):
            return nodes
    return 0


def _holds(node: NodeSpec, worker: Resources, server: Resources, size: Portion) -> bool:
    """Whether an empty node has room for a portion."""
    w, p = size
    return (
        w * worker.gpus <= node.gpus
        and w * worker.cpu_milli + p * server.cpu_milli <= (node.cpu_milli or PLENTY)
        and w * worker.memory_mib + p * server.memory_mib <= (node.memory_mib or PLENTY)
        and w + p <= (node.workers or PLENTY)
    )


def portions(workers: int, servers: int, nodes: int) -> list[Portion]:
    """A gang cut into equal portions, the larger ones first.

    What is left over of the workers goes to the first nodes, of the servers to the last: so no node
    gets one more of both before all have one more of either.
    """
    w, more = divmod(workers, nodes)
    p, extra = divmod(servers, nodes)
    found = [Portion(w + (at < more), p + (at >= nodes - extra)) for at in range(nodes)]
    return sorted(found, reverse=True)


def _choose(
    ledger: Ledger, shape: Shape, wanted: list[Portion], own: Collection[NodeId], poor: Refusals
) -> list[tuple[Node, Portion]] | None:
    """A node for each portion, the tightest that will do."""
    chosen: list[tuple[Node, Portion]] = []
    left = list(wanted)
    least = Portion(min(w for w, _ in wanted), min(p for _, p in wanted))
    key = (shape.resources, shape.roles[0].resources if shape.roles else None, least)
    found = 0
    mask = ledger.eligible(shape.resources) & ~poor.mask(ledger, key)
    for node in _candidates(ledger, mask, least.workers * shape.resources.gpus, own):
        if not _fits(node, shape, least):
            found |= node.bit
            continue
        for at, portion in enumerate(left):
            if at and portion == left[at - 1]:
                continue
            if _fits(node, shape, portion):
                chosen.append((node, portion))
                del left[at]
                break
        if not left:
            break
    poor.add(key, found)
    return None if left else chosen


def _candidates(ledger: Ledger, mask: int, gpus: int, own: Collection[NodeId]) -> Iterator[Node]:
    """Nodes with so many free devices: those that are held already, then the tightest first."""
    levels = ledger.at_least
    if gpus >= len(levels):
        return
    mask &= levels[gpus] if gpus else ledger.up
    seen = 0
    for name in own:
        node = ledger.nodes[name]
        if mask & node.bit:
            seen |= node.bit
            yield node
    mask &= ~seen
    above = mask
    for level in range(gpus + 1, len(levels)):
        yield from ledger.select(above & ~levels[level])
        above &= levels[level]
    yield from ledger.select(above)


def _fits(node: Node, shape: Shape, portion: Portion) -> bool:
    """Whether a node has room for a portion, workers and servers together."""
    need = shape.resources
    other = shape.roles[0].resources if shape.roles else need
    workers, servers = portion
    spec = node.spec
    if node.free.bit_count() < workers * need.gpus or is_other_use(node, need):
        return False
    if need.gpus and need.gpu_memory_mib > spec.gpu_memory_mib > 0:
        return False
    cpu = workers * need.cpu_milli + servers * other.cpu_milli
    memory = workers * need.memory_mib + servers * other.memory_mib
    return (
        (not spec.cpu_milli or cpu <= node.cpu_left)
        and (not spec.memory_mib or memory <= node.memory_left)
        and workers + servers <= (node.workers_left if spec.workers else PLENTY)
    )


def _parts(
    ledger: Ledger,
    shape: Shape,
    chosen: Iterable[tuple[Node, Portion]],
    own: Mapping[NodeId, int],
) -> Iterator[Part]:
    for node, portion in chosen:
        if portion.workers:
            kept = own.get(node.id, 0) & node.free
            yield _workers(ledger, node, shape.resources, portion.workers, kept)
    for node, portion in chosen:
        if portion.servers:
            yield Part(node.id, (), WHOLE, portion.servers, shape.roles[0].name)


def _workers(ledger: Ledger, node: Node, need: Resources, workers: int, kept: int) -> Part:
    """Devices on a node, those that are kept first."""
    count = need.gpus * workers
    mine = lowest(kept, count)
    if count == len(mine):
        return Part(node.id, mine, WHOLE, workers, WORKER)
    if not mine:
        return ledger.pick(node, need, workers)[0]
    others = node.free & ~mask_of(mine)
    quiet = others & ~node.leaving
    rest = count - len(mine)
    more = lowest(quiet if quiet.bit_count() >= rest else others, rest)
    return Part(node.id, tuple(sorted((*mine, *more))), WHOLE, workers, WORKER)


class Even(Pack):
    """Evenly on the fewest nodes, servers beside workers, as Optimus does; else best fit."""

    __slots__ = ()

    def _gang(self, ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
        if shape.workers == 1 and not shape.roles:  # nothing to spread: best fit heeds preferences
            return super()._gang(ledger, shape)
        return even(ledger, shape) or super()._gang(ledger, shape)
