"""A cluster in memory: objects, requests that get lost, and pods that run at once.

What the real API server does is tried in ``tests/kubernetes``; here the same operator meets it a
hundred times a second, and everything that can go wrong with a request does.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tests.support.kubernetes.nodes import node

from roost import placement, policies
from roost.errors import Conflict, NotFound, Retryable
from roost.jobs.clock import WallClock
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object, ResourceKind
from roost.kubernetes.filters.turns import FilterFactory
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.leadership import Leadership
from roost.kubernetes.operator.workload import SourceFactory

Key = tuple[str, str]


class SmallCluster:
    """Objects by kind and name, and who is told of changes. ``faults`` is the share of requests
    that go wrong: half of them before, half of them after the server has done its part."""

    def __init__(self, seed: int = 0, faults: float = 0.0) -> None:
        self.stored: dict[ResourceKind, dict[Key, Object]] = {}
        self.leadership: Leadership | None = None
        self.random, self.faults, self._hushed = random.Random(seed), faults, 0
        self.logs: dict[str, bytes] = {}
        #: Pods that were ever made, by name: how many of each were there at once, at most.
        self.most: dict[str, int] = {}
        self.requests = 0
        self.runs = True
        self._numbers = itertools.count(1)
        #: Kinds that the server does not know.
        self.unserved: set[ResourceKind] = set()
        self.opening = SourceFactory(JobController.kinds, JobController)
        self.clock = WallClock().now
        self.filters: Sequence[FilterFactory] = ()

    def objects(self, kind: ResourceKind) -> Mapping[Key, Object]:
        return self.stored.setdefault(kind, {})

    # -- what an Api is asked --------------------------------------------------------------------

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        await asyncio.sleep(0)
        return copy.deepcopy(self._found(kind, name, namespace))

    async def discover(self, kind: ResourceKind) -> bool:
        await asyncio.sleep(0)
        return kind not in self.unserved

    async def create(self, kind: ResourceKind, body: Object, namespace: str = "") -> Object:
        await self._asked()
        if kind in self.unserved:
            raise NotFound(f"the server has no {kind.resource}")
        key = (namespace, body["metadata"]["name"])
        if key in self.objects(kind):
            raise Conflict(f"{kind.kind} {key[1]} already exists")
        made = copy.deepcopy(body)
        made["metadata"] |= {
            "namespace": namespace,
            "uid": f"uid-{next(self._numbers)}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
        }
        if kind is PODS:
            runs = self.runs and "nodeName" in made["spec"]
            made.setdefault("status", {"phase": "Running" if runs else "Pending"})
        self.put(kind, key, made)
        await self._answered()
        return copy.deepcopy(made)

    async def patch(
        self,
        kind: ResourceKind,
        name: str,
        body: Object,
        namespace: str = "",
        *,
        sub: str = "",
    ) -> Object:
        await self._asked()
        found = self._found(kind, name, namespace)
        uid = body.get("metadata", {}).get("uid")
        if uid not in (None, found["metadata"]["uid"]):
            raise Conflict("another object")
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise Conflict("another version")
        changed = merged(found, body)
        if "spec" in body and not sub:
            changed["metadata"]["generation"] += 1
        self.put(kind, (namespace, name), changed)
        await self._answered()
        return copy.deepcopy(changed)

    async def delete(
        self,
        kind: ResourceKind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        del grace_s
        await self._asked()
        found = self.objects(kind).get((namespace, name))
        if found is not None and uid in ("", found["metadata"]["uid"]):
            self.put(kind, (namespace, name), None)
        await self._answered()

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        await self._asked()
        found = self._found(PODS, name, namespace)
        if found["metadata"]["uid"] != uid or found["spec"].get("nodeName"):
            raise Conflict(f"pod {name} is bound already")
        changed = merged(
            found, {"spec": {"nodeName": node}, "metadata": {"annotations": dict(annotations)}}
        )
        if self.runs:
            changed["status"] = {"phase": "Running"}
        self.put(PODS, (namespace, name), changed)
        await self._answered()

    async def log(self, namespace: str, name: str, **_: Any) -> bytes:
        del namespace
        return self.logs.get(name, b"")

    async def follow(self, namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
        """A log until its pod is gone."""
        yield b""
        sent = 0
        while True:
            is_gone = (namespace, name) not in self.objects(PODS)
            if found := self.logs.get(name, b"")[sent:]:
                sent += len(found)
                yield found
            if is_gone:
                return
            await asyncio.sleep(0.001)

    async def get_metadata(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        return {"metadata": (await self.get(kind, name, namespace))["metadata"]}

    # -- what tests do ---------------------------------------------------------------------------

    def node(self, name: str, gpus: int = 4) -> None:
        made = node(name, gpus=gpus)
        made["metadata"] |= {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.put(NODES, ("", name), made)

    async def submit(self, name: str, **spec: Any) -> Object:
        body = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {"name": name},
            "spec": {"image": "busybox", "command": ["train"], "gpus": 1, **spec},
        }
        with self.quiet():
            return await self.create(JOBS, body, "default")

    async def change(self, name: str, **patch: Any) -> None:
        with self.quiet():
            await self.patch(JOBS, name, patch, "default")

    async def remove(self, kind: ResourceKind, name: str) -> None:
        with self.quiet():
            await self.delete(kind, name, "default")

    def end(self, name: str, code: int) -> None:
        """Let a pod end."""
        ended = {"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "worker", "state": {"terminated": ended}}],
        }
        found = self._found(PODS, name, "default")
        self.put(PODS, ("default", name), merged(found, {"status": status}))

    def status(self, name: str) -> Object:
        found = self.objects(JOBS).get(("default", name)) or {}
        return found.get("status") or {}

    def pods(self) -> list[str]:
        return sorted(name for _, name in self.objects(PODS))

    def alive(self) -> list[str]:
        running = ("Pending", "Running")
        found = self.objects(PODS).items()
        return sorted(name for (_, name), pod in found if pod["status"]["phase"] in running)

    async def reaches(self, name: str, state: str, **more: Any) -> Object:
        for _ in range(4000):
            found = self.status(name)
            if found.get("state") == state and all(found.get(k) == v for k, v in more.items()):
                return found
            await asyncio.sleep(0.005)
        raise AssertionError(f"{name} is not {state}: {self.status(name)}, pods {self.pods()}")

    async def until(self, look: Any) -> None:
        for _ in range(4000):
            if look():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"it never was so; pods {self.pods()}")

    @contextlib.contextmanager
    def quiet(self) -> Any:
        """Nothing goes wrong with what tests ask."""
        self._hushed += 1  # some may ask at the same time
        try:
            yield
        finally:
            self._hushed -= 1

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[Leadership]:
        """An operator that leads."""
        leadership = Leadership(
            policies.policy("priority"),
            placement.placer("consolidate"),
            self.objects,
            self.clock,
            [self.opening],
            api=self,  # type: ignore[arg-type]
            binder=Binder(self, lambda: None),  # type: ignore[arg-type]
            lost_s=0.2,
            filters=self.filters,
        )
        self.leadership = leadership
        task = asyncio.create_task(leadership.run())
        try:
            yield leadership
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.leadership = None

    # -- the server ------------------------------------------------------------------------------

    def _fails(self) -> bool:
        return not self._hushed and self.random.random() < self.faults / 2

    async def _asked(self) -> None:
        self.requests += 1
        await asyncio.sleep(0)
        if self._fails():
            raise Retryable("the request was lost", 0.0)

    async def _answered(self) -> None:
        await asyncio.sleep(0)
        if self._fails():
            raise Retryable("the answer was lost", 0.0)

    def _found(self, kind: ResourceKind, name: str, namespace: str) -> Object:
        found = self.objects(kind).get((namespace, name))
        if found is None:
            raise NotFound(f"no {kind.kind} {name}")
        return found

    def put(self, kind: ResourceKind, key: Key, new: Object | None) -> None:
        there = self.stored.setdefault(kind, {})
        old = there.pop(key, None)
        if new is not None:
            new["metadata"]["resourceVersion"] = str(next(self._numbers))
            there[key] = new
        if self.leadership is not None:
            self.leadership.observe(kind, old, new)


def merged(found: Object, patch: Object) -> Object:
    """A merge patch, applied."""
    made = copy.deepcopy(found)
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            made[name] = merged(made[name], dict(value))
        else:
            made[name] = copy.deepcopy(value)
    return made
