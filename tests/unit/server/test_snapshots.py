"""Snapshots, clones and profiles over REST: who may do what, and what is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.wire_schema import strictly
from tests.unit.server.worlds import World, eventually, job, looped, world

from roost.api.jobs import JobView
from roost.api.profiles import ProfileList
from roost.api.snapshots import SnapshotProgress, SnapshotView
from roost.core.spec import JobId, RunId
from roost.core.state import JobState
from roost.jobs import observations
from roost.live import snapshots


async def running(here: World, client: httpx.AsyncClient, **fields: Any) -> str:
    """A job that runs and has saved something."""
    row = (await client.post("/api/v1/jobs", json=job("train", **fields))).json()
    name = JobId(row["id"])
    here.engine.saved[name] = b"weights"
    await eventually(lambda: here.cluster.core.jobs[name].state is JobState.RUNNING)
    return name


@looped
async def test_a_snapshot_is_taken_listed_cloned_and_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        async with here.client("ada") as client:
            name = await running(here, client)
            taken = await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "one"})
            assert taken.status_code == 201
            point = strictly(SnapshotView, taken.json())
            assert (point.id, point.user, point.size_bytes) == (f"{name}@one", "ada", 7)
            assert "document" not in taken.json()

            again = await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "one"})
            assert again.status_code == 409
            assert (await client.get("/api/v1/snapshots", params={"job": "train"})).json() == {
                "items": [taken.json()],
                "total": 1,
                "offset": 0,
                "limit": 50,
            }
            assert (await client.get(f"/api/v1/jobs/{name}/snapshots/one")).json() == taken.json()

            body = {"changes": {"name": "branch", "env": {"RATE": "0.1"}}}
            clone = await client.post(f"/api/v1/jobs/{name}/clone", json=body)
            assert clone.status_code == 201
            view = strictly(JobView, clone.json())
            assert (view.name, view.clone_of) == ("branch", f"{name}@one")
            file = (await client.get(f"/api/v1/jobs/{view.id}/file")).json()
            assert (file["env"], file["command"]) == ({"RATE": "0.1"}, ["true"])

            keyed = {"Idempotency-Key": "k"}
            path, newest = f"/api/v1/jobs/{name}/clone", {"snapshot": "one"}
            first = await client.post(path, json=newest, headers=keyed)
            second = await client.post(path, json=newest, headers=keyed)
            assert (first.status_code, second.status_code) == (201, 200)
            assert first.json()["id"] == second.json()["id"]

            assert (await client.delete(f"/api/v1/jobs/{name}/snapshots/one")).status_code == 204
            assert (await client.delete(f"/api/v1/jobs/{name}/snapshots/one")).status_code == 404
            gone = await client.post(f"/api/v1/jobs/{name}/clone", json={})
            assert gone.status_code == 404
            assert f"roost snapshot {name}" in gone.json()["error"]["message"]


@looped
async def test_snapshots_of_others_are_not_there(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        await here.add("bob")
        await here.add("eve", "viewer")
        async with here.client("ada") as client:
            name = await running(here, client)
            await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "one"})
        async with here.client("bob") as client:
            assert (await client.get("/api/v1/snapshots")).json()["total"] == 0
            for answer in (
                await client.get("/api/v1/snapshots", params={"job": name}),
                await client.get(f"/api/v1/jobs/{name}/snapshots/one"),
                await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "two"}),
                await client.post(f"/api/v1/jobs/{name}/clone", json={}),
                await client.delete(f"/api/v1/jobs/{name}/snapshots/one"),
            ):
                assert answer.status_code == 404
        async with here.client("eve") as client:
            assert (await client.get("/api/v1/snapshots")).json()["total"] == 1
            assert (await client.delete(f"/api/v1/jobs/{name}/snapshots/one")).status_code == 403
        async with here.client("root") as client:
            clone = await client.post(f"/api/v1/jobs/{name}/clone", json={})
            assert (clone.status_code, clone.json()["user"]) == (201, "ada"), (
                "what she wrote is hers"
            )


@looped
async def test_snapshots_outlive_their_job_and_stay_their_users(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for user in ("ada", "bob"):
            await here.add(user)
        async with here.client("ada") as client:
            name = await running(here, client)
            await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "one"})
            await client.post(f"/api/v1/jobs/{name}/cancel")
            await here.cluster.set_queue(here.cluster.store.accounts.queues()[0], "root")
            assert (await client.delete(f"/api/v1/jobs/{name}")).status_code == 200
            assert (await client.get("/api/v1/snapshots", params={"job": name})).json()[
                "total"
            ] == 1
        async with here.client("bob") as client:
            assert (await client.get("/api/v1/snapshots", params={"job": name})).status_code == 404
        async with here.client("ada") as client:
            assert (await client.post(f"/api/v1/jobs/{name}/clone", json={})).status_code == 201


@looped
async def test_a_job_that_never_saved_is_told_so(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        name = (await client.post("/api/v1/jobs", json=job())).json()["id"]
        answer = await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "one"})
        assert answer.status_code == 409
        assert "has no checkpoint yet" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a" * 64])
@looped
async def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    async with world(tmp_path) as here, here.client() as client:
        found = await running(here, client)
        answer = await client.post(f"/api/v1/jobs/{found}/snapshots", json={"name": name})
        assert answer.status_code == 422


@looped
async def test_a_clone_is_checked_like_any_job(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        name = await running(here, client)
        await client.post(f"/api/v1/jobs/{name}/snapshots", json={"name": "one"})
        for body, status in (
            ({"changes": {"queue": "nowhere"}}, 403),
            ({"changes": {"gpus": 99}}, 422),
            ({"changes": {"colour": "red"}}, 422),
            ({"secrets": {"KEY": "x"}}, 422),
            ({"snapshot": "two"}, 404),
            ({"snapshot": "../one"}, 422),
        ):
            assert (
                await client.post(f"/api/v1/jobs/{name}/clone", json=body)
            ).status_code == status


@looped
async def test_a_long_copy_is_answered_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "WAIT_S", 0.0)
    async with world(tmp_path) as here, here.client() as client:
        name = await running(here, client)
        headers = {"Idempotency-Key": "k"}
        path, body = f"/api/v1/jobs/{name}/snapshots", {"name": "one"}
        first = await client.post(path, json=body, headers=headers)
        assert first.status_code == 202
        strictly(SnapshotProgress, first.json())
        monkeypatch.setattr(snapshots, "WAIT_S", 5.0)
        assert (await client.post(path, json=body, headers=headers)).status_code == 201


@looped
async def test_profiles_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "SETTLE_S", 0.0)
    async with world(tmp_path) as here:
        for user in ("ada", "bob"):
            await here.add(user)
        async with here.client("ada") as client:
            name = await running(here, client, application="resnet")
            here.engine.observe(RunId(JobId(name), 1), step_s=0.5, memory_mib=100)
            await here.cluster.set_queue(here.cluster.store.accounts.queues()[0], "root")
            told = (await client.get("/api/v1/profiles")).json()
            (profile,) = strictly(ProfileList, told).items
            assert (profile.user, profile.application, profile.memory_mib) == ("ada", "resnet", 100)
            assert (await client.get("/api/v1/profiles", params={"application": "x"})).json() == {
                "items": []
            }
        async with here.client("bob") as client:
            assert (await client.get("/api/v1/profiles")).json() == {"items": []}
        async with here.client("root") as client:
            assert len((await client.get("/api/v1/profiles")).json()["items"]) == 1
