"""Plain logs: the last lines, a part from an offset, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.server.worlds import Log, eventually, looped, world

from roost.core.spec import JobId, RunId
from roost.server.logs import _start_of
from roost.server.options import ServerOptions


@pytest.mark.parametrize(
    ("text", "lines", "tail"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"x" * 200_000 + b"\nlast\n", 1, b"last\n"),
        (b"line\n" * 50_000, 3, b"line\n" * 3),
        (b"y" * 65_536 + b"\n" + b"z" * 65_535 + b"\n", 1, b"z" * 65_535 + b"\n"),
    ],
)
def test_the_last_lines(text: bytes, lines: int, tail: bytes) -> None:
    log = Log()
    log.text += text
    assert text[_start_of(log, len(text), lines) :] == tail


def test_an_endless_line_is_bounded() -> None:
    log = Log()
    log.text += b"x" * (9 << 20)
    assert len(log.text) - _start_of(log, len(log.text), 1) == 8 << 20


@looped
async def test_logs_over_http(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        job = await here.submit()
        await here.until("root", job, "running")
        here.engine.output(RunId(JobId(job), 1)).text += b"one\ntwo\nthr\xc3"
        path = f"/api/v1/jobs/{job}/logs"
        for query, text, start in (
            ("", b"one\ntwo\nthr\xc3", 0),
            ("?tail=2", b"two\nthr\xc3", 4),
            ("?offset=8", b"thr\xc3", 8),
            ("?offset=999", b"", 12),
            ("?tail=1&offset=9", b"hr\xc3", 9),
        ):
            answer = await client.get(path + query)
            assert answer.content == text, query
            assert answer.headers["x-log-offset"] == str(start)
            assert answer.headers["x-log-size"] == "12"
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        missing = await client.get(f"{path}?worker=worker-7")
        assert missing.status_code == 404
        assert "worker-0" in missing.json()["error"]["message"]
        assert (await client.get(f"{path}?attempt=9")).status_code == 404
        assert (await client.get(f"{path}?tail=10001")).status_code == 422
        assert (await client.get(f"{path}?worker=../../etc/passwd")).status_code == 422
        workers = await client.get(f"/api/v1/jobs/{job}/workers")
        assert workers.json() == {"attempt": 1, "items": ["worker-0"]}


@looped
async def test_results_are_passed_on_unopened(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        job = await here.submit()
        await here.until("root", job, "running")
        path = f"/api/v1/jobs/{job}/result"
        assert (await client.get(path)).status_code == 404
        # A pickle that would end this process if anybody opened it.
        log = here.engine.returned(RunId(JobId(job), 1), b"cos\n_exit\n(I1\ntR.")
        answer = await client.get(path)
        assert answer.content == b"cos\n_exit\n(I1\ntR."
        assert answer.headers["content-type"] == "application/octet-stream"
        assert log.open == 0


MIB = 1 << 20


@looped
async def test_large_answers_are_read_as_fast_as_they_are_taken(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(large_per_user=2)) as here, here.client() as client:
        job = await here.submit()
        await here.until("root", job, "running")
        run = RunId(JobId(job), 1)
        result = here.engine.returned(run, bytes(range(256)) * 4096 * 3)
        here.engine.output(run).text += b"0123456789abcde\n" * 65_536
        for log, path in ((result, "result"), (here.engine.output(run), "logs?tail=10000")):
            whole = await client.get(f"/api/v1/jobs/{job}/{path}")
            assert log.text.endswith(whole.content)
            assert int(whole.headers["content-length"]) == len(whole.content) > MIB // 8
            assert log.most == 64 * 1024
            assert log.open == len(here.here.file_responses) == 0

        path = f"/api/v1/jobs/{job}/result"
        before = result.reads
        slow, other = here.watch(path), here.watch(path)
        for viewer in (slow, other):
            viewer.reads.clear()
        async with slow, other:
            await eventually(lambda: result.reads == before + 2)
            await here.submit(name="more")
            assert result.reads == before + 2  # what is not taken is not read, either
            refused = await client.get(path)
            assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "retry")
            assert "retry-after" in refused.headers
            small = await client.get(f"/api/v1/jobs/{job}/logs?tail=1")
            assert small.content == b"0123456789abcde\n"
            await here.add("ada")
            own = await here.submit("ada")
            await here.until("ada", own, "running")
            here.engine.returned(RunId(JobId(own), 1), bytes(MIB))
            async with here.client("ada") as ada:
                assert len((await ada.get(f"/api/v1/jobs/{own}/result")).content) == MIB
        await eventually(lambda: not len(here.here.file_responses))
        assert result.open == 0
        assert (await client.get(path)).content == result.text


@looped
async def test_all_large_answers_together_are_bounded(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(large=1)) as here, here.client() as client:
        job = await here.submit()
        await here.until("root", job, "running")
        here.engine.returned(RunId(JobId(job), 1), bytes(MIB))
        path = f"/api/v1/jobs/{job}/result"
        slow = here.watch(path)
        slow.reads.clear()
        async with slow:
            assert (await client.get(path)).status_code == 503


@looped
async def test_a_file_that_is_cut_short_meanwhile_is_not_told_as_whole(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        result = here.engine.returned(RunId(JobId(job), 1), b"x" * MIB)
        viewer = here.watch(f"/api/v1/jobs/{job}/result")
        viewer.reads.clear()
        async with viewer:
            await eventually(lambda: result.reads > 0)
            del result.text[1000:]
            viewer.reads.set()
            await eventually(lambda: result.open == 0)
            assert not viewer.ended
            assert len(b"".join(viewer.chunks)) < MIB


@looped
async def test_where_to_go_on_is_a_plain_number_or_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        job = await here.submit()
        await here.until("root", job, "running")
        here.engine.output(RunId(JobId(job), 1)).text += b"one\ntwo\n"
        await here.finish("root", job)
        path = f"/api/v1/jobs/{job}/logs/stream"
        huge = ("1-" + "9" * 22, "1-" + "9" * 38, "9" * 40)
        signs = ("\xb2", "1-\xb2", "\xb2-1", "1-1\xb2", "1-\xbc", "1-4\n")
        for last in (*huge, *signs, "4", "-1", "1--1", "0-4", "1-1e3", " 1-4", "1-+4"):
            async with here.watch(path, last_event_id=last) as viewer:
                assert viewer.status == 200, last
                events = [await viewer.next() for _ in range(3)]
            assert events[0].id == "1-0", last
            assert [event.name for event in events] == ["attempt", "", "end"], last
            assert events[1].data == "one\ntwo\n"
        async with here.watch(path, last_event_id="1-" + "9" * 15) as viewer:  # beyond the end
            assert [(await viewer.next()).name for _ in range(2)] == ["attempt", "end"]
        async with here.watch(path, last_event_id="1-4") as viewer:
            assert [(await viewer.next()).data for _ in range(2)][1] == "two\n"
