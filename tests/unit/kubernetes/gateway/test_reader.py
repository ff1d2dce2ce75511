"""Reading a cluster with a few GETs: which requests are made, and that the store would agree."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory
from typing import Any, cast

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes.kube_objects import pod

from roost.client import Client
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    Object,
    ResourceKind,
)
from roost.kubernetes.gateway.reader import ClusterReader, selected
from roost.kubernetes.gateway.rows import job_row
from roost.kubernetes.gateway.transport import ClusterTransport, GatewayAddress
from roost.store import open_store
from roost.store.rows import JOB_SORTS, JobQuery, JobRow, JournalEntry


def job(name: str, made: str = "2026-01-01T00:00:00Z", **view: Any) -> Object:
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"uid-{name}",
            "creationTimestamp": made,
            "annotations": {"roost.dev/user": "ada", "roost.dev/name": name.rpartition("-")[0]},
        },
        "spec": {"image": "busybox", "command": ["true"], "gpus": 1},
        "status": {"state": view.get("state"), "view": view} if view else {},
    }


def test_a_job_that_kubectl_made_is_of_its_namespace() -> None:
    found = job("birds-1")
    assert (job_row(found, 1).user, job_row(found, 1).view["user"]) == ("ada", "ada")
    found["metadata"]["annotations"] = {}
    assert (job_row(found, 1).user, job_row(found, 1).view["user"]) == ("lab", "lab")


class Server:
    """An API server that counts what it is asked."""

    def __init__(self, *objects: tuple[ResourceKind, Object]) -> None:
        self.objects = list(objects)
        self.asked: list[str] = []

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        self.asked.append(f"get {kind.plural}")
        for one, found in self.objects:
            meta = found["metadata"]
            if (one, meta["name"], meta.get("namespace", "")) == (kind, name, namespace):
                return found
        raise NotFound(f"no {kind.kind} {name}")

    async def list(self, kind: ResourceKind, **_: str) -> tuple[list[Object], str]:
        self.asked.append(f"list {kind.plural}")
        if kind.group == "kubeflow.org":
            raise NotFound(f"the server has no {kind.resource}")
        return [found for one, found in self.objects if one is kind], "1"

    def answer(self, path: str, **params: str) -> Any:
        reader = ClusterReader(cast("Api", self))
        return asyncio.run(reader.answer(path, {name: [text] for name, text in params.items()}))


def test_a_list_of_jobs_is_a_request_for_jobs_and_one_for_pods_of_others() -> None:
    server = Server((JOBS, job("old-1")), (JOBS, job("new-2", "2026-01-02T00:00:00Z")))
    page = server.answer("/jobs", user="ada", limit="1")
    assert [view["id"] for view in page["items"]] == ["lab.new-2"]
    assert {name: page[name] for name in ("total", "offset", "limit")} == {
        "total": 2,
        "offset": 0,
        "limit": 1,
    }
    assert page["items"][0]["cause"] == "unseen"
    assert server.answer("/jobs", user="bob")["total"] == 0
    assert sorted(server.asked) == ["list jobs", "list jobs", "list pods", "list pods"]


def test_a_job_is_one_request_by_its_id_and_a_list_by_its_name() -> None:
    server = Server((JOBS, job("net-1")), (JOBS, job("net-2")), (JOBS, job("other-3")))
    assert server.answer("/jobs/lab.net-1")["id"] == "lab.net-1"
    assert server.asked == ["get jobs"]
    assert server.answer("/jobs/other")["id"] == "lab.other-3"
    assert server.answer("/jobs/other/file")["image"] == "busybox"
    with pytest.raises(Conflict, match=r"2 jobs are named 'net': lab\.net-1, lab\.net-2"):
        server.answer("/jobs/net")
    with pytest.raises(NotFound, match="no job 'none'"):
        server.answer("/jobs/none")


def test_an_object_that_cannot_be_read_hides_no_other() -> None:
    broken = job("odd-1")
    broken["spec"] = {"image": 7}
    server = Server((JOBS, broken), (JOBS, job("fine-2")))
    assert [view["id"] for view in server.answer("/jobs")["items"]] == ["lab.fine-2"]


def test_events_are_those_about_jobs() -> None:
    def event(name: str, kind: str, text: str) -> Object:
        about = {"apiVersion": JOBS.api_version, "kind": kind, "namespace": "lab", "name": name}
        return {
            "metadata": {"name": text, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "regarding": about,
            "reason": "Queued",
            "note": text,
        }

    server = Server(
        (JOBS, job("net-1")),
        (EVENTS, event("net-1", "Job", "waits")),
        (EVENTS, event("net-1", "Pod", "is no job")),
        (EVENTS, event("net-2", "Job", "is another")),
    )
    told = server.answer("/events", job="lab.net-1", after="")
    assert [line["text"] for line in told["items"]] == ["waits"]
    assert server.answer("/events", kind="Started")["total"] == 0
    assert server.answer("/events", offset="1")["total"] == 2


def ray_pod(name: str, **status: Any) -> Object:
    found = pod(
        name,
        labels={"ray.io/cluster": "ray", "ray.io/group": "gpu"},
        owner=("ray.io/v1", "RayCluster", "ray"),
        requests={"nvidia.com/gpu": "2"},
    )
    found["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    found["spec"]["schedulerName"] = "roost"
    found["status"] = status
    return found


def test_gangs_of_others_are_listed_as_their_pods_tell() -> None:
    said = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "OverQuota",
        "message": "its queue is at its limit",
    }
    pods = [ray_pod(name, phase="Pending", conditions=[said]) for name in ("a", "b")]
    server = Server((JOBS, job("net-1")), *((PODS, one) for one in pods))
    waiting = server.answer("/jobs/team.raycluster.ray")
    assert (waiting["state"], waiting["cause"]) == ("queued", "over-quota")
    assert waiting["reason"] == "its queue is at its limit"
    assert (waiting["name"], waiting["user"], waiting["gpus"]) == ("ray", "team", 4)
    assert waiting["workers"] == {"min": 2, "max": 2, "now": 0}
    assert server.answer("/jobs")["total"] == 2
    assert server.answer("/jobs", label="roost.dev/kind=RayCluster")["total"] == 1
    with pytest.raises(NotFound, match="belongs to RayCluster ray of namespace team"):
        server.answer("/jobs/ray/file")

    for one in pods:
        one["spec"]["nodeName"] = "n1"
        one["metadata"]["annotations"] = {"roost.dev/gpus": "0,1"}
        one["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:05Z"}
    running = server.answer("/jobs/ray")
    assert (running["state"], running["gpus_held"], running["reason"]) == ("running", 4, "")
    assert running["placement"][0]["gpus"] == [0, 1]
    assert running["started_at"] - running["submitted_at"] == 5

    ended = {"state": {"terminated": {"finishedAt": "2026-01-01T00:01:00Z"}}}
    for one, phase in zip(pods, ("Succeeded", "Failed"), strict=True):
        one["status"] = {"phase": phase, "containerStatuses": [ended]}
    over = server.answer("/jobs/ray")
    assert (over["state"], over["finished_at"] - over["submitted_at"]) == ("failed", 60)


def test_events_of_an_earlier_job_of_the_name_are_left_out_and_the_rest_is_in_order() -> None:
    def event(about: Object, at: str, **given: Any) -> Object:
        return {
            "metadata": {"name": at, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "eventTime": f"2026-01-01T00:00:{at}Z",
            "regarding": about,
            "note": at,
            **given,
        }

    about = {"apiVersion": JOBS.api_version, "kind": "Job", "namespace": "lab", "name": "net-1"}
    now, before = {**about, "uid": "uid-net-1"}, {**about, "uid": "uid-of-another"}
    of_pod = {"kind": "Pod", "namespace": "team", "name": "a", "uid": "uid-a"}
    server = Server(
        (JOBS, job("net-1")),
        (PODS, ray_pod("a")),
        (EVENTS, event(now, "30")),
        (EVENTS, event(before, "10")),
        (EVENTS, event(now, "20")),
        (EVENTS, event(of_pod, "40", reportingController="kubelet")),
    )
    assert [line["text"] for line in server.answer("/events", job="lab.net-1")["items"]] == [
        "20",
        "30",
    ]
    (line,) = server.answer("/events", job="team.raycluster.ray")["items"]
    assert (line["text"], line["actor"]) == ("40", "kubelet")


def test_nodes_and_queues_come_from_a_core_folded_once() -> None:
    node = {
        "metadata": {"name": "n1", "uid": "u", "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": "4", "cpu": "8", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    queue = {"metadata": {"name": "team"}, "spec": {"quota": 2}}
    server = Server((NODES, node), (CLUSTER_QUEUES, queue), (JOBS, job("net-1")))
    (found,) = server.answer("/nodes")["items"]
    assert (found["id"], found["gpus_free"]) == ("n1", 4)
    assert len(server.asked) == len(set(server.asked)) == 6
    server.asked.clear()
    assert [one["id"] for one in server.answer("/queues")["items"]] == ["team"]
    assert all(asked.startswith("list ") for asked in server.asked)


def test_other_questions_are_not_for_a_reader() -> None:
    server = Server()
    for path in ("/jobs/lab.net-1/explain", "/top", "/state", "/jobs/lab.net-1/logs", "/stream"):
        assert server.answer(path) is None
    assert server.answer("/whoami")["role"] == "admin"
    with pytest.raises(InvalidSpec, match="limit takes a number"):
        server.answer("/jobs", limit="some")
    with pytest.raises(InvalidSpec, match="label takes key=value"):
        server.answer("/jobs", label="team")


ROWS = st.builds(
    JobRow,
    id=st.uuids().map(str),
    name=st.sampled_from(["net", "Net-2", "rest", "a_b", "a%b"]),
    user=st.sampled_from(["ada", "bob"]),
    queue=st.sampled_from(["default", "team"]),
    state=st.sampled_from(["queued", "running", "failed"]),
    priority=st.integers(0, 2),
    gpus=st.sampled_from([0.5, 1.0, 8.0]),
    submitted_at=st.sampled_from([1.0, 2.0]),
    started_at=st.sampled_from([None, 2.0, 3.0]),
    finished_at=st.sampled_from([None, 3.0]),
    labels=st.sampled_from([{}, {"team": "vision"}]),
)
QUERIES = st.builds(
    JobQuery,
    states=st.sampled_from([(), ("queued",), ("queued", "running")]),
    users=st.sampled_from([(), ("ada",)]),
    queues=st.sampled_from([(), ("team",)]),
    name=st.sampled_from(["", "net", "N", "_", "%"]),
    labels=st.sampled_from([{}, {"team": "vision"}, {"team": "speech"}]),
    sort=st.sampled_from([sign + field for field in JOB_SORTS for sign in ("", "-")]),
)


@given(rows=st.lists(ROWS, max_size=8, unique_by=lambda row: row.id), query=QUERIES)
def test_rows_are_selected_as_the_store_selects_them(rows: list[JobRow], query: JobQuery) -> None:
    with TemporaryDirectory() as folder, open_store(f"sqlite://{folder}/views.db") as store:
        store.journal.serve()
        store.journal.append([JournalEntry(1, "one", 0.0, {})], rows, [], [])
        page = store.jobs.find(query)
    assert [row.id for row in selected(rows, query)] == [row.id for row in page.items]


class Reading(ClusterTransport):
    """A transport whose cluster is a few objects, and whose gateway is a list of requests."""

    def __init__(self, server: Server) -> None:
        super().__init__("lab")
        self._api = cast("Api", server)
        self.forwarded: list[str] = []
        self.opened = 0

        def forward(request: httpx.Request) -> httpx.Response:
            self.forwarded.append(f"{request.method} {request.url}")
            assert request.headers["Authorization"] == "Bearer secret"
            return httpx.Response(200, json={"items": []})

        self._http = httpx.MockTransport(forward)  # type: ignore[assignment]

    def _open(self) -> None:
        if self._gateway is None:
            self.opened += 1
            self._gateway = cast("Any", self)
            self._address = GatewayAddress("http://127.0.0.1:7", "secret")

    def close(self) -> None:
        self._gateway = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None


@pytest.fixture
def reading() -> Reading:
    return Reading(Server((JOBS, job("net-1"))))


def test_a_gateway_is_opened_by_the_first_request_that_needs_one(reading: Reading) -> None:
    with Client("http://127.0.0.1", transport=reading) as client:
        assert client.page().total == 1
        assert client.job("lab.net-1").id == "lab.net-1"
        assert reading.opened == 0
        client.top()
        client.nodes()
        assert reading.opened == 1
        assert reading.forwarded == [
            "GET http://127.0.0.1:7/api/v1/top",
            "GET http://127.0.0.1:7/api/v1/nodes",
        ]
