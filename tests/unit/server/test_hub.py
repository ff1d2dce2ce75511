"""The live state: encoded once for all, followed by ids, and cheap for the server."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.server.worlds import Viewer, World, eventually, looped, world

from roost.jobs.change_feed import ClusterChange
from roost.server.hub import StreamHub, ViewSources
from roost.server.options import ServerOptions
from roost.server.shared_gzip import HEADER
from roost.server.visibility import Visibility
from roost.store.jobs import OpenJob
from roost.store.rows import JobRow

QUICK = ServerOptions(tick_s=0.02)
OWNER: dict[str, str] = {}
SWEEPING = ServerOptions(tick_s=0.02, refresh_s=0.05)


async def _settled(here: World, *viewers: Viewer) -> None:
    """Until everything that was said has reached these viewers."""
    await here.here.hub.flush()
    for viewer in viewers:
        async with asyncio.timeout(60):
            while here.here.hub._tick.seq or viewer.waiting:
                await viewer.next()


@looped
async def test_a_snapshot_then_deltas(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        async with here.watch("/api/v1/stream") as viewer:
            first = await viewer.next()
            assert (first.name, [one["id"] for one in first.data["jobs"]]) == ("snapshot", [job])
            assert first.data["counts"]["running"] == 1
            assert [node["id"] for node in first.data["nodes"]] == ["box"]
            assert [queue["id"] for queue in first.data["queues"]] == ["default"]
            other = await here.submit(name="other")
            delta = await viewer.next()
            while other not in {one["id"] for one in delta.data["jobs"]}:
                delta = await viewer.next()  # the first job has more to tell
            assert delta.name == "delta"
            assert delta.id == f"{here.cluster.epoch}-{delta.data['seq']}"
            assert delta.data["seq"] > first.data["seq"]
            assert other in {event["job"] for event in delta.data["events"]}


@looped
async def test_a_tick_is_encoded_once_for_each_audience(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here, AsyncExitStack() as stack:
        hub = here.here.hub
        for name in ("ada", "bob"):
            await here.add(name)
        watchers = [
            await stack.enter_async_context(here.watch("/api/v1/stream", who))
            for who in ("root", "ada", "bob")
            for _ in range(70)
        ]
        for viewer in watchers:
            assert (await viewer.next()).name == "snapshot"
        assert hub.encoded == 3  # the snapshots: everybody, ada, bob
        await asyncio.gather(*(here.submit("ada", f"job-{number}") for number in range(3)))
        await _settled(here, watchers[0], watchers[70])
        deltas, ticks = hub.encoded - 3, hub.ticks
        # Bob is told of nodes, not of jobs; the last tick may be under way.
        assert 3 * ticks >= deltas >= 2 * (ticks - 1)
        assert all(len(viewer.chunks) <= 1 + 2 * ticks for viewer in watchers)


@looped
async def test_many_changes_are_gathered(tmp_path: Path) -> None:
    async with (
        world(tmp_path, ServerOptions(tick_s=0.1)) as here,
        here.watch("/api/v1/stream") as viewer,
    ):
        await viewer.next()
        began, before = time.monotonic(), here.here.hub.ticks
        await asyncio.gather(*(here.submit(name=f"job-{n}") for n in range(40)))
        await _settled(here, viewer)
        passed = time.monotonic() - began
        assert here.here.hub.ticks - before <= passed / 0.1 + 3


@looped
async def test_who_comes_back_in_time_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        async with here.watch("/api/v1/stream") as viewer:
            await viewer.next()
            await here.submit(name="first")
            last = (await viewer.next()).id
        missed = await here.submit(name="missed")
        await here.until("root", missed, "running")
        await here.here.hub.flush()
        async with here.watch("/api/v1/stream", last_event_id=last) as back:
            event = await back.next()
            assert event.name == "delta"
            seen = [event]
            while missed not in {job["id"] for one in seen for job in one.data["jobs"]}:
                seen.append(await back.next())
        async with here.watch(f"/api/v1/stream?after={last}") as back:
            assert (await back.next()).name == "delta"
        epoch = here.cluster.epoch
        marks = ("-999", "--1", "-\xb2", "-1\xb2", "-" + "9" * 22, "-" + "9" * 50, "-1e3")
        for strange in ("99-1", "x", "-", "\xb2-1", *(f"{epoch}{mark}" for mark in marks)):
            async with here.watch("/api/v1/stream", last_event_id=strange) as back:
                assert (await back.next()).name == "snapshot", strange


@looped
async def test_who_is_too_old_gets_a_snapshot(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.0, ring=2)) as here:
        async with here.watch("/api/v1/stream") as viewer:
            await viewer.next()
            await here.submit(name="first")
            last = (await viewer.next()).id
            for number in range(4):
                await here.submit(name=f"more-{number}")
                await here.here.hub.flush()
        async with here.watch("/api/v1/stream", last_event_id=last) as back:
            assert (await back.next()).name == "snapshot"


@looped
async def test_a_slow_reader_costs_nothing_and_catches_up_with_a_snapshot(tmp_path: Path) -> None:
    async with (
        world(tmp_path, ServerOptions(tick_s=0.0, ring=3)) as here,
        here.watch("/api/v1/stream") as slow,
        here.watch("/api/v1/stream") as quick,
    ):
        await slow.next()
        await quick.next()
        slow.reads.clear()
        jobs = []
        for number in range(12):
            jobs.append(await here.submit(name=f"job-{number}"))
            await here.here.hub.flush()
        await _settled(here, quick)
        audience = here.here.hub._audiences["*"]
        assert len(audience.ring) == 3
        slow.reads.set()
        event = await slow.next()
        while event.name != "snapshot":
            event = await slow.next()
        assert {job["id"] for job in event.data["jobs"]} == set(jobs)


@looped
async def test_a_heartbeat_when_nothing_happens(tmp_path: Path) -> None:
    async with (
        world(tmp_path, ServerOptions(heartbeat_s=0.02)) as here,
        here.watch("/api/v1/stream") as viewer,
    ):
        await viewer.next()
        await viewer._until(lambda: b": still here\n\n" in viewer.chunks)
        assert viewer.waiting == ""


@looped
async def test_a_revoked_token_ends_its_streams_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        async with here.watch("/api/v1/stream", "ada") as viewer, here.client() as client:
            await viewer.next()
            tokens = (await client.get("/api/v1/tokens?user=ada")).json()["items"]
            assert (await client.delete(f"/api/v1/tokens/{tokens[0]['id']}")).status_code == 200
            event = await viewer.next()
            assert (event.name, event.data["why"]) == ("bye", "the token is no longer valid")
            assert (await viewer.next()).name == "closed"
        async with here.client("ada") as client:
            assert (await client.get("/api/v1/whoami")).status_code == 401


@looped
async def test_a_token_revoked_elsewhere_ends_its_streams_within_five_seconds(
    tmp_path: Path,
) -> None:
    real = ServerOptions()
    assert real.token_cache_s + real.token_check_s < 5
    options = ServerOptions(token_cache_s=0.05, token_check_s=0.05)
    async with world(tmp_path, options) as here:
        await here.add("ada")
        store = here.cluster.store
        async with here.watch("/api/v1/stream", "ada") as viewer:
            await viewer.next()
            token = store.accounts.tokens("ada")[0]
            await asyncio.to_thread(store.accounts.revoke_token, token.id)
            assert (await viewer.next()).name == "bye"


@looped
async def test_too_many_streams_of_one_token(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(streams_per_token=2)) as here, here.client() as client:
        async with here.watch("/api/v1/stream") as one, here.watch("/api/v1/stream"):
            await one.next()
            refused = await client.get("/api/v1/stream")
            assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "retry")
        async with here.watch("/api/v1/stream") as again:
            assert (await again.next()).name == "snapshot"


@looped
async def test_deletions_and_queues_that_are_gone_are_told(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here, here.client() as client:
        await here.add("ada")
        job = await here.submit("ada")
        await here.finish("ada", job)
        await client.put("/api/v1/queues/extra", json={})
        async with here.watch("/api/v1/stream", "ada") as ada, here.watch("/api/v1/stream") as all_:
            snapshot = await ada.next()
            assert {queue["id"] for queue in snapshot.data["queues"]} == {"default", "extra"}
            await all_.next()
            assert (await client.delete(f"/api/v1/jobs/{job}")).status_code == 200
            for viewer in (ada, all_):
                assert (await viewer.next()).data["deleted"] == [job]
            assert (await client.delete("/api/v1/queues/extra")).status_code == 204
            await here.submit(name="tick")
            told: list[Any] = []
            while not told:
                told = (await ada.next()).data["queues"]
            assert {"id": "extra", "gone": True} in told


@looped
async def test_two_hundred_viewers_at_ten_ticks_a_second_cost_little(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.0)) as here, AsyncExitStack() as stack:
        viewers = [
            await stack.enter_async_context(here.watch("/api/v1/stream")) for _ in range(200)
        ]
        for viewer in viewers:
            await viewer.next()
        hub, encoded = here.here.hub, here.here.hub.encoded
        await here.submit()
        await _settled(here, *viewers)
        before, cpu = hub.ticks, time.process_time()
        for number in range(10):
            await here.submit(name=f"job-{number}")
            await hub.flush()
        await _settled(here, *viewers)
        spent, ticks = time.process_time() - cpu, hub.ticks - before
    assert hub.encoded - encoded <= ticks + 3
    # About 15 ms for a tick of 200 viewers here, reading in this process included.
    assert spent / ticks < 0.1


@looped
async def test_a_job_that_waits_for_another_reason_is_told_again(tmp_path: Path) -> None:
    async with world(tmp_path, SWEEPING, policy="backfill") as here, here.client() as client:
        await here.add("ada")
        await here.submit("root", "large", workers=4, run_time="1h")
        first = await here.submit("ada", "first", workers=4, run_time="1h")
        second = await here.submit("ada", "second", workers=4, run_time="1h")
        async with here.watch("/api/v1/stream", "ada") as ada, here.watch("/api/v1/stream") as all_:
            known = {}
            for viewer in (ada, all_):
                for job in (await viewer.next()).data["jobs"]:
                    known[job["id"]] = job
            before, seq = known[second], here.cluster.seq
            # Only what is said of it changes: nothing of its own is in the journal.
            await client.post(f"/api/v1/jobs/{first}/cancel")
            for viewer in (ada, all_):
                told: dict[str, Any] = {}
                while told.get("reason", before["reason"]) == before["reason"]:
                    event = await viewer.next()
                    assert event.name == "delta"
                    found = [job for job in event.data["jobs"] if job["id"] == second]
                    told = found[0] if found else told
                assert "first in line" in told["reason"]
                assert told["rev"] == before["rev"] <= seq
                answer = (await client.get(f"/api/v1/jobs/{second}")).json()
                for key in ("cause", "reason", "starts_at"):
                    assert told[key] == answer[key], key
            last = event.id
        async with here.watch("/api/v1/stream", last_event_id=last) as back:
            assert (await back.next()).name in ("delta", "snapshot")
        async with here.watch("/api/v1/stream") as late:
            jobs = {job["id"]: job for job in (await late.next()).data["jobs"]}
            assert jobs[second]["reason"] == told["reason"]


@looped
async def test_what_goes_out_is_brought_up_to_date_first(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.0, refresh_s=600.0)) as here:
        hub, view = here.here.hub, here.cluster.view
        await here.submit("root", "large", workers=4)
        async with here.watch("/api/v1/stream") as viewer:
            await viewer.next()

            def later(row: JobRow) -> dict[str, Any]:
                return {**view(row), "reason": "something new", "starts_at": 5.0}

            hub._sources = hub._sources._replace(view=later)
            job = await here.submit("root", "waits", workers=4)
            told: list[dict[str, Any]] = []
            while not told:
                told = [one for one in (await viewer.next()).data["jobs"] if one["id"] == job]
            assert (told[0]["reason"], told[0]["starts_at"]) == ("something new", 5.0)
            assert told[0]["state"] == "queued"


@looped
async def test_nothing_is_looked_at_for_nobody_and_nothing_sent_that_is_the_same(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.0, refresh_s=0.01)) as here:
        hub, view, looks = here.here.hub, here.cluster.view, [0]

        def counted(row: JobRow) -> dict[str, Any]:
            looks[0] += 1
            return view(row)

        await here.submit("root", "large", workers=4)
        await here.submit("root", "waits", workers=4)
        await hub.flush()
        hub._sources = hub._sources._replace(view=counted)
        await asyncio.sleep(0.05)
        assert looks == [0]
        async with here.watch("/api/v1/stream") as viewer:
            await viewer.next()
            await eventually(lambda: looks[0] > 2)
            assert viewer.waiting == ""
            assert hub.encoded == 1


@looped
async def test_a_start_that_moves_a_little_is_told_once_it_moved_far(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.0, refresh_s=600.0)) as here:
        hub, view, starts = here.here.hub, here.cluster.view, [1e9]
        hub._sources = hub._sources._replace(view=lambda row: {**view(row), "starts_at": starts[0]})
        await here.submit("root", "large", workers=4)
        job = await here.submit("root", "waits", workers=4)
        async with here.watch("/api/v1/stream") as viewer:
            (row,) = (one for one in (await viewer.next()).data["jobs"] if one["id"] == job)
            first = row["starts_at"]
            if first != 1e9:  # the first look goes with the first viewer
                (row,) = (await viewer.next()).data["jobs"]
            for _ in range(7):
                starts[0] += 100
                await hub.refresh()
                await hub.flush()
            (row,) = (await viewer.next()).data["jobs"]
            assert row["starts_at"] == 1e9 + 600
            assert viewer.waiting == ""


def test_what_changed_before_the_jobs_were_loaded_stands() -> None:
    async def queues() -> list[dict[str, Any]]:
        return []

    async def rows(_names: Sequence[str]) -> list[JobRow]:
        return []

    async def play() -> list[tuple[str, int]]:
        sources = ViewSources(list, queues, lambda row: row.view, rows, tuple, lambda: 0.0, str)
        hub = StreamHub(sources, 1, ServerOptions(tick_s=0.0))
        old = JobRow("a-aaaaa", "a", "ada", "q", "running", submitted_at=0.0, rev=5)
        stays = OpenJob("b-bbbbb", "b", "ada", "q", "running", 0.0, 4)
        hub.changed(ClusterChange(6, [replace(old, state="succeeded", rev=6)]))
        await hub.flush()
        hub.load([OpenJob("a-aaaaa", "a", "ada", "q", "running", 0.0, 5), stays], 6)
        await hub.close()
        return [
            (row.id, row.rev) for row in hub.open_jobs(Visibility("", all=True, owner=OWNER.get))
        ]

    assert asyncio.run(play()) == [("b-bbbbb", 4)]


@looped
async def test_streams_are_counted_when_they_are_granted(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(streams_per_token=3)) as here:
        viewers = [here.watch("/api/v1/stream") for _ in range(9)]
        async with AsyncExitStack() as stack:
            await asyncio.gather(*(stack.enter_async_context(viewer) for viewer in viewers))
            statuses = sorted(viewer.status for viewer in viewers)
            assert statuses == [200] * 3 + [429] * 6
        assert len(here.here.streams) == 0


@looped
async def test_a_stream_begins_with_a_page_of_what_holds_something_and_waits_longest(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, replace(QUICK, stream_jobs=3)) as here:
        runs = await here.submit("root", "large", workers=4)
        await here.until("root", runs, "running")
        waiting = [await here.submit("root", f"waits-{n}", workers=4) for n in range(4)]
        async with here.watch("/api/v1/stream") as viewer:
            first = (await viewer.next()).data
            assert [job["id"] for job in first["jobs"]] == [runs, *waiting[:2]]
            assert (first["more"], first["counts"]["queued"]) == (2, 4)
            async with here.client() as client:
                await client.post(f"/api/v1/jobs/{waiting[3]}/cancel")
            told: set[str] = set()
            while waiting[3] not in told:  # what is not on the page comes when it changes
                told |= {job["id"] for job in (await viewer.next()).data["jobs"]}


@looped
async def test_a_browser_gets_the_same_messages_compressed_once_for_all(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.01)) as here, here.client() as client:
        path = (await client.post("/api/v1/session/links")).json()["path"]
        async with here.client("nobody") as browser:
            await browser.get(path)
            cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        asks = {"cookie": cookie, "accept_encoding": "gzip, br"}
        async with (
            here.watch("/api/v1/stream", "nobody", **asks) as one,
            here.watch("/api/v1/stream", "nobody", **asks) as two,
            here.watch("/api/v1/stream") as plain,
        ):
            await plain.next()
            job = await here.submit("root", "birds")
            text = ""
            async with asyncio.timeout(60):
                while job not in text:
                    text = unzipped(one.chunks)
                    await asyncio.sleep(0.01)
            assert text.startswith("event: snapshot\n")
            assert one.chunks[0] == HEADER
            assert one.chunks[1] == two.chunks[1]


def unzipped(chunks: Sequence[bytes]) -> str:
    """What a browser makes of a stream so far."""
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(b"".join(chunks)).decode()
