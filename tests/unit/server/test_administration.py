"""Who did what, and the health of the server itself."""

from __future__ import annotations

from pathlib import Path

from tests.support.wire_schema import strictly
from tests.unit.server.worlds import looped, world

from roost.api.portal import AuditPage, NodeDetail, ServerView


@looped
async def test_what_people_did_is_told_the_newest_first(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        for number in range(5):
            await here.submit("ada", f"bird-{number}")
        await client.put("/api/v1/queues/vision", json={})
        seen, before = [], ""
        while True:
            asked = {"limit": "2", "before": before, "actor": "ada"}
            page = (await client.get("/api/v1/audit", params=asked)).json()
            strictly(AuditPage, page)
            seen += page["items"]
            if (before := page["next"]) is None:
                break
        assert [one["kind"] for one in seen] == ["submitted"] * 5
        assert [one["seq"] for one in seen] == sorted((one["seq"] for one in seen), reverse=True)
        assert all(one["actor"] == "ada" for one in seen)
        every = (await client.get("/api/v1/audit?limit=200")).json()["items"]
        assert "roost" not in {one["actor"] for one in every}
        found = (await client.get("/api/v1/audit?q=bird-3")).json()["items"]
        assert [one["job"].startswith("bird-3") for one in found] == [True]
        queue = (await client.get("/api/v1/audit?kind=queue")).json()["items"]
        assert queue[0]["actor"] == "root"
        async with here.client("ada") as ada:
            assert (await ada.get("/api/v1/audit")).status_code == 403
        assert (await client.get("/api/v1/audit?before=x")).status_code == 422


@looped
async def test_the_server_tells_of_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.submit("root", "j")
        told = (await client.get("/api/v1/server")).json()
        view = strictly(ServerView, told)
        assert view.ok
        assert view.store == "sqlite"
        assert view.rss_bytes > 1 << 20
        assert (view.store_bytes or 0) > 1000
        assert (view.disk_free_bytes or 0) > 0
        assert view.decisions.count > 0
        assert view.requests > 0
        async with here.watch("/api/v1/stream") as viewer:
            await viewer.next()
            assert (await client.get("/api/v1/server")).json()["viewers"] == 1


@looped
async def test_a_node_shows_its_jobs_to_those_who_may_see_them(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        await here.add("ada")
        job = await here.submit("root", "j", gpus=2)
        await here.until("root", job, "running")
        await client.put("/api/v1/nodes/box/cordon", json={"reason": "<b>fan</b>"})
        told = strictly(NodeDetail, (await client.get("/api/v1/nodes/box")).json())
        assert [one.id for one in told.jobs] == [job]
        assert told.node.state == "cordoned"
        assert "<b>fan</b>" in told.events[0].text
        assert (await client.get("/api/v1/nodes/none")).status_code == 404
        async with here.client("ada") as ada:
            text = (await ada.get("/api/v1/nodes/box")).text
            assert job not in text
