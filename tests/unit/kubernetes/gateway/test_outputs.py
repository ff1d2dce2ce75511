"""Logs of pods as files, copied from an API server that is not always ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from roost.core import JobId, RunId
from roost.errors import InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, Object, ResourceKind
from roost.kubernetes.gateway import outputs
from roost.kubernetes.gateway.outputs import PodOutputs
from roost.kubernetes.objects.kept_logs import LogEnd, encode_logs

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
        kept = PodOutputs(cast("Api", server), pods, lambda _: "u-job", tmp_path)

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


class Keeping(Server):
    """An API server without pods, and with what the operator kept of their logs."""

    def __init__(self, logs: dict[str, LogEnd], uid: str = "u-job") -> None:
        super().__init__(b"")
        meta = {"name": "train-1-log", "ownerReferences": [{"kind": "Job", "uid": uid}]}
        self.kept = {"metadata": meta, "binaryData": encode_logs(logs)}

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        if (kind, name, namespace) != (CONFIG_MAPS, "train-1-log", "lab"):
            raise NotFound(f"no {kind.kind} {namespace}/{name}")
        return self.kept


def left(server: Server, tmp_path: Path, *workers: str) -> tuple[tuple[str, ...], list[bytes]]:
    """The workers that are known when all pods are gone, and the logs of some."""

    async def scenario() -> tuple[tuple[str, ...], list[bytes]]:
        kept = PodOutputs(cast("Api", server), lambda _: {}, lambda _: "u-job", tmp_path)

        def texts() -> tuple[tuple[str, ...], list[bytes]]:
            found = []
            for worker in workers:
                with kept.logs(RUN, worker) as log:
                    found.append(log.read(0, 1000))
            return kept.workers(RUN), found

        return await asyncio.to_thread(texts)

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_of_pods_that_are_gone_the_operator_kept_the_ends(tmp_path: Path) -> None:
    server = Keeping(
        {
            "worker-0": LogEnd(b"all\n", is_whole=True),
            "worker-1": LogEnd(b"end\n", is_whole=False),
        }
    )
    names, (whole, tail) = left(server, tmp_path, "worker-0", "worker-1")
    assert names == ("worker-0", "worker-1")
    assert whole == b"all\n"
    assert tail == b"[roost: the pod is gone; this is the end of its log]\nend\n"
    with pytest.raises(NotFound, match="is gone"):
        left(server, tmp_path, "worker-2")


def test_what_an_earlier_job_of_the_same_name_left_is_not_shown(tmp_path: Path) -> None:
    server = Keeping({"worker-0": LogEnd(b"old\n", is_whole=True)}, uid="u-earlier")
    assert left(server, tmp_path) == ((), [])
    with pytest.raises(NotFound, match="is gone"):
        left(server, tmp_path, "worker-0")
