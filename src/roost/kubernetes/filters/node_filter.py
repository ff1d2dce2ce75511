"""The contract between filters and the operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from roost.core import NodeId
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.core.extras import Extras
    from roost.kubernetes.client.kinds import Object, ResourceKind
    from roost.kubernetes.filters.division import Demands
    from roost.kubernetes.objects.preferences import NodePoints


class NotReady(InvalidSpec):
    """What a pod needs wherever it goes is not there yet; it is asked about again when it may be.

    Other than what makes no sense it ends no Job.
    """


class NodeFilter(Protocol):
    """One rule about where pods may go, with the objects that it looks at.

    All but ``prepare`` run on the loop between two awaits. A filter lives as long as one
    leadership, and is told of all objects at its start: nodes, its own kinds, then pods.

    Pods are known by namespace and name: those of Roost's own Jobs are reserved before they are
    made, when they have neither uid nor the server's defaults.
    """

    @property
    def kinds(self) -> tuple[ResourceKind, ...]:
        """Kinds that it wants mirrored beside pods and nodes, where the server serves them."""
        ...

    def object_changed(self, kind: ResourceKind, old: Object | None, new: Object | None) -> bool:
        """Note an object (pods and nodes too); whether verdicts may be others from now on."""
        ...

    def concerns(self, pod: Object) -> bool:
        """Whether it has a say about a pod as things stand; cheap, for most pods no."""
        ...

    def refusals(self, pod: Object, nodes: Iterable[Object]) -> Mapping[NodeId, str]:
        """Of these nodes those that a pod must not go to now, each with why.

        InvalidSpec with a sentence if it can go nowhere, whatever node comes; NotReady if that may
        pass without a change of the pod.
        """
        ...

    def together(self, pod: Object) -> str:
        """The label in which the nodes of all pods like this one must be alike.

        It is the first of them, so that ``refusals`` speak against no domain. Empty: none.
        """
        ...

    def reserve(self, pod: Object, node: NodeId) -> None:
        """Count a pod as being there from now on, before the API server knows."""
        ...

    def release(self, pod: Object) -> None:
        """Forget what ``reserve`` noted: it was not bound, or ``object_changed`` told that it is.

        Called once for each ``reserve``.
        """
        ...

    async def prepare(self, pod: Object, node: NodeId) -> None:
        """Write what must be written before the pod is bound there, and wait for it.

        All pods of a gang are prepared before the first is bound. Retryable: not now, or not there;
        what was written is taken back as far as it can be, and a place is looked for anew.
        """
        ...


@runtime_checkable
class PreferredNodes(Protocol):
    """A filter that knows better nodes from worse ones among those that it does not refuse."""

    def concerns(self, pod: Object) -> bool:
        """As of every filter."""
        ...

    def preferences(self, pod: Object, nodes: Iterable[Object]) -> NodePoints:
        """How good each of these nodes is for a pod that it ``concerns``; empty: all alike.

        It raises nothing that ``refusals`` would not: what is not understood is not preferred.
        """
        ...


@runtime_checkable
class GangFilter(Protocol):
    """A filter by which the pods of a gang may keep each other from their places."""

    def demands(self, pods: Sequence[Object]) -> Demands | None:
        """What pods that wait ask of each other, all of them the same; None: nothing."""
        ...


class PodRoom(NamedTuple):
    """For how many pods of one sort there is room on nodes, as things stand."""

    sort: str
    rooms: Mapping[NodeId, int]


@runtime_checkable
class CountingFilter(Protocol):
    """A filter that has only so much of something on each node: a gang is told how much."""

    def room(self, pod: Object, nodes: Iterable[Object], most: int) -> PodRoom | None:
        """For how many pods like this one there is room on each node; None: it is not counted.

        More than ``most`` need not be told.
        """
        ...

    def amounts(self, pod: Object) -> Extras:
        """What a pod takes of it, by the names under which queues count it."""
        ...
