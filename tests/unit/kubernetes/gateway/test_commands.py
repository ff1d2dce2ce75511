"""What a command line asks of a cluster, as requests; and whose output it shows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from roost.core import JobId, NodeId, RunId
from roost.errors import Forbidden
from roost.jobfile import JobFile
from roost.jobs.requests import JobSubmission
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, PODS, SECRETS, Object, ResourceKind
from roost.kubernetes.gateway.backend import KubernetesCluster
from roost.kubernetes.gateway.commands import ClusterCommands, JobListing
from roost.kubernetes.gateway.folders import ClusterFolders
from roost.kubernetes.gateway.rows import EventJobs, event_row
from roost.store import Store
from roost.store.rows import JobRow


class Server:
    """An API server that notes what it is asked, and lets nobody make Secrets."""

    namespace = "lab"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    async def create(self, kind: ResourceKind, body: Object, namespace: str = "") -> Object:
        if kind is SECRETS:
            raise Forbidden("no permission to create secrets")
        self.asked.append(("create", kind.kind, body["metadata"]["name"]))
        return {**body, "metadata": body["metadata"] | {"namespace": namespace, "uid": "u"}}

    async def delete(self, kind: ResourceKind, name: str, namespace: str = "") -> None:
        assert namespace == self.namespace
        self.asked.append(("delete", kind.kind, name))

    async def patch(self, kind: ResourceKind, name: str, body: Object, namespace: str = "") -> None:
        assert namespace == self.namespace
        self.asked.append(("patch", f"{kind.kind} {name}", body))


class Listed:
    """One job, which lives."""

    async def row(self, job: JobId) -> JobRow:
        return JobRow(id=job, name="train", user="", queue="default", state="running", view={})

    async def newer(self, row: JobRow) -> JobRow:
        return row

    async def admit(self, request: JobSubmission) -> None:
        del request

    async def asked_before(self, user: str, key: str) -> None:
        del user, key


async def submit(server: Server, request: JobSubmission) -> None:
    await commands(server).submit(request)


def commands(server: Server) -> ClusterCommands:
    api = cast("Api", server)
    return ClusterCommands(api, cast("JobListing", Listed()), ClusterFolders(api))


def test_a_job_whose_secrets_cannot_be_kept_is_taken_back() -> None:
    server = Server()
    file = JobFile.from_document({"name": "t", "image": "i", "command": ["x"], "secrets": ["A"]})
    with pytest.raises(Forbidden):
        asyncio.run(submit(server, JobSubmission(file, "me", secrets={"A": "b"})))
    assert [what for what, _, _ in server.asked] == ["create", "delete"]
    assert server.asked[0][2] == server.asked[1][2]


@pytest.mark.parametrize(("node", "noted"), [(None, ""), (NodeId("a"), "a")])
def test_a_wish_to_move_names_a_node_or_none(node: NodeId | None, noted: str) -> None:
    server = Server()

    async def move() -> None:
        await commands(server).migrate(JobId("lab.train"), node, "me")

    asyncio.run(move())
    ((_, whom, body),) = server.asked
    assert whom == "Job train"
    assert body["metadata"]["annotations"]["roost.dev/migrate"] == noted


def worker(name: str, owner: str, index: str = "0") -> Object:
    labels = {
        "roost.dev/job": "train",
        "roost.dev/attempt": "1",
        "roost.dev/role": "worker",
        "roost.dev/index": index,
    }
    owners = [{"uid": owner, "controller": True}]
    return {"metadata": {"name": name, "labels": labels, "ownerReferences": owners}}


def test_only_pods_that_a_job_owns_speak_for_it(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        cluster = KubernetesCluster(cast("Api", Server()), cast("Store", None), tmp_path)
        mirrors = cluster._mirrors
        mirrors[JOBS].objects["lab", "train"] = {"metadata": {"name": "train", "uid": "u"}}
        for pod in (worker("own", "u", "1"), worker("forged", "v"), worker("odd", "u", "x")):
            mirrors[PODS].objects["lab", pod["metadata"]["name"]] = pod
        found = cluster._pods(RunId(JobId("lab.train"), 1))
        return [f"{name} {pod['metadata']['name']}" for name, pod in found.items()]

    assert asyncio.run(scenario()) == ["worker-1 own"]


def test_an_event_says_what_happened() -> None:
    event = {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "action": "Scheduling",
        "reason": "Running",
        "note": "it is running",
        "regarding": {
            "apiVersion": "roost.dev/v1alpha1",
            "kind": "Job",
            "namespace": "lab",
            "name": "train",
        },
    }
    row = event_row(event, 1, 0, EventJobs({}))
    assert row is not None
    assert (row.job, row.kind, row.text) == ("lab.train", "Running", "it is running")
