"""One node whose pods are real processes of this machine.

    async with Kubelet(api, "node-a", folder, gpus=2) as kubelet:
        ...

It registers the node, keeps its lease, runs the pods that are bound to it, reports their status,
and answers what the API server asks a node for: logs. A pod that is deleted gets its grace, then
its object is removed. ``pod_files`` makes what a container sees, ``pod_processes`` runs the pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from aiohttp import web
from tests.support.kubernetes import keys
from tests.support.kubernetes.nodes import condition, node, timestamp
from tests.support.kubernetes.pod_files import ADDRESS, PodFiles
from tests.support.kubernetes.pod_processes import Container, PodProcesses

from roost.errors import Conflict, NotFound, Retryable, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import LEASES, NODES, PODS, Object
from roost.kubernetes.client.mirror import Mirror

log = logging.getLogger(__name__)

_OVER = ("Succeeded", "Failed")
_LEASES = "kube-node-lease"
_LEASE_S, _RENEW_S = 40, 10.0
_FOLLOW_S = 0.1
_AGAIN_S = 0.5
_PIECE = 65536

T = TypeVar("T")


class Kubelet:
    """A node of this machine; ``lives`` has the pods that it knows, by their uid.

    ``claims`` is where the volumes of claims lie: nodes that share it share those.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        folder: Path,
        *,
        gpus: int = 8,
        labels: Mapping[str, str] | None = None,
        claims: Path | None = None,
    ) -> None:
        self.name, self.lives = name, dict[str, PodProcesses]()
        self._api, self._folder = api, folder / name
        self._gpus, self._labels = gpus, {"type": "processes", **(labels or {})}
        self._claims = claims or folder / "claims"
        self._mirror = Mirror(api, PODS, self._changed, fields=f"spec.nodeName={name}")
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[str] = set()
        self._leaving: set[str] = set()
        self._site: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Register the node and begin to run its pods."""
        self._folder.mkdir(parents=True, exist_ok=True)
        await self._register(await self._serve())
        self._spawn(self._mirror.run())
        self._spawn(self._renew())
        await asyncio.wait_for(self._mirror.synced.wait(), 60)

    async def stop(self) -> None:
        """Kill all pods and vanish without a word, as a machine does that loses its power."""
        for task in list(self._tasks):
            task.cancel()
        for life in self.lives.values():
            life.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._site is not None:
            await self._site.cleanup()

    def life(self, name: str, namespace: str = "default") -> PodProcesses:
        """The pod of that name."""
        for life in reversed(self.lives.values()):
            meta = life.pod["metadata"]
            if (meta["name"], meta["namespace"]) == (name, namespace):
                return life
        raise NotFound(f"node {self.name} knows no pod {namespace}/{name}")

    # Pods

    def _changed(self, old: Object | None, pod: Object | None) -> None:
        uid = "" if pod is None else pod["metadata"]["uid"]
        if old is not None and old["metadata"]["uid"] != uid:
            life = self.lives.get(old["metadata"]["uid"])
            if life is not None:
                life.kill()  # somebody removed it by force
        if pod is None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._leaving:
                self._leaving.add(uid)
                self._spawn(self._remove(pod))
        elif uid not in self._begun and pod["status"].get("phase") not in _OVER:
            self._begun.add(uid)
            self._spawn(self._begin(pod["metadata"]))

    async def _begin(self, meta: Object) -> None:
        """Read the whole pod, for a mirror keeps only some of it, and live its life."""
        try:
            pod = await _insist(lambda: self._api.get(PODS, meta["name"], meta["namespace"]))
        except NotFound:
            return
        uid = pod["metadata"]["uid"]
        if uid != meta["uid"] or uid in self._leaving:
            return
        folder = self._folder / "pods" / uid
        contents = PodFiles(self._api, pod, folder, self._claims)
        life = PodProcesses(pod, folder, contents, partial(self._report, pod))
        self.lives[uid] = life
        # What ran before this kubelet did is gone, and may not run twice.
        ran = pod["status"].get("phase") == "Running"
        lost = ran and pod["spec"].get("restartPolicy") == "Never"
        await (life.lose() if lost else life.run())

    async def _remove(self, pod: Object) -> None:
        meta = pod["metadata"]
        life = self.lives.get(meta["uid"])
        if life is not None:
            await life.end(float(meta.get("deletionGracePeriodSeconds") or 0))
            await self._report(pod, life.status())
        uid, namespace, name = meta["uid"], meta["namespace"], meta["name"]
        await _insist(lambda: self._api.delete(PODS, name, namespace, uid=uid, grace_s=0))

    async def _report(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]
        name, namespace = meta["name"], meta["namespace"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}

        async def send() -> None:
            with contextlib.suppress(NotFound, Conflict):  # gone, or another one of that name
                await self._api.patch(
                    PODS, name, body, namespace, sub="status", strategy="strategic"
                )

        await _insist(send)

    # The node

    async def report_ready(self, *, ready: bool) -> None:
        """Say that the node is ready, or that it is not."""
        status = {"conditions": [condition("Ready", holds=ready, reason="Told")]}
        body = {"status": status}
        await self._api.patch(NODES, self.name, body, sub="status", strategy="strategic")

    async def _register(self, port: int) -> None:
        body = node(self.name, gpus=self._gpus, labels=self._labels)
        body["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
        try:
            await self._api.create(NODES, body)
        except Conflict:
            status = {"status": body["status"]}
            await self._api.patch(NODES, self.name, status, sub="status", strategy="strategic")

    async def _renew(self) -> None:
        """Keep the node's lease, by which controllers know that it lives."""
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": _LEASE_S}
        while True:
            spec["renewTime"] = timestamp(micro=True)
            body = {"metadata": {"name": self.name, "namespace": _LEASES}, "spec": spec}
            try:
                try:
                    await self._api.patch(LEASES, self.name, {"spec": spec}, _LEASES)
                except NotFound:
                    await self._api.create(LEASES, body)
            except RoostError as error:
                log.warning("the lease of node %s: %s", self.name, error)
            await asyncio.sleep(_RENEW_S)

    # Logs

    async def _serve(self) -> int:
        """Answer the API server's questions; the port where."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._send_log)
        self._site = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._site.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*keys.write_certificate(self._folder, "kubelet"))
        await web.TCPSite(self._site, ADDRESS, 0, ssl_context=context).start()
        return int(self._site.addresses[0][1])

    async def _send_log(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info
        try:
            life = self.life(where["pod"], where["namespace"])
        except NotFound as error:
            raise web.HTTPNotFound(text=str(error)) from error
        container = life.container(where["container"])
        if container is None or not container.log.exists():
            raise web.HTTPBadRequest(text=f"container {where['container']} has not begun")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for piece in _wanted(container, request.query):
            await response.write(piece)
        return response

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("node %s: a task failed", self.name, exc_info=error)


async def _wanted(container: Container, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The log as the query asks for it: of the run before, its end, so many bytes, or on and on."""
    past = query.get("previous") == "true"
    path = container.log_of(container.restarts - 1) if past else container.log
    if not path.exists():
        return
    follows = query.get("follow") == "true" and not past
    with path.open("rb") as file:
        if "tailLines" in query:
            file.seek(_tail(file.read(), int(query["tailLines"])))
        left = int(query.get("limitBytes", sys.maxsize))
        while left > 0:
            ended = path != container.log or "running" not in container.state
            piece = file.read(min(_PIECE, left))
            left -= len(piece)
            if piece:
                yield piece
            elif ended or not follows:
                return
            else:
                await asyncio.sleep(_FOLLOW_S)


def _tail(content: bytes, lines: int) -> int:
    """Where the last lines begin."""
    kept = content.splitlines(keepends=True)[-lines:] if lines else []
    return len(content) - sum(map(len, kept))


async def _insist(send: Callable[[], Awaitable[T]]) -> T:
    """Send until the API server answers: a node does not forget what it has to say."""
    while True:
        try:
            return await send()
        except Retryable:
            await asyncio.sleep(_AGAIN_S)
