"""The ledger: what of every node is free, and the masks that find room without looking at nodes.

*Free* is what will be unused once the stops under way are done. Nodes are numbered in the order
in which they joined; a set of nodes is an integer with one bit per node, so "the first node with
at least four free GPUs of these kinds" is a few machine instructions even on 16 000 nodes. A *pool*
is such a set with a name: the world says which nodes belong to it, and jobs may ask for it.

The ledger refuses to over-commit (``Fatal``): a policy can be poor, but not wrong. Which devices a
gang should take is decided in ``roost.placement``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from roost.core.allocation import WORKER, Part
from roost.core.demand import Demand
from roost.core.extras import Extras, extra_capacity, extra_room, extra_shortage
from roost.core.node import (
    PLENTY,
    Device,
    Node,
    Notice,
    Window,
    cell_of,
    devices,
    empty_room,
    is_other_use,
    lowest,
    mask_of,
    memory_on,
    near,
    refusal,
)
from roost.core.spec import DOMAINS, WHOLE, Contingent, Level, NodeId, NodeSpec, Resources
from roost.errors import Conflict, Fatal, NotFound

if TYPE_CHECKING:
    from roost.core.cells.books import CellBooks

#: How many changes are remembered before the older half is forgotten.
_MEMORY = 65536


class Ledger:
    """Free capacity of all nodes."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Node] = {}
        self.order: list[Node] = []
        self.at_least: list[int] = [0]
        self.full: int = 0
        self.sharing: int = 0
        #: Nodes on which GPUs may be free that cannot be had: the number of workers is short, or
        #: other GPUs there are shared.
        self.crowded: int = 0
        #: Nodes on which runs can begin: they are here and not cordoned.
        self.up: int = 0
        #: When nodes are to be empty, the first to begin first.
        self.windows: list[Window] = []
        #: Nodes that take nothing new, here or not.
        self.cordoned: dict[NodeId, Node] = {}
        self.kinds: dict[str, int] = {}
        self.switches: dict[str, int] = {}
        #: The nodes of every switch, block and zone; without a name only a switch is one.
        self.domains: dict[Level, dict[str, int]] = {
            Level.SWITCH: self.switches,
            Level.BLOCK: {},
            Level.ZONE: {},
        }
        self.pools: dict[str, int] = {}
        #: The nodes of each pool, also nodes that have not joined yet.
        self.members: dict[str, frozenset[NodeId]] = {}
        #: Groups of a pool's nodes that its jobs prefer, the best first; most pools have none.
        self.preferred: dict[str, tuple[frozenset[NodeId], ...]] = {}
        #: How a gang that asks for a pool must be divided; most pools say nothing of it.
        self.contingents: dict[str, tuple[Contingent, ...]] = {}
        #: Preferred groups as sets of nodes, worked out when it is asked for; see ``regrouped``.
        self._preferred: dict[str, tuple[int, tuple[int, ...]]] = {}
        #: Grows whenever nodes changed what they are, or the pools they belong to.
        self.regrouped: int = 0
        self.free_milli: int = 0
        self.capacity_milli: int = 0
        self._could: dict[tuple[Resources, int, int], bool] = {}
        self._largest = (0, 0)
        #: Grows whenever something was given back: what was refused before may now fit.
        self.releases: int = 0
        #: What was taken (or given back) in the trial that is under way, if one is.
        self._tried: list[tuple[bool, Part, Resources]] | None = None
        #: Nodes in the order in which their books changed, newest last.
        self.changed: list[Node] = []
        self.changed_before: int = 0
        #: Grows whenever changes were undone: what was seen of nodes meanwhile is not so.
        self.rewinds: int = 0
        #: What workers usually ask for.
        self.demand = Demand()
        #: What placers remember, by their names. It may vanish at any restart.
        self.notes: dict[str, object] = {}
        #: Who has claimed which cells, if some queue was promised any.
        self.cells: CellBooks | None = None

    # -- nodes come and go -------------------------------------------------------------------

    def join(self, spec: NodeSpec) -> Node:
        """Add a node, or bring a lost one back; with other hardware only when it is unused."""
        node = self.nodes.get(spec.id)
        if node is None:
            node = Node(spec, len(self.order), 1 << len(self.order))
            self.nodes[spec.id] = node
            self.order.append(node)
            node.free = node.healthy = (1 << spec.gpus) - 1
            self._empty(node)
            self._register(node)
        elif node.here:
            msg = f"node {spec.id} is already here"
            raise Conflict(msg)
        elif node.spec != spec:
            self._refit(node, spec)
        self._enter(node)
        return node

    def _enter(self, node: Node) -> None:
        """Note that a node is here; it comes into service unless it is cordoned."""
        node.here = True
        if node.cordon is None:
            self._open(node)

    def _open(self, node: Node) -> None:
        """Let runs begin on a node."""
        node.up = True
        self.up |= node.bit
        if not node.spec.gpus:
            self.full |= node.bit
        self.capacity_milli += node.healthy.bit_count() * WHOLE
        self._show(node)
        self.releases += 1

    def _refit(self, node: Node, spec: NodeSpec) -> None:
        """Take over what a lost node brings along when it is back with other hardware."""
        if node.runs or node.taken or node.shared:
            msg = f"node {spec.id} came back with other hardware, but runs still hold the old one"
            raise Conflict(msg)
        self._equip(node, spec)

    def change(self, spec: NodeSpec, booked: Iterable[tuple[Part, Resources]]) -> Node:
        """Let a node in service have other hardware, if what is booked there fits on it."""
        node, trial = self.node(spec.id), Ledger()
        new = trial.join(spec)
        if why := trial.claim(booked):
            raise Conflict(f"node {spec.id} cannot change while it is in use: {why}")
        broken = ((1 << node.spec.gpus) - 1) & ~node.healthy
        self.lose(spec.id)
        self._equip(node, spec, broken)
        node.taken, node.shared = new.taken, new.shared
        node.cpu_left, node.memory_left = new.cpu_left, new.memory_left
        node.workers_left, node.extras_used = new.workers_left, new.extras_used
        node.count_free()
        self._enter(node)
        return node

    def _equip(self, node: Node, spec: NodeSpec, broken: int = 0) -> None:
        """Give a node that is out of service other hardware, all of it free, and most healthy."""
        self.kinds[node.spec.kind] ^= node.bit
        for level in DOMAINS:
            if node.spec.is_within(level):
                self.domains[level][node.spec.domain(level)] ^= node.bit
        node.spec, node.healthy = spec, ((1 << spec.gpus) - 1) & ~broken
        node.notices = {gpu: told for gpu, told in node.notices.items() if broken >> gpu & 1}
        self._empty(node)
        node.count_free()
        self._register(node)

    @staticmethod
    def _empty(node: Node) -> None:
        """Resources beside devices are there for all."""
        spec = node.spec
        node.cpu_left, node.memory_left = spec.cpu_milli, spec.memory_mib
        node.workers_left = spec.workers
        node.extras_used.clear()

    def _register(self, node: Node) -> None:
        """Let a node be found by its kind, its place and its size."""
        spec = node.spec
        self.kinds[spec.kind] = self.kinds.get(spec.kind, 0) | node.bit
        for level in DOMAINS:
            if spec.is_within(level):
                domains, name = self.domains[level], spec.domain(level)
                domains[name] = domains.get(name, 0) | node.bit
        for name, members in self.members.items():
            if spec.id in members:
                self.pools[name] |= node.bit
        while len(self.at_least) <= spec.gpus:
            self.at_least.append(0)
        self._could.clear()
        self._largest = (-1, 0)
        self.regrouped += 1

    def set_pool(
        self,
        name: str,
        nodes: frozenset[NodeId],
        preferred: tuple[frozenset[NodeId], ...] = (),
        contingents: tuple[Contingent, ...] = (),
    ) -> None:
        """Say which nodes belong to a pool; those that are not here yet do once they join.

        ``preferred`` are groups of them, the best first; what is in none of them comes last.
        """
        if self.contingents.get(name, ()) != contingents:
            self.releases += 1
        if contingents:
            self.contingents[name] = contingents
        else:
            self.contingents.pop(name, None)
        self._preferred.pop(name, None)
        if preferred:
            self.preferred[name] = preferred
        else:
            self.preferred.pop(name, None)
        if self.members.get(name) == nodes:
            return
        mask, before = self.pools.get(name, 0), self.members.get(name, frozenset())
        for node_id in sorted(before ^ nodes):
            node = self.nodes.get(node_id)
            if node is not None:
                mask ^= node.bit
                self.touch(node)
        self.pools[name], self.members[name] = mask, nodes
        self._could.clear()
        self.releases += 1
        self.regrouped += 1

    def drop_pool(self, name: str) -> None:
        """Forget a pool: from now on it is as an unknown one."""
        self.set_pool(name, frozenset())
        del self.pools[name], self.members[name]

    def lose(self, node_id: NodeId) -> Node:
        """Take a node out of service; what runs hold there is still theirs until they end."""
        node = self.node(node_id)
        node.here = False
        self._shut(node)
        return node

    def _shut(self, node: Node) -> None:
        """Let no run begin on a node any more."""
        if node.up:
            node.up = False
            self.up ^= node.bit
            if not node.spec.gpus:
                self.full ^= node.bit
            self.capacity_milli -= node.healthy.bit_count() * WHOLE
            self._show(node)
            self.releases += 1  # gangs that waited for a node of its size may now go elsewhere

    def cordon(self, node_id: NodeId, notice: Notice, *, drain: bool = False) -> Node:
        """Let a node take nothing new until ``uncordon``; what is there keeps its place.

        It stays so when it is lost and comes back.
        """
        node = self.node(node_id)
        node.cordon, node.draining = notice, drain
        self.cordoned[node_id] = node
        self._shut(node)
        return node

    def set_windows(self, windows: Iterable[Window]) -> None:
        """Say when nodes are to be empty: what was refused before may fit, and the reverse."""
        self.windows = sorted(windows, key=lambda window: (window.starts_at, window.node))
        self.releases += 1
        for node in {window.node for window in self.windows}:
            self.touch(self.nodes[node])

    def closing(self, before: float) -> int:
        """Nodes whose maintenance begins before that time."""
        mask = 0
        for window in self.windows:
            if window.starts_at < before:
                mask |= self.nodes[window.node].bit
        return mask

    def uncordon(self, node_id: NodeId) -> Node:
        """Let runs begin on a node again, if it is here."""
        node = self.node(node_id)
        node.cordon, node.draining = None, False
        if self.cordoned.pop(node_id, None) is not None and node.here:
            self._open(node)
        return node

    def set_health(
        self, node_id: NodeId, gpu: int, *, healthy: bool, notice: Notice | None = None
    ) -> Node:
        """Take one device out of service, for a reason that people read, or put it back."""
        node = self.node(node_id)
        if not 0 <= gpu < node.spec.gpus:
            msg = f"node {node_id} has no GPU {gpu}, only 0..{node.spec.gpus - 1}"
            raise NotFound(msg)
        if healthy:
            node.notices.pop(gpu, None)
        elif notice is not None:
            node.notices[gpu] = notice
        bit = 1 << gpu
        if bool(node.healthy & bit) == healthy:
            return node
        node.healthy ^= bit
        if node.up:
            self.capacity_milli += WHOLE if healthy else -WHOLE
        node.count_free()
        self._show(node)
        if healthy:
            self.releases += 1
        return node

    def node(self, node_id: NodeId) -> Node:
        """The node of that name."""
        try:
            return self.nodes[node_id]
        except KeyError:
            msg = f"no node {node_id!r}"
            raise NotFound(msg) from None

    def divided(self, pool: str, workers: int) -> list[tuple[int, int]]:
        """The sets of nodes on which workers that ask for a pool must be, and how many on each."""
        parts = self.contingents.get(pool, ())
        if sum(part.workers for part in parts) != workers:  # it is not the gang that was divided
            return []
        return [(self._mask(part.nodes), part.workers) for part in parts]

    def _mask(self, names: Iterable[NodeId]) -> int:
        mask = 0
        for name in names:
            if name in self.nodes:
                mask |= self.nodes[name].bit
        return mask

    def preferred_nodes(self, pool: str) -> tuple[int, ...]:
        """The groups of nodes that the jobs of a pool prefer, the best first."""
        groups = self.preferred.get(pool)
        if groups is None:
            return ()
        found = self._preferred.get(pool)
        if found is None or found[0] != self.regrouped:
            masks = tuple(map(self._mask, groups))
            found = self._preferred[pool] = self.regrouped, masks
        return found[1]

    # -- taking and giving back --------------------------------------------------------------

    def take(self, part: Part, need: Resources) -> None:
        """Book a part; refuses what is not free, and books nothing then."""
        node = self.nodes[part.node]
        spec, workers = node.spec, part.workers
        cpu_milli = need.cpu_milli * workers if spec.cpu_milli else 0
        if cpu_milli and cpu_milli > node.cpu_left:
            raise Fatal(f"{part} takes more CPUs than node {node.id} has left")
        memory_mib = need.memory_mib * workers if spec.memory_mib else 0
        if memory_mib and memory_mib > node.memory_left:
            raise Fatal(f"{part} takes more memory than node {node.id} has left")
        if spec.workers and workers > node.workers_left:
            raise Fatal(f"{part} is more workers than node {node.id} takes")
        extras = need.extras
        if extras and (short := extra_shortage(spec.extras, node.extras_used, extras, workers)):
            raise Fatal(f"{part} takes more of {short} than node {node.id} has left")
        if part.share_milli == WHOLE:
            mask = mask_of(part.gpus)
            # What is hidden is not found, but can be taken: a run gets its own place back.
            if (mask & ~node.free and mask & (node.taken | ~node.healthy)) or not node.here:
                raise Fatal(f"{part} is not free (free: {devices(node.free)}, here: {node.here})")
            node.taken |= mask
            node.free &= ~mask
        else:
            self._share(node, part, need)
        if self._tried is not None:
            self._tried.append((True, part, need))
        node.cpu_left -= cpu_milli
        node.memory_left -= memory_mib
        if spec.workers:
            node.workers_left -= workers
        if extras:
            _use(node, extras, workers)
        self._show(node)

    def claim(self, parts: Iterable[tuple[Part, Resources]]) -> str:
        """Book all of these parts, or none of them: then say why."""
        taken: list[tuple[Part, Resources]] = []
        for part, need in parts:
            node = self.nodes.get(part.node)
            why = f"there is no node {part.node}" if node is None else refusal(node, part, need)
            if why:
                with self.trial():
                    for each in reversed(taken):
                        self.release(*each)
                return why
            self.take(part, need)
            taken.append((part, need))
        return ""

    def release(self, part: Part, need: Resources) -> None:
        """Give a part back."""
        node = self.nodes[part.node]
        if part.share_milli == WHOLE:
            mask = mask_of(part.gpus)
            if mask & ~node.taken:
                raise Fatal(f"{part} is given back twice")
            node.taken ^= mask
            node.count_free()
        else:
            self._unshare(node, part, need)
        if self._tried is not None:
            self._tried.append((False, part, need))
        if need.cpu_milli and node.spec.cpu_milli:
            node.cpu_left += need.cpu_milli * part.workers
        if need.memory_mib and node.spec.memory_mib:
            node.memory_left += need.memory_mib * part.workers
        if node.spec.workers:
            node.workers_left += part.workers
        if need.extras:
            _use(node, need.extras, -part.workers)
        self._show(node)
        self.releases += 1

    def _share(self, node: Node, part: Part, need: Resources) -> None:
        (gpu,) = part.gpus
        device = node.shared.get(gpu)
        if device is None:
            if not (node.free >> gpu & 1 and node.here):
                raise Fatal(f"{part} is not free (free: {devices(node.free)}, here: {node.here})")
            node.free ^= 1 << gpu
            node.taken |= 1 << gpu
            device = node.shared[gpu] = Device(WHOLE, node.spec.gpu_memory_mib, need.way)
        elif device.way is not need.way:
            raise Fatal(f"{part} is to be {need.way}, but GPU {gpu} is shared the {device.way} way")
        device.left_milli -= part.share_milli
        device.left_mib -= memory_on(node.spec, need)
        if device.left_milli < 0 or device.left_mib < 0:
            raise Fatal(f"{part} takes more than is left of GPU {gpu} on node {node.id}")

    def _unshare(self, node: Node, part: Part, need: Resources) -> None:
        (gpu,) = part.gpus
        device = node.shared[gpu]
        device.left_milli += part.share_milli
        device.left_mib += memory_on(node.spec, need)
        if device.left_milli > WHOLE:
            raise Fatal(f"{part} is given back twice")
        if device.left_milli == WHOLE:
            del node.shared[gpu]
            node.taken ^= 1 << gpu
            node.count_free()

    def _show(self, node: Node) -> None:
        """Bring masks and sums up to date with a node's books."""
        count = node.free.bit_count() if node.up else 0
        milli = count * WHOLE
        bit = node.bit
        if node.shared or self.sharing & bit:
            usable = node.healthy & node.visible
            live = node.up and any(usable >> gpu & 1 for gpu in node.shared)
            if live != bool(self.sharing & bit):
                self.sharing ^= bit
            if live:
                milli += sum(
                    device.left_milli for gpu, device in node.shared.items() if usable >> gpu & 1
                )
        if node.spec.workers or not node.spec.mixed or self.crowded & bit:
            short = node.spec.workers > 0 and node.workers_left < node.spec.gpus
            apart = not node.spec.mixed and bool(node.shared)
            if (node.up and (short or apart)) != bool(self.crowded & bit):
                self.crowded ^= bit
        shown = node.shown
        if count != shown:
            at_least = self.at_least
            low, high = (shown, count) if shown < count else (count, shown)
            for level in range(low + 1, high + 1):
                at_least[level] ^= bit
            node.shown = count
            gpus = node.spec.gpus
            if gpus in (shown, count):
                self.full ^= bit
        self.free_milli += milli - node.shown_milli
        node.shown_milli = milli
        self.touch(node)

    def touch(self, node: Node) -> None:
        """Note that something about a node changed, for policies that remember refusals."""
        node.memo = None
        changed = self.changed
        changed.append(node)
        if len(changed) > _MEMORY:
            self.changed_before += len(changed) // 2
            del changed[: len(changed) // 2]

    def forget_changes(self) -> None:
        """Make everything invalid that is remembered about nodes."""
        self.changed_before += len(self.changed) + 1
        self.changed.clear()
        for node in self.order:
            node.memo = None

    @property
    def stamp(self) -> int:
        """A moment in the history of changes; see ``changed_since``."""
        return self.changed_before + len(self.changed)

    def changed_since(self, stamp: int) -> list[Node] | None:
        """Nodes that changed since then, or None when that is forgotten."""
        if stamp < self.changed_before:
            return None
        return self.changed[stamp - self.changed_before :]

    # -- what if -------------------------------------------------------------------------------

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Take and release at will, if in the end all is as it was: nothing was given back.

        What an exception leaves undone is undone here.
        """
        releases = self.releases
        outer, self._tried = self._tried, []
        try:
            yield
        except BaseException:
            tried, self._tried = self._tried, None
            for taken, part, need in reversed(tried):
                if taken:
                    self.release(part, need)
                else:
                    self.take(part, need)
            raise
        finally:
            self._tried = outer
            self.releases = releases

    def moment(self) -> tuple[int, int, int]:
        """A point to come back to; see ``back_to``."""
        return self.releases, self.changed_before, len(self.changed)

    def back_to(self, moment: tuple[int, int, int]) -> None:
        """All is as it was then: nothing was given back since, and no node changed."""
        self.releases, before, length = moment
        if self.changed_before == before and len(self.changed) > length:
            del self.changed[length:]
            self.rewinds += 1

    @contextmanager
    def hidden(self, parts: Iterable[tuple[Part, Resources]]) -> Iterator[None]:
        """Hide what is free of these parts, so that no run can be placed there meanwhile."""
        # Added back in the end, not set back: what was taken or released meanwhile still counts.
        hid: list[tuple[Node, int, int, int, int]] = []
        extras: list[tuple[Node, Extras]] = []
        for part, need in parts:
            node = self.nodes[part.node]
            mask = node.visible & mask_of(part.gpus)
            cpus = min(node.cpu_left, need.cpu_milli * part.workers)
            memory = min(node.memory_left, need.memory_mib * part.workers)
            workers = min(node.workers_left, part.workers)
            hid.append((node, mask, cpus, memory, workers))
            node.visible ^= mask
            node.cpu_left -= cpus
            node.memory_left -= memory
            node.workers_left -= workers
            if need.extras:
                free = _free_of(node, need.extras, part.workers)
                _use(node, free, 1)
                extras.append((node, free))
        touched = dict.fromkeys(one[0] for one in hid)
        for node in touched:
            node.count_free()
            self._show(node)
        try:
            yield
        finally:
            for node, mask, cpus, memory, workers in hid:
                node.visible |= mask
                node.cpu_left += cpus
                node.memory_left += memory
                node.workers_left += workers
            for node, free in extras:
                _use(node, free, -1)
            for node in touched:
                node.count_free()
                self._show(node)

    @contextmanager
    def confined(self, parts: Iterable[Part], within: Level | None) -> Iterator[None]:
        """Show only the cell of that level in which these parts are."""
        if within is None or within is Level.CLUSTER:
            yield
            return
        first = next(iter(parts))
        spec = self.nodes[first.node].spec
        if within > Level.NODE:
            alone = self.nodes[first.node].bit
            with self.only(self.domains[within].get(spec.domain(within)) or alone):
                yield
            return
        gpu = first.gpus[0] if first.gpus else 0
        with self.only(self.nodes[first.node].bit, cell_of(spec, gpu, within)):
            yield

    @contextmanager
    def only(self, nodes: int, gpus: int = -1) -> Iterator[None]:
        """Show only these nodes and, if it is a single one, only these of its devices.

        What is taken meanwhile must be released before the end.
        """
        node = self.order[nodes.bit_length() - 1]
        if gpus != -1:
            visible, node.visible = node.visible, node.visible & gpus
            node.count_free()
            self._show(node)
        masks = self.at_least, self.full, self.sharing, self.up
        self.at_least = [mask & nodes for mask in self.at_least]
        self.full &= nodes
        self.sharing &= nodes
        self.up &= nodes
        try:
            yield
        finally:
            self.at_least, self.full, self.sharing, self.up = masks
            if gpus != -1:
                node.visible = visible
                node.count_free()
                self._show(node)

    @contextmanager
    def within(self, view: Mapping[Node, int]) -> Iterator[None]:
        """Show only these devices of these nodes; what is taken meanwhile must be released."""
        nodes, hid = 0, list[tuple[Node, int]]()
        for node, mask in view.items():
            nodes |= node.bit
            if ~mask & ((1 << node.spec.gpus) - 1):
                hid.append((node, node.visible))
                node.visible &= mask
                node.count_free()
                self._show(node)
        masks = self.at_least, self.full, self.sharing, self.up
        self.at_least = [mask & nodes for mask in self.at_least]
        self.full &= nodes
        self.sharing &= nodes
        self.up &= nodes
        try:
            yield
        finally:
            self.at_least, self.full, self.sharing, self.up = masks
            for node, visible in hid:
                node.visible = visible
                node.count_free()
                self._show(node)

    # -- finding room --------------------------------------------------------------------------

    def candidates(self, need: Resources) -> int:
        """The set of nodes that may hold a worker, by GPUs, kind and pool alone."""
        if not need.gpus:
            mask = self.up
        elif need.share_milli < WHOLE:
            mask = self.sharing | (self.at_least[1] if len(self.at_least) > 1 else 0)
        else:
            mask = self.at_least[need.gpus] if need.gpus < len(self.at_least) else 0
        return mask & self.eligible(need) if need.kinds or need.pool else mask

    def eligible(self, need: Resources) -> int:
        """The set of nodes in service of the kinds and the pool that a worker asks for."""
        mask = self.up
        if need.kinds:
            of_kinds = 0
            for kind in need.kinds:
                of_kinds |= self.kinds.get(kind, 0)
            mask &= of_kinds
        if need.pool:
            mask &= self.pools.get(need.pool, 0)
        return mask

    def suits(self, node: Node, need: Resources) -> bool:
        """The same of one node, in service or not."""
        if need.kinds and node.spec.kind not in need.kinds:
            return False
        return not need.pool or bool(self.pools.get(need.pool, 0) & node.bit)

    def select(self, mask: int) -> Iterator[Node]:
        """The nodes of a set, in order."""
        order = self.order
        while mask:
            low = mask & -mask
            yield order[low.bit_length() - 1]
            mask ^= low

    def room(self, node: Node, need: Resources) -> int:
        """How many such workers fit on a node now; whether it suits is the caller's business."""
        if not node.up:
            return 0
        if not node.spec.mixed and is_other_use(node, need):
            return 0
        if not need.gpus:
            count = PLENTY
        elif need.share_milli < WHOLE:
            count = sum(count for _, count in self.shares(node, need))
        else:
            count = node.free.bit_count() // need.gpus
            if (
                count
                and node.spec.gpu_memory_mib
                and need.gpu_memory_mib > node.spec.gpu_memory_mib
            ):
                return 0
        if count and need.cpu_milli and node.spec.cpu_milli:
            count = min(count, node.cpu_left // need.cpu_milli)
        if count and need.memory_mib and node.spec.memory_mib:
            count = min(count, node.memory_left // need.memory_mib)
        if count and need.extras:
            count = min(count, extra_room(node.spec.extras, node.extras_used, need.extras))
        return min(count, node.workers_left) if node.spec.workers else count

    def shares(self, node: Node, need: Resources) -> list[tuple[int, int]]:
        """Devices with room for shares, fullest first, and how many each takes."""
        memory = memory_on(node.spec, need)
        found = []
        for gpu, device in node.shared.items():
            if device.way is not need.way:
                continue
            count = device.left_milli // need.share_milli
            if memory:
                count = min(count, device.left_mib // memory)
            if count and node.healthy & node.visible & 1 << gpu:
                found.append((device.left_milli, gpu, count))
        found.sort()
        fresh = WHOLE // need.share_milli
        if memory:
            fresh = min(fresh, node.spec.gpu_memory_mib // memory)
        whole = [(gpu, fresh) for gpu in devices(node.free)] if fresh else []
        return [(gpu, count) for _, gpu, count in found] + whole

    @property
    def largest(self) -> int:
        """The most GPUs that a node in service has."""
        if self._largest[0] is not self.up:
            self._largest = self.up, max((n.spec.gpus for n in self.select(self.up)), default=0)
        return self._largest[1]

    def could(self, need: Resources, workers: int) -> bool:
        """Whether some node, were it empty, could hold so many workers."""
        if (
            need.gpus
            and need.share_milli == WHOLE
            and not (need.kinds or need.cpu_milli or need.memory_mib or need.gpu_memory_mib)
            and not (need.pool or need.extras or self.crowded)
        ):
            return need.gpus * workers <= self.largest
        key = (need, workers, self.up)
        found = self._could.get(key)
        if found is None:
            nodes = self.select(self.eligible(need))
            found = any(empty_room(node.spec, need) >= workers for node in nodes)
            if len(self._could) > _MEMORY:
                self._could.clear()
            self._could[key] = found
        return found

    def pick(self, node: Node, need: Resources, workers: int, role: str = WORKER) -> list[Part]:
        """Choose devices for workers that ``room`` says fit: near each other, or shared ones."""
        if not need.gpus:
            return [Part(node.id, (), WHOLE, workers, role)]
        if need.share_milli < WHOLE:
            parts: list[Part] = []
            for gpu, count in self.shares(node, need):
                chosen = min(count, workers - len(parts))
                parts += [Part(node.id, (gpu,), need.share_milli, 1, role)] * chosen
            return parts
        count = need.gpus * workers
        mask = node.free if node.spec.sockets == 1 else near(node, count)
        if node.leaving and (left := mask & ~node.leaving).bit_count() >= count:
            mask = left
        return [Part(node.id, lowest(mask, count), WHOLE, workers, role)]


def _use(node: Node, extras: Extras, workers: int) -> None:
    """Add what so many workers take of a node's extras to what is taken of them."""
    used = node.extras_used
    for name, amount in extras:
        now = used.get(name, 0) + amount * workers
        if now:
            used[name] = now
        else:
            del used[name]


def _free_of(node: Node, extras: Extras, workers: int) -> Extras:
    """What is free of as much as so many workers would take."""
    spec, used = node.spec.extras, node.extras_used
    left = (
        (name, min(amount * workers, extra_capacity(spec, name) - used.get(name, 0)))
        for name, amount in extras
    )
    return tuple((name, amount) for name, amount in left if amount > 0)
