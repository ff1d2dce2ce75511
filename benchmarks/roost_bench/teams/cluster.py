"""An API server in memory, with kubelets that start pods and jobs that end.

It answers the requests that an operator makes, and tells it of every change at once. Work is kept
when a job is stopped, as by a checkpoint: it goes on for what was left.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from roost.errors import Conflict, NotFound
from roost.kubernetes.client.kinds import EVENTS, JOBS, NODES, PODS, Object, ResourceKind
from roost.kubernetes.operator.leadership import Leadership
from roost.kubernetes.operator.status import stamp

Key = tuple[str, str]

SPACE = "lab"
#: When it all begins, in seconds since the epoch.
BEGINNING = 1_767_225_600.0
#: How long a kubelet takes to start a pod, and to end one.
_START_S, _END_S = 5.0, 3.0


class MemoryCluster:
    """Objects by kind and name, and an operator that hears of their changes."""

    def __init__(self) -> None:
        self.stored: dict[ResourceKind, dict[Key, Object]] = {}
        self.leadership: Leadership | None = None
        #: How much work each job has left, in seconds.
        self.left_s: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._going: set[asyncio.Task[None]] = set()
        #: Since when a pod runs, by uid.
        self._since: dict[str, float] = {}

    def now(self) -> float:
        """The time of the cluster, in seconds since the epoch."""
        return BEGINNING + asyncio.get_running_loop().time()

    def objects(self, kind: ResourceKind) -> Mapping[Key, Object]:
        """Objects of a kind by namespace and name."""
        return self.stored.setdefault(kind, {})

    # -- what an operator asks -------------------------------------------------------------------

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        """An object."""
        await asyncio.sleep(0)
        return copy.deepcopy(self._found(kind, name, namespace))

    async def get_metadata(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        """What an object is called."""
        return {"metadata": (await self.get(kind, name, namespace))["metadata"]}

    async def create(self, kind: ResourceKind, body: Object, namespace: str = "") -> Object:
        """Make an object; Events are not kept."""
        await asyncio.sleep(0)
        key = (namespace, body["metadata"].get("name", ""))
        if kind is EVENTS:
            return body
        if key in self.objects(kind):
            raise Conflict(f"{kind.kind} {key[1]} already exists")
        made = copy.deepcopy(body)
        made["metadata"] |= {
            "namespace": namespace,
            "uid": f"uid-{next(self._numbers)}",
            "creationTimestamp": stamp(self.now()),
            "generation": 1,
        }
        if kind is PODS:
            made["status"] = {"phase": "Pending"}
        self.put(kind, key, made)
        if kind is PODS and made["spec"].get("nodeName"):
            self._spawn(self._run(made))
        return copy.deepcopy(made)

    async def patch(  # noqa: PLR0913 - as the real one
        self,
        kind: ResourceKind,
        name: str,
        body: Object,
        namespace: str = "",
        *,
        sub: str = "",
        strategy: str = "merge",  # noqa: ARG002 - there is no other here
    ) -> Object:
        """Change an object."""
        await asyncio.sleep(0)
        found = self._found(kind, name, namespace)
        if body.get("metadata", {}).get("uid") not in (None, found["metadata"]["uid"]):
            raise Conflict("another object")
        changed = merged(found, body)
        if "spec" in body and not sub:
            changed["metadata"]["generation"] += 1
        self.put(kind, (namespace, name), changed)
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
        """Let an object go: a pod that runs somewhere takes a moment."""
        await asyncio.sleep(0)
        found = self.objects(kind).get((namespace, name))
        if found is None or uid not in ("", found["metadata"]["uid"]):
            return
        runs = kind is PODS and found["spec"].get("nodeName") and grace_s != 0
        if not runs or found["status"].get("phase") in ("Succeeded", "Failed"):
            self._remove(kind, (namespace, name))
        elif "deletionTimestamp" not in found["metadata"]:
            at = {"metadata": {"deletionTimestamp": stamp(self.now())}}
            self.put(kind, (namespace, name), merged(found, at))
            self._spawn(self._leave((namespace, name), found["metadata"]["uid"]))

    async def evict(self, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        """Ask a pod to leave."""
        await self.delete(PODS, name, namespace, uid=uid, grace_s=grace_s)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Put a pod on a node."""
        await asyncio.sleep(0)
        found = self._found(PODS, name, namespace)
        if found["metadata"]["uid"] != uid or found["spec"].get("nodeName"):
            raise Conflict(f"pod {name} is bound already")
        change = {"spec": {"nodeName": node}, "metadata": {"annotations": dict(annotations)}}
        bound = merged(found, change)
        self.put(PODS, (namespace, name), bound)
        self._spawn(self._run(bound))

    async def log(self, namespace: str, name: str, **_: Any) -> bytes:
        """What a pod printed: nothing."""
        del namespace, name
        return b""

    async def follow(self, namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
        """The same until it is gone."""
        yield b""
        while (namespace, name) in self.objects(PODS):  # noqa: ASYNC110 - time costs nothing here
            await asyncio.sleep(_END_S)

    # -- kubelets --------------------------------------------------------------------------------

    async def _run(self, pod: Object) -> None:
        await asyncio.sleep(_START_S)
        meta = pod["metadata"]
        found = self._same(meta)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        status = {"status": {"phase": "Running", "startTime": stamp(self.now())}}
        self.put(PODS, _key(meta), merged(found, status))
        self._since[meta["uid"]] = self.now()

    async def _leave(self, key: Key, uid: str) -> None:
        await asyncio.sleep(_END_S)
        found = self.objects(PODS).get(key)
        if found is not None and found["metadata"]["uid"] == uid:
            self._remove(PODS, key)

    def work(self, seconds: float) -> None:
        """Let jobs work with all of whose pods run; those with nothing left end."""
        for (space, name), job in list(self.objects(JOBS).items()):
            pods = list(self.pods_of(name))
            alive = [pod for pod in pods if pod["status"]["phase"] == "Running"]
            left = self.left_s.get(name, 0.0)
            if left <= 0 or len(alive) < int(job["spec"].get("workers", 1)):
                continue
            self.left_s[name] = left - seconds
            if self.left_s[name] <= 0:
                for pod in alive:
                    self._end(pod, 0)
            assert space == SPACE  # noqa: S101 - all are in one namespace

    def _end(self, pod: Object, code: int) -> None:
        ended = {"exitCode": code, "finishedAt": stamp(self.now())}
        told = [{"name": "worker", "state": {"terminated": ended}}]
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": told}
        self.put(PODS, _key(pod["metadata"]), merged(pod, {"status": status}))

    def pods_of(self, job: str) -> Iterator[Object]:
        """The pods of a job's runs; no placeholders."""
        for pod in list(self.objects(PODS).values()):
            if pod["metadata"].get("labels", {}).get("roost.dev/job") == job:
                yield pod

    # -- machines --------------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """A machine is gone, and what ran there with it."""
        self._remove(NODES, ("", node))
        for key, pod in list(self.objects(PODS).items()):
            if pod["spec"].get("nodeName") == node:
                self._remove(PODS, key)

    # -- objects ---------------------------------------------------------------------------------

    def put(self, kind: ResourceKind, key: Key, new: Object) -> None:
        """Store an object, and tell of it."""
        there = self.stored.setdefault(kind, {})
        old = there.get(key)
        new["metadata"]["resourceVersion"] = str(next(self._numbers))
        there[key] = new
        if self.leadership is not None:
            self.leadership.observe(kind, old, new)

    def _remove(self, kind: ResourceKind, key: Key) -> None:
        old = self.stored[kind].pop(key)
        if self.leadership is not None:
            self.leadership.observe(kind, old, None)

    def _same(self, meta: Object) -> Object | None:
        found = self.objects(PODS).get(_key(meta))
        return found if found is not None and found["metadata"]["uid"] == meta["uid"] else None

    def _found(self, kind: ResourceKind, name: str, namespace: str) -> Object:
        found = self.objects(kind).get((namespace, name))
        if found is None:
            raise NotFound(f"no {kind.kind} {name}")
        return found

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._going.add(task)
        task.add_done_callback(self._going.discard)


def merged(found: Object, patch: Object) -> Object:
    """A merge patch, applied."""
    made = copy.copy(found)
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            made[name] = merged(made[name], dict(value))
        else:
            made[name] = copy.deepcopy(value)
    return made


def _key(meta: Object) -> Key:
    return meta.get("namespace", ""), meta["name"]
