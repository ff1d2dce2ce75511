"""Faults that stay for a minute: each is told on the object, and asked about rarely."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.support.virtual_time import run_virtually, virtual_now
from tests.unit.kubernetes.operator.objects import gang
from tests.unit.kubernetes.operator.small_cluster import SmallCluster
from tests.unit.kubernetes.operator.test_scope import Closed, operator

from roost.errors import Forbidden, InvalidSpec, NotFound, Retryable, RoostError
from roost.kubernetes.client.faults import Unpermitted
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    NODES,
    PODS,
    QUEUES,
    Object,
    ResourceKind,
)

MINUTE = 60.0
SILENT = 'failed calling webhook "pods.example.org": context deadline exceeded'


class Faulty(SmallCluster):
    """A server that has one thing to say about one sort of request."""

    def __init__(self, verb: str, kind: ResourceKind, error: RoostError, sub: str = "") -> None:
        super().__init__()
        self.clock = virtual_now
        self.runs = False
        self.about = verb, kind, sub
        self.error: RoostError | None = error
        self.asked: Counter[str] = Counter()

    def _meet(self, verb: str, kind: ResourceKind, sub: str = "") -> None:
        if self._hushed:
            return
        self.asked[f"{verb} {kind.resource}/{sub}".rstrip("/")] += 1
        if (verb, kind, sub) == self.about and self.error is not None:
            raise self.error

    async def create(self, kind: ResourceKind, body: Object, namespace: str = "") -> Object:
        self._meet("create", kind)
        return await super().create(kind, body, namespace)

    async def patch(
        self, kind: ResourceKind, name: str, body: Object, namespace: str = "", **given: Any
    ) -> Object:
        self._meet("patch", kind, given.get("sub", ""))
        given.pop("strategy", None)
        return await super().patch(kind, name, body, namespace, **given)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        self._meet("create", PODS, "binding")
        await super().bind(namespace, name, uid, node, annotations)


def denied(verb: str, resource: str) -> Unpermitted:
    return Unpermitted(verb, resource, "default", "forbidden")


def reason_of(cluster: SmallCluster, name: str) -> str:
    found = cluster.status(name)
    told = [one["message"] for one in found.get("conditions", ()) if one["status"] == "True"]
    return " ".join([str(found.get("reason", "")), *told])


@pytest.mark.parametrize(
    ("fault", "told", "most"),
    [
        (Faulty("create", PODS, Retryable(SILENT, 1.0)), "webhook", 120),
        (Faulty("create", PODS, Retryable(SILENT, 30.0)), "webhook", 120),
        (Faulty("create", PODS, denied("create", "pods")), "no permission to create pods", 60),
        (Faulty("create", PODS, Forbidden("exceeded quota: gpus")), "exceeded quota", 60),
        (Faulty("create", PODS, InvalidSpec("image: required")), "image: required", 60),
    ],
    ids=["silent webhook", "slow webhook", "no right", "quota", "refused"],
)
def test_pods_that_cannot_be_made(fault: Faulty, told: str, most: int) -> None:
    async def scenario() -> None:
        fault.node("a")
        async with fault.led():
            await fault.submit("train", workers=2, retry={"max": 2})
            await asyncio.sleep(MINUTE)
            assert fault.asked["create pods"]
            assert fault.asked.total() <= most, fault.asked
            assert told in reason_of(fault, "train"), fault.status("train")
            fault.error = None

    run_virtually(scenario())


def test_a_status_that_may_not_be_written_is_tried_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault = Faulty("patch", JOBS, denied("patch", "jobs.roost.dev/status"), "status")

    async def scenario() -> None:
        fault.node("a")
        async with fault.led():
            for n in range(3):
                await fault.submit(f"train-{n}")
            await asyncio.sleep(MINUTE)

    with caplog.at_level(logging.WARNING):
        run_virtually(scenario())
    assert fault.asked.total() <= 100, fault.asked
    assert "a permission is missing" in caplog.text
    assert "Traceback" not in caplog.text


def test_pods_that_may_not_be_bound(caplog: pytest.LogCaptureFixture) -> None:
    fault = Faulty("create", PODS, denied("create", "pods/binding"), "binding")

    async def scenario() -> None:
        fault.node("a")
        async with fault.led():
            await fault.submit("train", workers=2)
            await asyncio.sleep(MINUTE)
            assert "no permission to create pods/binding" in reason_of(fault, "train")

    with caplog.at_level(logging.WARNING):
        run_virtually(scenario())
    assert fault.asked["create pods/binding"] <= 100, fault.asked
    assert caplog.text.count("a permission is missing: no permission to create pods/binding") == 1


def queue(kind: ResourceKind, name: str, namespace: str, **spec: Any) -> Object:
    meta = {"name": name, "namespace": namespace, "uid": name, "generation": 1}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


def test_queues_in_a_circle_and_to_nowhere() -> None:
    fault = Faulty("none", PODS, NotFound(""))

    async def scenario() -> None:
        fault.node("a")
        for name, parent in (("a", "b"), ("b", "a")):
            made = queue(CLUSTER_QUEUES, name, "", parent=parent, quota=4)
            fault.put(CLUSTER_QUEUES, ("", name), made)
        fault.put(QUEUES, ("default", "q"), queue(QUEUES, "q", "default", clusterQueue="gone"))
        async with fault.led():
            await fault.submit("train", queue="q")
            await fault.submit("lost", queue="nowhere")
            await asyncio.sleep(MINUTE)
            assert "does not exist" in reason_of(fault, "train")
            assert "there is no Queue 'nowhere'" in reason_of(fault, "lost")
            for name in ("a", "b"):
                status = fault.objects(CLUSTER_QUEUES)["", name]["status"]
                (ready,) = status["conditions"]
                assert ready["status"] == "False"
                assert "it borrows nothing" in ready["message"]
            (ready,) = fault.objects(QUEUES)["default", "q"]["status"]["conditions"]
            assert ready["status"] == "False"

    run_virtually(scenario())
    assert fault.asked.total() <= 20, fault.asked


class Bare(Closed):
    """A server without Roost's definitions, or with a role that lacks much."""

    async def pages(self, kind: ResourceKind, namespace: str = "", **given: Any) -> Any:
        if kind.group == "roost.dev":
            self.asked += 1
            raise NotFound(f"list {kind.resource}: the server could not find it")
        async for page in super().pages(kind, namespace, **given):
            yield page


@pytest.mark.parametrize("server", [Closed, Bare])
def test_kinds_that_are_missing_or_may_not_be_read(
    server: type[Closed], caplog: pytest.LogCaptureFixture
) -> None:
    made = server()
    one = operator(made)

    async def scenario() -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(MINUTE)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        run_virtually(scenario())
    kinds = len(one.mirrors)
    assert kinds < made.asked < 6 * kinds, made.asked
    assert "Traceback" not in caplog.text
    for (
        line
    ) in caplog.messages:  # MPIJobs are mirrored in two versions, kinds of Kueue in up to three
        most = 3 if "kueue" in line else 2 if "mpijobs" in line else 1
        assert caplog.messages.count(line) <= most, line


def test_two_schedulers_of_one_name_do_not_fight() -> None:
    """A pod that another operator binds first is left to it."""
    fault = Faulty("create", PODS, NotFound("the pod is gone"), "binding")

    async def scenario() -> None:
        fault.node("a")
        assert fault.objects(NODES)
        made = gang("cats", 2)
        async with fault.led():
            for one in made:
                fault.put(PODS, ("lab", one["metadata"]["name"]), one)
            await asyncio.sleep(MINUTE)

    run_virtually(scenario())
    assert fault.asked.total() <= 60, fault.asked
    assert cast("Any", fault).stored[PODS]
