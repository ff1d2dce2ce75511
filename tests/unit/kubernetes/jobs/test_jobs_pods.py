"""Pods of Jobs that have to go, or must not: strays, refusals, budgets, and who counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from tests.unit.kubernetes.operator.small_cluster import SmallCluster

from roost.core import JobId
from roost.errors import Forbidden
from roost.kubernetes.client.api import Disrupted
from roost.kubernetes.client.kinds import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    JOBS,
    NODES,
    PODS,
    QUEUES,
    SERVICES,
    Object,
    ResourceKind,
)
from roost.kubernetes.jobs.request import JobRequest
from roost.kubernetes.operator.budgets import matches
from roost.kubernetes.operator.leadership import Leadership


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class Guarded(SmallCluster):
    """A cluster that keeps its disruption budgets, and may refuse or delay deletions."""

    def __init__(self) -> None:
        super().__init__()
        self.forbidden = 0
        self.holds = False
        self.evicted: list[str] = []
        self.deleted: list[str] = []

    def budget(self, allowed: int, **labels: str) -> None:
        meta = {"name": "guard", "namespace": "default", "uid": "guard"}
        selector = {"matchLabels": labels}
        body = {
            "metadata": meta,
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed},
        }
        self.put(DISRUPTION_BUDGETS, ("default", "guard"), body)

    async def evict(self, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        labels = self._found(PODS, name, namespace)["metadata"]["labels"]
        for budget in self.objects(DISRUPTION_BUDGETS).values():
            allowed = budget["status"]["disruptionsAllowed"]
            if matches(budget["spec"]["selector"], labels) and not allowed:
                raise Disrupted(f"the budget does not let {name} go", 0.0)
        self.evicted.append(name)
        await super().delete(PODS, name, namespace, uid=uid, grace_s=grace_s)

    async def delete(self, kind: Any, name: str, namespace: str = "", **given: Any) -> None:
        if kind is PODS and self.forbidden:
            self.forbidden -= 1
            raise Forbidden("no permission to delete pods")
        if kind is PODS:
            self.deleted.append(name)
            if self.holds:
                return
        await super().delete(kind, name, namespace, **given)


def protection(leadership: Leadership, name: str) -> str:
    """Why the core must not let a job make room."""
    return leadership.core.jobs[JobId(f"default.{name}")].protected


def test_a_job_that_makes_room_is_evicted() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=2)
        async with cluster.led():
            await cluster.submit("low", workers=2)
            await cluster.reaches("low", "running")
            await cluster.submit("high", workers=2, priority=5)
            await cluster.reaches("high", "running")
            assert cluster.evicted == ["low-1-worker-0", "low-1-worker-1"]
            assert cluster.deleted == []
            await cluster.reaches("low", "queued", failures=0)

    play(scenario())


class Imageless(SmallCluster):
    """A cluster whose kubelets have no image."""

    async def create(self, kind: ResourceKind, body: Object, namespace: str = "") -> Object:
        self.runs = False
        made = await super().create(kind, body, namespace)
        if kind is PODS:
            why = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
            self.tell(made["metadata"]["name"], why)
        return made

    def tell(self, name: str, state: Object, phase: str = "Pending") -> None:
        pod = self._found(PODS, name, "default")
        containers = [{"name": "worker", "state": state}]
        status = {"phase": phase, "containerStatuses": containers}
        self.put(PODS, ("default", name), {**pod, "status": status})


def test_a_job_without_its_image_says_so_while_it_is_tried() -> None:
    async def scenario() -> None:
        cluster = Imageless()
        cluster.node("a", gpus=1)
        async with cluster.led():
            await cluster.submit("train")
            await cluster.until(lambda: "ErrImagePull" in cluster.status("train").get("reason", ""))
            assert cluster.status("train")["state"] == "starting"
            cluster.tell("train-1-worker-0", {"running": {}}, "Running")
            found = await cluster.reaches("train", "running")
            assert found["reason"] == ""

    play(scenario())


def test_a_worker_that_is_alone_costs_one_request_beside_its_status() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a", gpus=3)
        async with cluster.led():
            await cluster.submit("alone")
            await cluster.submit("two", workers=2)
            await cluster.reaches("alone", "running")
            await cluster.reaches("two", "running")
        assert [name for _, name in cluster.objects(SERVICES)] == ["roost-two"]
        assert [name for _, name in cluster.objects(CONFIG_MAPS)] == ["two-1"]

    play(scenario())


def test_a_job_under_a_budget_is_not_chosen() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=2)
        cluster.budget(1, **{"roost.dev/job": "low"})  # and it has two pods
        async with cluster.led() as leadership:
            await cluster.submit("low", workers=2)
            await cluster.reaches("low", "running")
            await cluster.until(lambda: protection(leadership, "low"))
            assert "allows 1 of its 2 pods" in protection(leadership, "low")
            await cluster.submit("high", workers=2, priority=5)
            await cluster.reaches("high", "queued")
            await asyncio.sleep(0.2)
            assert cluster.evicted == []
            cluster.budget(2, **{"roost.dev/job": "low"})
            await cluster.reaches("high", "running")
            await cluster.reaches("low", "queued")

    play(scenario())


def test_the_word_of_the_server_counts_and_the_run_stays() -> None:
    """The budget is not mirrored yet when the core decides: nobody leaves, and the run goes on."""

    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=2)
        async with cluster.led() as leadership:
            await cluster.submit("low", workers=2)
            await cluster.reaches("low", "running")
            cluster.leadership = None
            cluster.budget(0, **{"roost.dev/job": "low"})
            hidden = cluster.stored.pop(DISRUPTION_BUDGETS)
            refused = 0

            async def evict(*_: Any) -> None:
                nonlocal refused
                refused += 1
                raise Disrupted("the budget does not let it go", 0.0)

            cluster.evict = evict  # type: ignore[method-assign,assignment]
            cluster.leadership = leadership
            await cluster.submit("high", workers=2, priority=5)
            await cluster.until(lambda: refused)
            cluster.stored[DISRUPTION_BUDGETS] = hidden
            await cluster.until(lambda: protection(leadership, "low"))
            found = await cluster.reaches("low", "running", attempt=1)
            await cluster.reaches("high", "queued")
            assert (found["failures"], len(cluster.alive())) == (0, 2)
            # It ends like any other.
            await asyncio.sleep(2.5)
            for name in cluster.alive():
                cluster.end(name, 0)
            await cluster.reaches("low", "succeeded")
            await cluster.reaches("high", "running")

    play(scenario())


def test_a_gang_of_which_one_has_left_does_not_stay_in_parts() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=2)
        evict = cluster.evict

        async def one_only(namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
            if cluster.evicted:
                raise Disrupted("the budget lets nobody else go", 0.0)
            await evict(namespace, name, uid, grace_s)

        cluster.evict = one_only  # type: ignore[method-assign]
        async with cluster.led() as leadership:
            await cluster.submit("low", workers=2)
            await cluster.reaches("low", "running")
            await cluster.submit("high", workers=2, priority=5)
            await cluster.reaches("high", "running")
            assert (cluster.evicted, cluster.deleted) == (["low-1-worker-0"], ["low-1-worker-1"])
            assert protection(leadership, "low") == ""
            await cluster.reaches("low", "queued", failures=0)

    play(scenario())


def test_what_its_user_ends_ends_whatever_budgets_say() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=2)
        cluster.budget(0, **{"roost.dev/job": "low"})
        async with cluster.led():
            await cluster.submit("low", workers=2)
            await cluster.reaches("low", "running")
            await cluster.change("low", metadata={"annotations": {"roost.dev/cancel": "ada"}})
            await cluster.reaches("low", "cancelled")
            assert (cluster.evicted, cluster.alive()) == ([], [])

    play(scenario())


def test_pods_that_cannot_be_deleted_are_asked_again() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=2)
        async with cluster.led():
            await cluster.submit("train", workers=2)
            await cluster.reaches("train", "running")
            cluster.forbidden = 3
            await cluster.change("train", metadata={"annotations": {"roost.dev/cancel": "ada"}})
            await cluster.reaches("train", "cancelled")
            assert (cluster.forbidden, cluster.alive()) == (0, [])
            await cluster.remove(JOBS, "train")
            # The same for what is of no run.
            await cluster.submit("next")
            await cluster.reaches("next", "running")
            cluster.forbidden = 2
            cluster.put(JOBS, ("default", "next"), None)
            await cluster.until(lambda: not cluster.alive())

    play(scenario())


def stray(cluster: SmallCluster, of: Object, node: str) -> None:
    """A pod of an earlier attempt that nobody ended."""
    owner = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
        "controller": True,
    }
    meta = {"name": "old", "namespace": "default", "uid": "old", "ownerReferences": [owner]}
    spec = {"nodeName": node, "containers": [], "schedulerName": "roost"}
    pod = {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}
    cluster.put(PODS, ("default", "old"), pod)


def test_nothing_goes_to_where_a_pod_of_no_run_is() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        cluster.node("a", gpus=1)
        cluster.holds = True
        async with cluster.led() as leadership:
            made = await cluster.submit("train", gpus=4)
            await cluster.reaches("train", "queued", cause="can-never-fit")
            stray(cluster, made, "a")
            await cluster.until(lambda: leadership.reconciler.nodes.closed == 1)
            await cluster.submit("other")
            await cluster.until(lambda: "old" in cluster.deleted)
            await asyncio.sleep(0.2)
            assert cluster.status("other").get("state", "queued") == "queued"
            cluster.put(PODS, ("default", "old"), None)
            await cluster.reaches("other", "running", nodes=["a"])
            assert leadership.reconciler.nodes.closed == 0

    play(scenario())


def test_what_a_lost_node_leaves_elsewhere_is_in_nobodys_way() -> None:
    async def scenario() -> None:
        cluster = Guarded()
        for name in "ab":
            cluster.node(name, gpus=1)
        async with cluster.led():
            await cluster.submit("train", workers=2, retry={"delay": 0})
            await cluster.reaches("train", "running")
            await cluster.submit("next")
            await cluster.reaches("next", "queued")
            cluster.holds = True
            cluster.put(NODES, ("", "a"), None)
            (left,) = _on(cluster, "b")
            await cluster.until(lambda: left in cluster.deleted)
            await asyncio.sleep(0.2)
            assert _on(cluster, "b") == [left]  # nobody was put beside it
            cluster.holds = False
            cluster.put(PODS, ("default", left), None)
            await cluster.until(lambda: _on(cluster, "b") == ["next-1-worker-0"])

    play(scenario())


def _on(cluster: SmallCluster, node: str) -> list[str]:
    return [
        name
        for (_, name), pod in cluster.objects(PODS).items()
        if pod["spec"].get("nodeName") == node
    ]


def test_a_job_that_makes_no_sense_goes_when_its_time_is_over() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("senseless", image=None, ttl="0.5s")
            found = await cluster.reaches("senseless", "failed")
            assert "image" in found["reason"]
            await cluster.until(lambda: ("default", "senseless") not in cluster.objects(JOBS))

    play(scenario())


def test_a_job_that_waits_outside_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    of = JobRequest.of

    def counted(found: Mapping[str, Any]) -> JobRequest:
        nonlocal read
        read += 1
        return of(dict(found))

    async def scenario() -> None:
        cluster = SmallCluster()
        cluster.node("a")
        async with cluster.led() as leadership:
            await cluster.submit("train", queue="ours")
            await cluster.reaches("train", "queued", cause="unknown-queue")
            for n in range(20):
                cluster.node(f"n{n}")
                await asyncio.sleep(0.005)
            assert read == 1
            await cluster.change("train", spec={"ttl": "1h"})
            await cluster.reaches("train", "queued", observedGeneration=2)
            assert read == 2
            meta = {"metadata": {"name": "ours", "namespace": "default", "uid": "q"}}
            cluster.put(QUEUES, ("default", "ours"), {**meta, "spec": {"clusterQueue": "default"}})
            await cluster.reaches("train", "running")
            assert leadership.core.jobs

    monkeypatch.setattr(JobRequest, "of", counted)
    play(scenario())


@pytest.mark.parametrize("survive", [3, 1])
def test_of_many_workers_some_know_where_all_are(survive: int) -> None:
    """A new leader finds the run by the few pods that carry its plan."""

    async def scenario() -> None:
        cluster = SmallCluster()
        for n in range(9):
            cluster.node(f"n{n}", gpus=8)
        async with cluster.led():
            await cluster.submit("train", workers=70)
            await cluster.reaches("train", "running")
        carry = [
            pod["metadata"]["name"]
            for pod in cluster.objects(PODS).values()
            if "roost.dev/plan" in pod["metadata"]["annotations"]
        ]
        assert carry == ["train-1-worker-0", "train-1-worker-1", "train-1-worker-2"]
        for name in carry[survive:]:
            pod = cluster.objects(PODS)["default", name]
            pod["metadata"]["annotations"].pop("roost.dev/plan")
        before = cluster.requests
        async with cluster.led() as leadership:
            await cluster.until(
                lambda: leadership.settled and "default.train" in leadership.core.jobs
            )
            await asyncio.sleep(0.1)
            assert len(cluster.alive()) == 70
            assert cluster.requests - before <= 2  # a status perhaps, and no pod
        assert ("default", "train-1") in cluster.objects(CONFIG_MAPS)

    play(scenario())


def test_names_of_users_count_in_their_namespace() -> None:
    async def scenario() -> None:
        cluster = SmallCluster()
        async with cluster.led():
            made = await cluster.submit("train")
        assert JobRequest.of(made).spec.user == "default"
        made["metadata"]["annotations"] = {"roost.dev/user": "ada"}
        asked = JobRequest.of(made)
        assert (asked.spec.user, asked.user) == ("default/ada", "ada")

    play(scenario())
