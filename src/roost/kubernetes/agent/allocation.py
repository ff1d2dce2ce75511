"""Which pod an allocation is for, and what its container is told of its devices.

The kubelet does not say for which pod it allocates. It says a resource and a number; so the pod is
the first on this node that asks for as many and has none yet: it admits pods in the order in which
they were bound, and a watch tells both of us of them in this order. Which
GPUs it is to have the scheduler wrote on it (``roost.dev/gpus``). Before the container is made the
kubelet asks again, and by then it tells whose the devices are: if two pods were taken for each
other the container is not made, and the reason stands in the pod's events.

A pod of another scheduler has no GPUs written on it. It gets whole GPUs that nobody has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roost.core.allocation import WORKER, Seat
from roost.core.spec import WHOLE, NodeId, Resources
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.nodes import SHARED_GPUS
from roost.kubernetes.objects.pods import GPUS, devices_of, is_over, uid_of
from roost.kubernetes.objects.shares import devices_asked
from roost.kubernetes.objects.values import annotations_of, section, sections, text

#: Slots that pods have: by namespace and name, by container, by resource.
Given = Mapping[tuple[str, str], Mapping[str, Mapping[str, tuple[str, ...]]]]


@dataclass(frozen=True, slots=True)
class ContainerWish:
    """A container that asks for devices, and those that it is to have.

    ``gpus`` is None where no scheduler decided. ``need`` says how a share is held.
    """

    uid: str
    namespace: str
    pod: str
    container: str
    resource: str
    count: int
    gpus: tuple[int, ...] | None
    need: Resources
    node: NodeId

    @property
    def seat(self) -> Seat:
        """Where it is, as the local engine calls it."""
        return Seat(WORKER, 0, self.gpus or (), self.need.share_milli, self.node)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} (container {self.container})"


def wishes_of(pod: Object, names: Iterable[str], node: NodeId) -> Iterator[ContainerWish]:
    """The containers of a pod that ask for one of these resources; InvalidSpec in a sentence."""
    asked = list(_asked(pod, frozenset(names)))
    if not asked:
        return
    need = need_of(pod)
    decided = devices_of(pod) if GPUS in annotations_of(pod) else None
    meta = section(pod, "metadata")
    begin = 0
    for container, name, count, stays in asked:
        if name == SHARED_GPUS and (need.share_milli >= WHOLE or count > 1):
            raise InvalidSpec(
                f"{text(meta, 'namespace')}/{text(meta, 'name')} asks for {count} of {name}: it "
                "has to ask for 1, and to say how much of a GPU by the annotation "
                "roost.dev/gpu-share"
            )
        gpus = decided
        if decided is not None and need.share_milli >= WHOLE:
            gpus = decided[begin : begin + count]
            if len(gpus) < count:
                raise InvalidSpec(
                    f"{text(meta, 'namespace')}/{text(meta, 'name')} asks for more devices than "
                    f"{GPUS} names"
                )
            begin += count * stays  # those of an init container are used again
        yield ContainerWish(
            uid_of(pod),
            text(meta, "namespace"),
            text(meta, "name"),
            container,
            name,
            count,
            gpus,
            need,
            node,
        )


def need_of(pod: Object) -> Resources:
    """How a pod's devices are to be held."""
    requests: dict[str, int] = {}
    for container in sections(section(pod, "spec"), "containers"):
        for name, amount in _limits(container).items():
            if name not in {"cpu", "memory"}:
                requests[name] = requests.get(name, 0) + quantities.whole(amount, name)
    asked = devices_asked(annotations_of(pod), requests)
    return Resources(
        gpus=asked.gpus,
        share_milli=asked.share_milli,
        gpu_memory_mib=asked.memory_mib,
        qos=asked.qos,
        way=asked.way,
    )


def _asked(pod: Object, names: frozenset[str]) -> Iterator[tuple[str, str, int, bool]]:
    """Container, resource, how many, and whether it stays, as the kubelet goes through them."""
    for key in ("initContainers", "containers"):
        for container in sections(section(pod, "spec"), key):
            for name, amount in _limits(container).items():
                count = quantities.whole(amount, name) if name in names else 0
                if count:
                    stays = key == "containers" or container.get("restartPolicy") == "Always"
                    yield text(container, "name"), name, count, stays


def _limits(container: Object) -> Object:
    # Of devices a request equals the limit.
    return section(section(container, "resources"), "limits")


class NodeAllocations:
    """The pods of this node, and what the kubelet gave them. Knows nothing of sockets."""

    def __init__(self, node: NodeId, names: Iterable[str]) -> None:
        self._node, self._names = node, tuple(names)
        #: Pods in the order in which they came to this node.
        self._pods: dict[str, Object] = {}
        #: What was allocated, until the kubelet itself tells of it.
        self._noted: dict[tuple[str, str, str], tuple[int, ...]] = {}
        self._troubles: dict[str, str] = {}

    def troubles(self) -> list[str]:
        """What is wrong with what pods ask for."""
        return list(self._troubles.values())

    def see(self, old: Object | None, new: Object | None) -> None:
        """A pod of this node came, changed, or went."""
        if new is None or is_over(new):
            gone = uid_of(new or old or {})
            self._pods.pop(gone, None)
            self._troubles.pop(gone, None)
            for key in [key for key in self._noted if key[0] == gone]:
                del self._noted[key]
        else:
            self._pods[uid_of(new)] = new

    def pods(self) -> list[Object]:
        """Those that are not over."""
        return list(self._pods.values())

    def pod(self, namespace: str, name: str) -> Object | None:
        """A pod by its name."""
        for pod in self._pods.values():
            meta = section(pod, "metadata")
            if (meta.get("namespace"), meta.get("name")) == (namespace, name):
                return pod
        return None

    def waiting(self, resource: str, count: int, given: Given) -> list[ContainerWish]:
        """Containers that ask for so many and have none yet, in the order of their coming."""
        found = []
        # The time in whole seconds is for pods that were listed; of one second as they came.
        for pod in sorted(self._pods.values(), key=bound_at):
            for wish in self._wishes(pod):
                if (wish.resource, wish.count) != (resource, count):
                    continue
                has = given.get((wish.namespace, wish.pod), {}).get(wish.container, {})
                if resource not in has and (wish.uid, wish.container, resource) not in self._noted:
                    found.append(wish)
        return found

    def choice(self, wish: ContainerWish, given: Mapping[int, str]) -> tuple[int, ...]:
        """The GPUs for a container; ``given``: those that others have, and who.

        InvalidSpec where there are none.
        """
        if wish.gpus is not None:
            return wish.gpus
        if wish.need.share_milli < WHOLE:
            raise InvalidSpec(
                f"{wish} asks for a share of a GPU, and no scheduler that knows of shares placed "
                "it: it needs schedulerName: roost"
            )
        free = [gpu for gpu in given if not given[gpu]]
        if len(free) < wish.count:
            held = "; ".join(f"GPU {gpu}: {who}" for gpu, who in sorted(given.items()) if who)
            raise InvalidSpec(
                f"{wish} asks for {wish.count} whole GPUs and was not placed by Roost; "
                f"{len(free)} are left on this node ({held or 'it has no other'})"
            )
        return tuple(sorted(free)[: wish.count])

    def check(self, wish: ContainerWish, gpus: Sequence[int]) -> None:
        """Refuse to put on a GPU together what must not be: whole, and shares."""
        whole = wish.need.share_milli >= WHOLE
        for other, held in self.holders():
            if other.uid == wish.uid or not set(held) & set(gpus):
                continue
            if whole or other.need.share_milli >= WHOLE:
                (first, *_) = set(held) & set(gpus)
                raise InvalidSpec(
                    f"{wish} was to have GPU {first} {_as(wish)}, which {other} has {_as(other)}"
                )

    def holders(self) -> Iterator[tuple[ContainerWish, tuple[int, ...]]]:
        """Containers that were given devices here, as far as is noted."""
        for pod in self._pods.values():
            for wish in self._wishes(pod):
                held = self._noted.get((wish.uid, wish.container, wish.resource))
                if held is not None:
                    yield wish, held

    def taken(self, count: int) -> dict[int, str]:
        """Who has each GPU, or is to have it; empty: nobody."""
        found = dict.fromkeys(range(count), "")
        for pod in self._pods.values():
            meta = section(pod, "metadata")
            try:
                decided = devices_of(pod)
            except InvalidSpec:
                continue
            for gpu in decided:
                found[gpu] = f"{text(meta, 'namespace')}/{text(meta, 'name')}"
        for wish, held in self.holders():
            found.update(dict.fromkeys(held, str(wish)))
        return found

    def note(self, wish: ContainerWish, gpus: Sequence[int]) -> None:
        """The kubelet gave these to a container."""
        self._noted[wish.uid, wish.container, wish.resource] = tuple(gpus)

    def adopt(
        self, given: Mapping[tuple[str, str], Mapping[str, Mapping[str, tuple[int, ...]]]]
    ) -> None:
        """Take over what was given before this process began; those that have nothing have none."""
        for pod in self._pods.values():
            for wish in self._wishes(pod):
                has = given.get((wish.namespace, wish.pod), {}).get(wish.container, {})
                if wish.resource in has:
                    self.note(wish, has[wish.resource])

    def wish(self, namespace: str, pod: str, container: str, resource: str) -> ContainerWish | None:
        """What a container asks for."""
        found = self.pod(namespace, pod)
        for wish in () if found is None else self._wishes(found):
            if (wish.container, wish.resource) == (container, resource):
                return wish
        return None

    def _wishes(self, pod: Object) -> list[ContainerWish]:
        try:
            return list(wishes_of(pod, self._names, self._node))
        except InvalidSpec as error:
            self._troubles[uid_of(pod)] = str(error)
            return []


def bound_at(pod: Object) -> str:
    """When a pod was bound, in a form that sorts."""
    for one in sections(section(pod, "status"), "conditions"):
        if one.get("type") == "PodScheduled" and one.get("status") == "True":
            return text(one, "lastTransitionTime")
    return ""


def _as(wish: ContainerWish) -> str:
    return "whole" if wish.need.share_milli >= WHOLE else "in shares"
