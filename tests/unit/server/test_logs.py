"""Plain logs: the last lines, a part from an offset, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.server.worlds import Log, looped, world

from roost.core.spec import JobId, RunId
from roost.server.logs import _start_of


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
        here.engine.results[RunId(JobId(job), 1)] = b"cos\n_exit\n(I1\ntR."
        answer = await client.get(path)
        assert answer.content == b"cos\n_exit\n(I1\ntR."
        assert answer.headers["content-type"] == "application/octet-stream"
