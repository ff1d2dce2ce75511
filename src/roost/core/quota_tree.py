"""Queues that borrow from each other: the accounts of a tree of quotas.

A queue with a parent may have more than it was promised as long as others of its tree leave it
unused. The sums are those of Kueue's cohorts:

    quota(q)  = what q was promised + what each child lets others have of its own quota
    kept(q)   = the part of quota(q) that q does not lend
    used(q)   = what the jobs of q hold + what each child uses beyond what it keeps
    room(q)   = what is left of kept(q), and of what its parent has room for as much as q may borrow

A queue without parent and children is alone in its tree. It may have what is idle, up to what it
may borrow, as queues always could: its quota is a guarantee. One with a parent that cannot be
(unknown, or a circle) may have what it was promised and no more, until that is repaired.

Accounts cost nothing where no queue has a parent or a quota beside GPUs: there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from roost.core.allocation import WORKER, Allocation
from roost.core.extras import extra_text
from roost.core.ledger import Ledger
from roost.core.quota import CPU, GPU, KIND, MEMORY, OTHER_KINDS, Quota
from roost.core.spec import WHOLE, JobSpec, NodeId, QueueId, QueueSpec, Resources

# The classes of fields are imported in earnest: a compiled dataclass asks for them.
if TYPE_CHECKING:
    from roost.core.state import Job

#: Amounts by resource.
Amounts: TypeAlias = dict[str, int]

#: More than there is of anything.
PLENTY: Final = 1 << 60
#: How many queues are named in a sentence.
_NAMED: Final = 3


class Holding(NamedTuple):
    """How a queue stands with one resource: what it was promised, and who has it."""

    resource: str
    quota: int
    borrowing: int | None
    lending: int | None
    used: int
    borrowed: int
    lent: int


@dataclass(slots=True, eq=False)
class Tree:
    """What the accounts of one tree share: what is counted, and which nodes are of which kind."""

    ledger: Ledger
    counted: dict[str, None] = field(default_factory=dict)
    kinds: dict[str, None] = field(default_factory=dict)
    #: Kinds of nodes as they were booked: what is given back is what was taken.
    known: dict[NodeId, str] = field(default_factory=dict)
    members: list[Account] = field(default_factory=list)

    def count(self, name: str) -> None:
        """Keep books of a resource."""
        self.counted[name] = None
        if name.startswith(KIND) and name != OTHER_KINDS:
            self.kinds[name[len(KIND) :]] = None

    def kind_of(self, node: NodeId) -> str:
        """The resource that GPUs of a node are, beside ``gpu``."""
        found = self.known.get(node)
        if found is None:
            at = self.ledger.nodes.get(node)
            found = self.known[node] = self.named(at.spec.kind if at is not None else "")
        return found

    def others(self) -> list[str]:
        """``*``, if there are nodes of kinds that are not counted one by one."""
        there = self.ledger.kinds.items()
        return ["*"] if any(nodes and kind not in self.kinds for kind, nodes in there) else []

    def named(self, kind: str) -> str:
        """The resource that GPUs of a kind are, beside ``gpu``."""
        return KIND + kind if kind in self.kinds else OTHER_KINDS


@dataclass(slots=True, eq=False)
class Account:
    """What one queue has of its tree: promises, what it holds, and what is left for it."""

    spec: QueueSpec
    tree: Tree
    #: Why it may borrow nothing although it names a parent; empty: it may.
    fault: str = ""
    parent: Account | None = None
    children: list[Account] = field(default_factory=list)
    quotas: dict[str, Quota] = field(default_factory=dict)
    quota: Amounts = field(default_factory=dict)
    kept: Amounts = field(default_factory=dict)
    #: What its own jobs hold; and that with what its children use beyond what they keep.
    own: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)

    # -- amounts -------------------------------------------------------------------------------

    def held(self, job: Job, allocation: Allocation) -> Amounts:
        """What an allocation takes of what is counted here."""
        found: Amounts = {}
        for part in allocation.parts:
            need = job.spec.resources
            if part.role != WORKER:
                need = next(role.resources for role in job.spec.roles if role.name == part.role)
            milli = len(part.gpus) * part.share_milli
            self._add(found, need, part.workers, milli, self.tree.kind_of(part.node))
        return found

    def asked(self, spec: JobSpec, workers: int, *, roles: bool = True, kind: str = "") -> Amounts:
        """What so many workers ask for; GPUs of that kind, or of one where only one will do."""
        found: Amounts = {}
        self._ask(found, spec.resources, workers, kind)
        if roles:
            for role in spec.roles:
                self._ask(found, role.resources, role.workers, kind)
        return found

    def claims(self, spec: JobSpec) -> Iterator[Amounts]:
        """What a job asks for to start, on each of the kinds that are counted and would do."""
        workers = spec.workers.min
        if len(spec.resources.kinds) == 1 or not spec.resources.gpus or not self.tree.kinds:
            yield self.asked(spec, workers)
            return
        for kind in self._named(spec.resources):
            if KIND + kind in self.tree.counted:
                yield self.asked(spec, workers, kind=KIND + kind)

    def _ask(self, found: Amounts, need: Resources, workers: int, kind: str) -> None:
        kinds = {self.tree.named(each) for each in need.kinds}
        kind = kinds.pop() if len(kinds) == 1 else kind
        self._add(found, need, workers, workers * need.gpu_milli, kind)

    def _add(self, found: Amounts, need: Resources, workers: int, milli: int, kind: str) -> None:
        counted = self.tree.counted
        if milli and GPU in counted:
            found[GPU] = found.get(GPU, 0) + milli
        if milli and kind in counted:
            found[kind] = found.get(kind, 0) + milli
        if CPU in counted and need.cpu_milli:
            found[CPU] = found.get(CPU, 0) + workers * need.cpu_milli
        if MEMORY in counted and need.memory_mib:
            found[MEMORY] = found.get(MEMORY, 0) + workers * need.memory_mib
        for name, amount in need.extras:
            if name in counted:
                found[name] = found.get(name, 0) + workers * amount

    # -- books ---------------------------------------------------------------------------------

    def book(self, amounts: Amounts, sign: int = 1) -> None:
        """Enter what was taken, or with ``sign=-1`` what was given back."""
        for name, amount in amounts.items():
            self.own[name] = self.own.get(name, 0) + sign * amount
            self._enter(name, sign * amount)

    def _enter(self, name: str, change: int) -> None:
        before = self.used.get(name, 0)
        self.used[name] = before + change
        if self.parent is not None:
            kept = self.kept[name]
            passed_on = max(0, before + change - kept) - max(0, before - kept)
            if passed_on:
                self.parent._enter(name, passed_on)  # noqa: SLF001 - of the same class

    def room(self, name: str) -> int:
        """How much more of a resource its jobs may have."""
        used = self.used.get(name, 0)
        if self.parent is None:
            return self._bound(name) - used
        kept = self.kept[name]
        left, room = max(0, kept - used), self.parent.room(name)
        borrowing = self._borrowing(name)
        if borrowing is not None:
            room = min(room, self.quota[name] - kept - max(0, used - kept) + borrowing)
        return left + room

    def _bound(self, name: str) -> int:
        """What all in a tree may have together: nothing is borrowed from elsewhere."""
        if self.children or self.fault:
            return self.quota[name]
        promised = self.quotas.get(name)
        bounded = promised is not None and promised.borrowing is not None
        return self.quota[name] + (self._borrowing(name) or 0) if bounded else PLENTY

    def _borrowing(self, name: str) -> int | None:
        promised, limit = self.quotas.get(name), self.spec.limit_milli
        if promised is None:
            return limit if name == GPU else None
        return promised.borrowing

    def nominal(self, name: str) -> int:
        """What the queue itself was promised."""
        promised = self.quotas.get(name)
        return 0 if promised is None else promised.nominal

    def lacks(self, amounts: Amounts) -> list[str]:
        """The resources of which there is no room for so much."""
        return [name for name, amount in amounts.items() if amount > self.room(name)]

    def admits(self, amounts: Amounts, before: Amounts | None = None) -> bool:
        """Whether there is room for so much, in place of what was held before."""
        for name, amount in amounts.items():
            more = amount if before is None else amount - before.get(name, 0)
            if more > 0 and more > self.room(name):
                return False
        return True

    def promised(self, amounts: Amounts) -> bool:
        """Whether a queue with so much more would still be within what it was promised."""
        own = self.own
        return all(own.get(name, 0) + more <= self.nominal(name) for name, more in amounts.items())

    # -- kinds of GPUs -------------------------------------------------------------------------

    def refuses(self, spec: JobSpec, workers: int, *, roles: bool) -> bool:
        """Whether so many workers find no room, on whatever kind of GPU."""
        if not self.admits(self.asked(spec, workers, roles=roles)):
            return True
        milli = workers * spec.resources.gpu_milli
        return bool(self.tree.kinds and milli and not any(self._open(spec.resources, milli)))

    def _open(self, need: Resources, milli: int) -> Iterator[str]:
        """The kinds, among those that would do, of which there is room for so much."""
        for kind in self._named(need):
            name = self.tree.named(kind)
            if name not in self.tree.counted or self.room(name) >= milli:
                yield kind

    def _named(self, need: Resources) -> list[str]:
        """Kinds that would do: those that the queue has quotas of first, in their order."""
        wanted = need.kinds or (*self.tree.kinds, *self.tree.others())
        own = [name[len(KIND) :] for name in self.quotas if name.startswith(KIND)]
        return [*(kind for kind in own if kind in wanted), *(k for k in wanted if k not in own)]

    def places(self, spec: JobSpec, milli: int, ledger: Ledger) -> Iterator[int]:
        """Sets of nodes on which so many GPUs may be had: the kind named first, …, all of them."""
        together, others = 0, ledger.up
        for kind in self.tree.kinds:
            others &= ~ledger.kinds.get(kind, 0)
        for kind in self._open(spec.resources, milli):
            nodes = others if kind == "*" else ledger.kinds.get(kind, 0)
            together |= nodes
            if nodes and KIND + kind in self.quotas:
                yield nodes
        if together:
            yield together

    # -- what is told --------------------------------------------------------------------------

    def borrowed(self, name: str) -> int:
        """What it and its children have beyond their quota."""
        return max(0, self.used.get(name, 0) - self.quota.get(name, 0))

    def share(self) -> float:
        """The largest part of a resource of its tree that its jobs have borrowed, by weight."""
        top, most = self.root, 0.0
        for name, amount in self.own.items():
            borrowed = amount - self.nominal(name)
            if borrowed > 0:
                most = max(most, borrowed / max(top.quota.get(name, 0), 1))
        return most / self.spec.weight

    @property
    def root(self) -> Account:
        """The top of its tree."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def holdings(self) -> list[Holding]:
        """How it stands with all that it was promised or holds."""
        found = []
        for name in self.tree.counted:
            quota, used = self.quotas.get(name), self.used.get(name, 0)
            if quota is None and not used:
                continue
            borrowing, lending = (None, None) if quota is None else quota[2:]
            borrowed = self.borrowed(name) if self.parent or self.children else 0
            lent = _lent(self, name)
            found.append(
                Holding(name, self.nominal(name), borrowing, lending, used, borrowed, lent)
            )
        return found

    def tell(self, amounts: Amounts, spec: JobSpec) -> str:
        """Why there is no room for so much, in a sentence."""
        lacking = self.lacks(amounts)
        name = lacking[0] if lacking else self._closed_kind(spec)
        has = f"its queue has {_of(name, self.own.get(name, 0), self.nominal(name))}"
        if self.fault:
            return f"{has} and may borrow none: {self.fault}"
        borrowing = self._borrowing(name)
        if self.parent is None or borrowing == 0:
            return (
                f"{has} and may have {'no more' if not borrowing else amount_text(name, borrowing)}"
            )
        bound = "what others leave" if borrowing is None else amount_text(name, borrowing)
        if borrowing is not None and self.borrowed(name) + amounts.get(name, 0) > borrowing:
            took = f"of which it has borrowed {amount_text(name, self.borrowed(name))}"
            return f"{has} and may borrow {bound}, {took}"
        return f"{has} and may borrow {bound}{self._borrowers(name)}"

    def _closed_kind(self, spec: JobSpec) -> str:
        """A kind that would do and of which there is no room."""
        kinds = spec.resources.kinds or tuple(self.tree.kinds)
        return self.tree.named(kinds[0])

    def _borrowers(self, name: str) -> str:
        """Who has borrowed of a resource in this tree, most first."""
        found = sorted(
            (
                (member.borrowed(name), member.spec.id)
                for member in self.tree.members
                if not member.children and member.borrowed(name)
            ),
            reverse=True,
        )
        if not found:
            return ", of which too little is left"
        told = [
            f"{amount_text(name, amount)} {'is' if amount == WHOLE else 'are'} borrowed by {who}"
            for amount, who in found[:_NAMED]
        ]
        return f", of which {', '.join(told)}"


def _of(name: str, used: int, nominal: int) -> str:
    """What is used of a promise: 8 of 8 H100."""
    first, _, unit = amount_text(name, nominal).partition(" ")
    return f"{amount_text(name, used).partition(' ')[0]} of {first} {unit}".rstrip()


def amount_text(name: str, amount: int) -> str:
    """An amount of a resource as people say it: 8 GPUs, 4 H100, 16 CPUs, 64Gi memory."""
    if name == GPU:
        return f"{amount / WHOLE:g} GPU{'' if 0 < amount <= WHOLE else 's'}"
    if name == OTHER_KINDS:
        return f"{amount / WHOLE:g} GPUs of other kinds"
    if name.startswith(KIND):
        return f"{amount / WHOLE:g} {name[len(KIND) :]}"
    if name == CPU:
        return f"{amount / 1000:g} CPUs"
    if name == MEMORY:
        return f"{amount / 1024:g}Gi memory"
    return extra_text(name, amount)


def _lent(account: Account, name: str) -> int:
    """What others have of a queue's quota: those with most to spare lend first."""
    parent = account.parent
    if parent is None:
        return 0
    wanted = _lent(parent, name) - parent.borrowed(name)
    wanted += sum(child.borrowed(name) for child in parent.children)
    own, nominal = parent.own.get(name, 0), parent.nominal(name)
    wanted -= nominal - own  # less than nothing is to spare where it has more than its own
    lenders = sorted(parent.children, key=lambda child: (-_spare(child, name), child.spec.id))
    for lender in lenders:
        part = max(0, min(wanted, _spare(lender, name)))
        if lender is account:
            return part
        wanted -= part
    return 0


def _spare(account: Account, name: str) -> int:
    """What a queue would lend of what it does not use."""
    quota, used = account.quota[name], account.used.get(name, 0)
    return max(0, min(quota - account.kept[name], quota - used))


# -- growing -----------------------------------------------------------------------------------


def grow(specs: Mapping[QueueId, QueueSpec], ledger: Ledger) -> dict[QueueId, Account]:
    """The accounts of all queues that need one, with nothing booked."""
    if not any(spec.parent is not None or spec.quotas for spec in specs.values()):
        return {}
    faults = faults_of(specs)
    parents = {
        name: spec.parent
        for name, spec in specs.items()
        if spec.parent is not None and name not in faults
    }
    wanted = [*parents, *parents.values(), *(n for n, s in specs.items() if s.quotas), *faults]
    found: dict[QueueId, Account] = {}
    for name in dict.fromkeys(wanted):
        account = Account(specs[name], Tree(ledger), faults.get(name, ""))
        account.quotas = {quota.resource: quota for quota in specs[name].promises}
        found[name] = account
    for name, above in parents.items():
        found[name].parent = found[above]
        found[above].children.append(found[name])
    for account in found.values():
        account.tree = account.root.tree
        account.tree.members.append(account)
        for resource in account.quotas:
            account.tree.count(resource)
    for account in found.values():
        if account.parent is None:
            _sum_up(account)
    return found


def _sum_up(account: Account) -> None:
    """Work out what a queue and all below it have and keep, children first."""
    for child in account.children:
        _sum_up(child)
    for name in account.tree.counted:
        lent = sum(child.quota[name] - child.kept[name] for child in account.children)
        total = account.quota[name] = account.nominal(name) + lent
        promised = account.quotas.get(name)
        bounded = promised is not None and promised.lending is not None
        account.kept[name] = max(0, total - (promised.lending or 0)) if bounded and promised else 0


def faults_of(specs: Mapping[QueueId, QueueSpec]) -> dict[QueueId, str]:
    """Queues with a parent that cannot be, and why."""
    found: dict[QueueId, str] = {}
    for name, spec in specs.items():
        if spec.parent is not None and spec.parent not in specs:
            found[name] = f"its parent {spec.parent} does not exist"
    passed: set[QueueId] = set()
    for name in specs:
        path: dict[QueueId, None] = {}
        at: QueueId | None = name
        while at is not None and at in specs and at not in path and at not in passed:
            path[at] = None
            at = specs[at].parent
        passed.update(path)
        if at is not None and at in path:
            circle = [*path][[*path].index(at) :]
            told = " → ".join([*circle, at])
            found.update(dict.fromkeys(circle, f"its parents are a circle: {told}"))
    return found
