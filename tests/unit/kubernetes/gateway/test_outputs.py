"""Logs of pods as files, copied from an API server that is not always ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

from roost.core import JobId, RunId
from roost.errors import InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.gateway import outputs
from roost.kubernetes.gateway.outputs import PodOutputs

RUN = RunId(JobId("lab.train"), 1)
POD = {
    "metadata": {"name": "train-1-worker-0", "namespace": "lab", "uid": "u"},
    "spec": {"containers": [{"name": "worker"}]},
}


class Server:
    """An API server with one pod, of which its kubelet has not heard at first."""

    def __init__(self, *answers: Exception | bytes, there: bool = True) -> None:
        self.answers, self.there = list(answers), there
        self.written = answers[-1] if isinstance(answers[-1], bytes) else b""
        self.asked: list[str] = []

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        if not self.there:
            raise NotFound(f"no {kind.kind} {namespace}/{name}")
        return POD

    async def log(self, *_: Any, container: str) -> bytes:
        self.asked.append(container)
        return self.written

    async def follow(self, *_: Any, **given: Any) -> AsyncIterator[bytes]:
        self.asked.append(given["container"])
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        yield found


def read(server: Server, tmp_path: Path, pod: Object = POD) -> bytes:
    def pods(_: RunId) -> Mapping[str, Object]:
        return {"worker-0": pod}

    async def scenario() -> bytes:
        kept = PodOutputs(cast("Api", server), pods, tmp_path)

        def text() -> bytes:
            with kept.logs(RUN) as log:
                return log.read(0, 100)

        await asyncio.to_thread(text)
        await kept.complete(RUN.job)
        found = await asyncio.to_thread(text)
        await kept.close()
        return found

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_kubelet_that_has_not_heard_of_a_pod_is_asked_again(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(outputs, "_AGAIN_S", 0.01)
    late = Server(NotFound("knows no pod"), InvalidSpec("is waiting to start"), b"line 1\n")
    assert read(late, tmp_path) == b"line 1\n"


def test_a_pod_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    assert read(Server(NotFound("no such pod"), there=False), tmp_path) == b""


def test_the_first_container_of_a_pod_of_others_speaks(tmp_path: Path) -> None:
    server = Server(b"epoch 1\n")
    other = {**POD, "spec": {"containers": [{"name": "pytorch"}, {"name": "sidecar"}]}}
    assert read(server, tmp_path, other) == b"epoch 1\n"
    assert set(server.asked) == {"pytorch"}
