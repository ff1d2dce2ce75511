"""What the loop knows of the things it schedules: a gang of pods, or a Roost Job.

The loop mirrors objects and runs the core. It knows neither Jobs nor gangs: a ``WorkloadSource``
says which pods belong together and opens a ``PodWorkload`` for them, which translates both ways:

    pods and objects change -> saw, touch -> reconcile -> events for the core
    the core decides        -> perform    -> requests to the API server, in tasks of its own

Everything here but tasks runs on the loop, between two awaits: no locks are needed. A source and
its workloads live as long as one leadership; the next leader opens them anew from the objects.
The first ``reconcile`` of a workload therefore tells how it stands (``Adopted``, ``Submitted``, or
nothing while it is not complete), all later ones what changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from roost.core import Action, Core, Decision, Event, JobId, NodeId
from roost.errors import RoostError

if TYPE_CHECKING:
    from roost.core.extras import Extras
    from roost.kubernetes.client.api import Api, Object
    from roost.kubernetes.client.kinds import ResourceKind
    from roost.kubernetes.filters.turns import NodeFilters
    from roost.kubernetes.objects.needs import Need
    from roost.kubernetes.operator.binding import Binder
    from roost.kubernetes.operator.gang_shares import Share
    from roost.kubernetes.operator.scope import NamespaceScope


class DecisionBatch(NamedTuple):
    """What the core has just handled, and what came of it; ``jobs`` are those it was about."""

    now: float
    events: Sequence[Event]
    decisions: Sequence[Decision]
    actions: Sequence[Action]
    jobs: Iterable[JobId]


class PodWorkload(Protocol):
    """One job of the core, and the pods that it is made of."""

    @property
    def id(self) -> JobId:
        """Its name in the core."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing of it is left in the cluster: the loop forgets it, and the core too.

        Asked after each ``reconcile``. The loop sends ``Deleted`` itself when the core's job is
        over.
        """
        ...

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """A pod of it came (old None), changed, or is gone (new None). Cheap: a note, no more."""
        ...

    def reconcile(self, now: float) -> Iterable[Event]:
        """What became of it since the last time; asked once a batch if it was seen or touched.

        The core has folded each event before the next one is asked for.
        """
        ...

    def perform(self, action: Action) -> None:
        """Make an action of the core real: returns at once, and goes on in ``context.spawn``.

        A later ``reconcile`` tells what came of it, asked for by ``context.requeue``.
        """
        ...

    def refused(self, event: Event, error: RoostError) -> None:
        """The core did not take an event of its ``reconcile``, and knows nothing of it."""
        ...


class WorkloadSource(Protocol):
    """Where workloads of one sort come from."""

    @property
    def kinds(self) -> tuple[ResourceKind, ...]:
        """Kinds that it wants mirrored beside pods and nodes, where the server serves them."""
        ...

    def claim(self, pod: Object) -> JobId | None:
        """The workload of a pod; None: none of this source. The first source to claim has it.

        It depends on nothing but the pod, and stays the same for as long as the pod lives.
        """
        ...

    def open(self, job: JobId) -> PodWorkload | None:
        """The workload of that name, when it is first seen or touched; None: there is none."""
        ...

    def initial_jobs(self) -> Iterable[JobId]:
        """At the start: workloads that there are even if they have no pods."""
        ...

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """An object of one of its kinds changed: it touches a workload or reports an event."""
        ...

    def after_decision(self, batch: DecisionBatch) -> None:
        """The core has decided; called once a batch, before the actions are performed."""
        ...


class SourceFactory(NamedTuple):
    """A sort of workloads: the kinds that it wants mirrored, and how its source is made."""

    kinds: tuple[ResourceKind, ...]
    make: Callable[[OperatorContext], WorkloadSource]


class OperatorContext(Protocol):
    """What the loop offers to sources and workloads; it lives as long as one leadership."""

    @property
    def api(self) -> Api:
        """The API server. Writes go through ``binder``."""
        ...

    @property
    def core(self) -> Core:
        """The core, to read."""
        ...

    @property
    def binder(self) -> Binder:
        """Writes, so many at once and none without the lease."""
        ...

    @property
    def scope(self) -> NamespaceScope:
        """The namespaces that are served: what is elsewhere takes room, and no more."""
        ...

    def now(self) -> float:
        """The core's time: seconds since the epoch, never running backwards."""
        ...

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Mirrored objects by namespace and name; empty where the server has no such kind."""
        ...

    def need_of(  # noqa: PLR0913 - what is known of a pod, a fact each
        self,
        pod: Object,
        shunned: tuple[NodeId, ...] = (),
        extras: Extras = (),
        *,
        is_placed: bool = False,
        share: Share | None = None,
        likes: int = 1,
    ) -> Need:
        """What a pod needs, with more extras, on other nodes than those; raises InvalidSpec.

        The core knows the pool of its resources. Filters are not asked about one that is placed.
        ``share`` is its share of a gang that is shared out; ``likes``: how many pods of the
        workload may be like this one.
        """
        ...

    def mismatch(self, pool: str) -> str:
        """Why no node is in a pool, in words; empty: some are, or nobody asks for it."""
        ...

    def share_out(
        self, pods: Sequence[Object], shunned: tuple[NodeId, ...], apart: str
    ) -> list[Share] | None:
        """The share of each pod of a gang whose pods keep each other away; None: they do not.

        ``apart`` names what each node has one of. InvalidSpec if they can never all be placed.
        """
        ...

    @property
    def filters(self) -> NodeFilters:
        """What filters say of pods and nodes."""
        ...

    def take_turn(self, job: JobId) -> bool:
        """Whether a workload that filters have a say about may come to the core in this batch.

        If not, it is reconciled again when it may.
        """
        ...

    def admit(self, places: Sequence[tuple[Object, NodeId]]) -> str:
        """Let filters count pods on nodes from now on, all or none; or why that must not be."""
        ...

    def requeue(self, job: JobId) -> None:
        """Let a workload be reconciled in the next batch; opens it if need be."""
        ...

    def observe(self, kind: ResourceKind, old: Object | None, new: Object | None) -> None:
        """Look at an object as if it had just come: its workload may be known by now."""
        ...

    def requeue_at(self, job: JobId, at: float) -> None:
        """The same at that time."""
        ...

    def report(self, event: Event) -> None:
        """Let the core handle an event that is of no workload, such as a changed queue."""
        ...

    def close_node(self, node: NodeId, because: JobId) -> None:
        """A pod of that workload is on a node without room for it: let nothing new go there."""
        ...

    def reopen_node(self, node: NodeId, because: JobId) -> None:
        """The books of a node add up again, as far as that workload is concerned."""
        ...

    def on_node_closed(self, listener: Callable[[NodeId], None]) -> None:
        """Call a source back when a node is closed: a vacant seat there may be the cause."""
        ...

    def is_node_gone(self, node: str) -> bool:
        """Whether a node is gone, so that no kubelet there can end a pod."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None] | None:
        """Let something go on beside the loop; it ends with the leadership. Errors are logged.

        A reader that makes no requests does nothing, and returns None.
        """
        ...

    def write_event(self, about: Object, reason: str, text: str, *, warning: bool = False) -> None:
        """Write an Event about an object, soon; many at once are thinned out."""
        ...
