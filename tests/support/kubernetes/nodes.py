"""Nodes by the thousand, and pods to put on them.

    await nodes(api, 1000, gpus=8, labels=lambda i: {"topology.kubernetes.io/rack": f"r{i // 16}"})
    await create(api, PODS, [pod(f"worker-{i}", gpus=1) for i in range(8)])

A node brings its whole status with it, as a kubelet that registers does; KWOK then plays kubelet
for it because of its label.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tests.support.kubernetes.stages import LABEL, PRETEND

from roost.errors import Retryable
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, Object, ResourceKind

_LOOK_S = 0.02
T = TypeVar("T")

#: The same labels for all, or each node's by its number.
Labels = Mapping[str, str] | Callable[[int], Mapping[str, str]]


def node(
    name: str,
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    capacity: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
) -> Object:
    """A node of KWOK's; ``capacity`` overrides what it has: 128 CPUs and 1 TiB."""
    has = {"cpu": "128", "memory": "1Ti", "pods": "256", "ephemeral-storage": "1Ti"}
    has |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    has |= capacity or {}
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**LABEL, **own, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {
            "capacity": has,
            "allocatable": dict(has),
            "conditions": [condition("Ready", holds=ready, reason="Registered")],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }


async def nodes(
    api: Api, count: int, *, gpus: int = 8, labels: Labels | None = None, prefix: str = "node"
) -> list[str]:
    """Create nodes ``<prefix>-0000`` and so on; answers their names."""
    names = [f"{prefix}-{number:04}" for number in range(count)]
    made = []
    for number, name in enumerate(names):
        given = labels(number) if callable(labels) else labels
        made.append(node(name, gpus=gpus, labels=given))
    await create(api, NODES, made)
    return names


async def create(api: Api, kind: ResourceKind, objects: Iterable[Object]) -> list[Object]:
    """Create objects as fast as the connections allow."""
    return list(await asyncio.gather(*(api.create(kind, one) for one in objects)))


def pod(
    name: str,
    *,
    gpus: int = 1,
    namespace: str = "default",
    scheduler: str = "roost",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    pretend: str = "",
    command: Sequence[str] = (),
    **spec: Any,
) -> Object:
    """A pod of one container; ``spec`` adds to its specification or overrides it."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container: Object = {"name": "main", "image": "example.org/train:1"}
    container["resources"] = {"limits": limits, "requests": {"cpu": "1", "memory": "1Gi", **limits}}
    if command:
        container["command"] = list(command)
    notes = {**(annotations or {}), **({PRETEND: pretend} if pretend else {})}
    metadata = {"name": name, "namespace": namespace, "annotations": notes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "labels": dict(labels or {})},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [container],
            **spec,
        },
    }


def condition(name: str, *, holds: bool, reason: str = "") -> Object:
    """A condition of a status, as of now."""
    status = "True" if holds else "False"
    return {"type": name, "status": status, "reason": reason, "lastTransitionTime": timestamp()}


def timestamp(*, micro: bool = False) -> str:
    """This moment as objects write it."""
    now = dt.datetime.now(dt.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


async def until(look: Callable[[], Awaitable[T]], timeout_s: float = 60.0) -> T:
    """What ``look`` answers as soon as it is true; it may fail for a while, but not for long."""
    last: object = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    last = found = await look()
                except Retryable as error:
                    last = error
                else:
                    if found:
                        return found
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise TimeoutError(f"not so after {timeout_s:.0f} s; last seen: {last!r}") from None
