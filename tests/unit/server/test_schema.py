"""What is sent is what the schema says, key by key: REST, streams and the status of objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.wire_schema import strictly
from tests.unit.server.worlds import World, job, looped, world

from roost.api.accounts import CallerView, HealthView, NewToken, TokenList, UserList
from roost.api.events import EventPage, StreamDelta, StreamSnapshot
from roost.api.jobs import STATES, ExplanationView, JobPage, JobView, PlanView, WorkerList
from roost.api.nodes import NodeList, StateView, UsageList
from roost.api.profiles import ProfileList
from roost.api.queues import QueueList
from roost.api.schema import WireView, decode, encode
from roost.api.snapshots import SnapshotPage, SnapshotView
from roost.core import JobState
from roost.core.spec import JobId, RunId
from roost.jobfile import JobFile
from roost.kubernetes.crds import job_object
from roost.kubernetes.gateway.rows import job_row
from roost.kubernetes.operator.status import LastStatus, status_of
from roost.server.options import ServerOptions

PLAIN: dict[str, type[WireView]] = {
    "whoami": CallerView,
    "health": HealthView,
    "users": UserList,
    "tokens": TokenList,
    "jobs": JobPage,
    "events": EventPage,
    "nodes": NodeList,
    "queues": QueueList,
    "top": UsageList,
    "state": StateView,
    "profiles": ProfileList,
    "snapshots": SnapshotPage,
}


async def told(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    path = f"/api/v1/{path}"
    answer = await (client.post(path, json=body) if body else client.get(path))
    assert answer.is_success, answer.text
    return answer.json()


async def busy(here: World) -> dict[str, str]:
    """Jobs in many situations: of root one that runs, one that failed; of ada one that waits."""
    for user in ("ada", "bob"):
        await here.add(user)
    failed = await here.submit("root", "failed")
    await here.until("root", failed, "running")
    here.engine.end(RunId(JobId(failed), 1), 3)
    await here.until("root", failed, "failed")
    runs = await here.submit("root", "runs", gpus=4, application="resnet")
    await here.until("root", runs, "running")
    here.engine.saved[JobId(runs)] = b"weights"
    here.engine.observe(
        RunId(JobId(runs), 1), step_s=0.5, memory_mib=100, batch=8, done=0.5, loss=float("nan")
    )
    async with here.client() as client:
        strictly(SnapshotView, await told(client, f"jobs/{runs}/snapshots", name="one"))
    waits = await here.submit("ada", "waits", gpus=4)
    return {"failed": failed, "runs": runs, "waits": waits}


@looped
async def test_every_answer_is_as_the_schema_says(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        jobs = await busy(here)
        for path, kind in PLAIN.items():
            strictly(kind, await told(client, path))
        for name in jobs.values():
            strictly(JobView, await told(client, f"jobs/{name}"))
            strictly(ExplanationView, await told(client, f"jobs/{name}/explain"))
            strictly(EventPage, await told(client, f"jobs/{name}/events"))
            strictly(WorkerList, await told(client, f"jobs/{name}/workers"))
        strictly(PlanView, await told(client, "jobs/plan", **job(gpus=1)))
        strictly(PlanView, await told(client, "jobs/plan", **job(gpus=99)))
        strictly(NewToken, await told(client, "tokens", label="t"))


@looped
async def test_users_get_the_same_shapes_without_the_names_of_others(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        jobs = await busy(here)
        async with here.client("ada") as client:
            for path in ("jobs", "events", "nodes", "queues", "top", "profiles", "snapshots"):
                strictly(PLAIN[path], await told(client, path))
            why = strictly(ExplanationView, await told(client, f"jobs/{jobs['waits']}/explain"))
            assert [holder.job for holder in why.held_by] == [""]


@looped
async def test_messages_of_the_stream_are_as_the_schema_says(tmp_path: Path) -> None:
    options = ServerOptions(tick_s=0.01)
    async with world(tmp_path, options) as here:
        jobs = await busy(here)
        async with here.watch("/api/v1/stream") as viewer:
            first = await viewer.next()
            strictly(StreamSnapshot, first.data)
            here.engine.end(RunId(JobId(jobs["runs"]), 1))
            seen: set[str] = set()
            while jobs["runs"] not in seen:
                delta = strictly(StreamDelta, (await viewer.next()).data)
                seen |= {one.id for one in delta.jobs}


@looped
async def test_the_status_of_an_object_has_the_same_view(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        jobs = await busy(here)
        for name in jobs.values():
            view = await told(client, f"jobs/{name}")
            status = status_of(view, LastStatus({}, 1, ""), 100.0)
            strictly(JobView, status["view"])
            file = JobFile.from_document({"name": "t", "image": "i", "command": ["x"]})
            made = job_object(file, "lab")
            made["metadata"] |= {"creationTimestamp": "2024-01-01T00:00:00Z", "uid": "u"}
            for said in ({}, {"view": {"id": "lab.t", "state": "failed"}}, status):
                strictly(JobView, job_row({**made, "status": said}, 3).view)


def test_the_states_are_those_of_the_core() -> None:
    assert set(STATES) == {state.value for state in JobState}


def test_an_older_server_is_read_with_defaults_and_a_newer_one_in_raw() -> None:
    view = decode(JobView, {"id": "a", "state": "running", "workers": None, "later": 1})
    assert (view.workers.now, view.reason, view.raw["later"]) == (0, "", 1)
    assert decode(JobView, encode(view)) == view


def test_an_unknown_key_fails_the_check() -> None:
    sent = encode(JobView("a"))
    with pytest.raises(AssertionError, match="later is in no schema"):
        strictly(JobView, {**sent, "later": 1})
    with pytest.raises(AssertionError, match="rev is not sent"):
        strictly(JobView, {name: value for name, value in sent.items() if name != "rev"})
    with pytest.raises(AssertionError, match="attempt is 'one'"):
        strictly(JobView, {**sent, "attempt": "one"})
