"""Logs are read once for all who follow, through retries, to their very end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.unit.server.worlds import Log, Viewer, eventually, looped, world

from roost.core.spec import JobId, RunId
from roost.server.log_followers import FollowedLog, _cut
from roost.server.options import ServerOptions

QUICK = ServerOptions(poll_s=0.01)


async def _text(viewer: Viewer, least: int) -> tuple[str, list[int]]:
    """What came until there are so many characters, and the offsets."""
    text, offsets = "", []
    while len(text) < least:
        event = await viewer.next()
        assert event.name == "", event
        text += event.data
        offsets.append(int(event.id.rpartition("-")[2]))
    return text, offsets


@looped
async def test_following_a_log_to_the_end(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        log = here.engine.output(RunId(JobId(job), 1))
        log.text += b"one\n"
        async with here.watch(f"/api/v1/jobs/{job}/logs/stream") as viewer:
            begin = await viewer.next()
            assert (begin.name, begin.data) == ("attempt", {"attempt": 1, "worker": "worker-0"})
            assert await _text(viewer, 4) == ("one\n", [4])
            log.text += b"two \x1b[31m\r\n\n\x00"
            text, offsets = await _text(viewer, 12)
            assert (text, offsets[-1]) == ("two \x1b[31m\r\n\n\x00", len(log.text))
            log.text += b"last words"
            await here.finish("root", job)
            assert await _text(viewer, 10) == ("last words", [len(log.text)])
            end = await viewer.next()
            assert (end.name, end.data) == ("end", {"state": "succeeded", "exit_code": 0})
            assert (await viewer.next()).name == "closed"
        await eventually(lambda: not log.open)


@looped
async def test_a_log_is_read_once_for_all_followers(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here, AsyncExitStack() as stack:
        job = await here.submit()
        await here.until("root", job, "running")
        log = here.engine.output(RunId(JobId(job), 1))
        path = f"/api/v1/jobs/{job}/logs/stream"
        viewers = [await stack.enter_async_context(here.watch(path)) for _ in range(200)]
        for viewer in viewers:
            assert (await viewer.next()).name == "attempt"
        tails = here.here.followers
        (tail,) = tails._tails.values()
        await eventually(lambda: tail.end is not None)
        before = log.reads
        for number in range(10):
            log.text += b"line %d\n" % number
            texts = [await _text(viewer, 7) for viewer in viewers]
            assert {text for text, _ in texts} == {f"line {number}\n"}
        assert log.reads - before <= 30
        assert log.open == 1


@looped
async def test_a_retry_goes_on_in_the_next_attempt(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        job = await here.submit(retry={"max": 1, "delay": 0, "on_exit_codes": [7]})
        await here.until("root", job, "running")
        async with here.watch(f"/api/v1/jobs/{job}/logs/stream") as viewer:
            assert (await viewer.next()).data["attempt"] == 1
            here.engine.output(RunId(JobId(job), 1)).text += b"first\n"
            here.engine.end(RunId(JobId(job), 1), 7)
            assert (await _text(viewer, 6))[0] == "first\n"
            begin = await viewer.next()
            assert (begin.name, begin.data["attempt"], begin.id) == ("attempt", 2, "2-0")
            here.engine.output(RunId(JobId(job), 2)).text += b"second\n"
            assert await _text(viewer, 7) == ("second\n", [7])
            here.engine.end(RunId(JobId(job), 2), 0)
            assert (await viewer.next()).data["state"] == "succeeded"
        # Somebody who lost the connection in the first attempt misses nothing.
        path = f"/api/v1/jobs/{job}/logs/stream?attempt=1&offset=3"
        plain = f"/api/v1/jobs/{job}/logs/stream"
        for again in (here.watch(path), here.watch(plain, last_event_id="1-3")):
            async with again as viewer:
                assert (await viewer.next()).data["attempt"] == 1
                last = await viewer.next()
                assert (last.data, last.id) == ("st\n", "1-6")
                assert (await viewer.next()).data["attempt"] == 2
                assert await _text(viewer, 7) == ("second\n", [7])
                assert (await viewer.next()).name == "end"


@looped
async def test_following_before_there_is_anything_to_follow(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        blocker = await here.submit(name="blocker", workers=4)
        await here.until("root", blocker, "running")
        job = await here.submit(name="later")
        async with here.watch(f"/api/v1/jobs/{job}/logs/stream") as viewer:
            await here.finish("root", blocker)
            assert (await viewer.next()).data["attempt"] == 1
            here.engine.output(RunId(JobId(job), 1)).text += b"here\n"
            assert (await _text(viewer, 5))[0] == "here\n"


@looped
async def test_a_job_that_never_ran_has_an_end_too(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here, here.client() as client:
        blocker = await here.submit(name="blocker", workers=4)
        await here.until("root", blocker, "running")
        job = await here.submit(name="never")
        async with here.watch(f"/api/v1/jobs/{job}/logs/stream") as viewer:
            await client.post(f"/api/v1/jobs/{job}/cancel")
            event = await viewer.next()
            assert (event.name, event.data["state"]) == ("end", "cancelled")


@looped
async def test_a_slow_follower_reads_by_itself_and_misses_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(poll_s=0.01, log_chunk=64)) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        log = here.engine.output(RunId(JobId(job), 1))
        path = f"/api/v1/jobs/{job}/logs/stream"
        async with here.watch(path) as slow, here.watch(path) as quick:
            await slow.next()
            await quick.next()
            slow.reads.clear()
            lines = [f"line {number:06}\n" for number in range(2000)]
            for start in range(0, 2000, 100):
                log.text += "".join(lines[start : start + 100]).encode()
                await _text(quick, 1)
            slow.reads.set()
            text, offsets = await _text(slow, len(log.text))
            assert text == "".join(lines)
            assert offsets == sorted(offsets)


@looped
async def test_going_on_from_an_offset(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        here.engine.output(RunId(JobId(job), 1)).text += b"0123456789"
        path = f"/api/v1/jobs/{job}/logs/stream"
        async with here.watch(path, last_event_id="1-4") as viewer:
            await viewer.next()
            assert await _text(viewer, 6) == ("456789", [10])
        async with here.watch(f"{path}?offset=8") as viewer:
            await viewer.next()
            assert await _text(viewer, 2) == ("89", [10])


def test_characters_are_never_cut_in_two() -> None:
    text = "aé€😀\n" * 40
    log = Log()
    log.text += text.encode()
    tail = FollowedLog(log, 7)
    offset, found = 0, ""
    while (chunk := tail.read(offset)).encoded:
        body = chunk.encoded.decode()
        found += body.partition("data: ")[2].strip()[1:-1].replace("\\n", "\n")
        offset = chunk.end
    assert found == text


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        (b"abc", 0),
        ("é".encode()[:1], 1),
        ("€".encode()[:2], 2),
        ("😀".encode()[:3], 3),
        ("😀".encode(), 0),
        (b"\x80\x80\x80", 0),
        (b"\xff", 0),
        (b"", 0),
    ],
)
def test_what_is_held_back(data: bytes, cut: int) -> None:
    assert _cut(data) == cut


@looped
async def test_bytes_that_are_no_text_come_replaced_and_the_log_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path, QUICK) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        here.engine.output(RunId(JobId(job), 1)).text += b"a\xff\xfeb\xc3"
        async with here.watch(f"/api/v1/jobs/{job}/logs/stream") as viewer:
            await viewer.next()
            assert await _text(viewer, 4) == ("a\ufffd\ufffdb", [4])
            await here.finish("root", job)
            assert await _text(viewer, 1) == ("\ufffd", [5])
            assert (await viewer.next()).name == "end"
