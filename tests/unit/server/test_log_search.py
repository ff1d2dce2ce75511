from __future__ import annotations

import tracemalloc
from pathlib import Path

from tests.unit.server.worlds import Log, looped, world

from roost.core.spec import JobId, RunId
from roost.server.log_search import LogQuery, search


def log_of(text: bytes) -> Log:
    log = Log()
    log.text += text
    return log


def lines(content: bytes, **query: object) -> list[tuple[int, str]]:
    found = search(log_of(content), LogQuery(**query))  # type: ignore[arg-type]
    return [(hit.line, hit.text) for hit in found.items]


def test_a_text_is_found_with_its_line() -> None:
    text = "one\ntwo <b>Three</b>\r\nthrée\n\nlast three".encode()
    assert lines(text, text="three") == [(2, "two <b>Three</b>"), (5, "last three")]
    assert lines(text, text="three", case=True) == [(5, "last three")]
    assert lines(text, text="THRÉE") == [(3, "thrée")]
    assert lines(text, text=".*") == lines(b"", text="x") == []
    hit = search(log_of(text), LogQuery("last")).items[0]
    assert text[hit.offset :] == b"last three"


def test_it_goes_on_where_it_stopped() -> None:
    text = b"".join(b"line %d x\n" % number for number in range(1000))
    log, after, seen = log_of(text), 0, list[int]()
    while True:
        found = search(log, LogQuery("x", after=after, limit=100))
        seen += [hit.line for hit in found.items]
        if found.next is None:
            break
        after = found.next
    assert seen == list(range(1, 1001))


def test_lines_in_which_something_went_wrong() -> None:
    text = b"epoch 1\nTraceback (most recent call last):\nRuntimeError: CUDA out of memory\nfine\n"
    assert [line for line, _ in lines(text, errors=True)] == [2, 3]
    assert [line for line, _ in lines(text, errors=True, text="cuda")] == [3]


def test_a_line_of_ten_megabytes_costs_neither_memory_nor_sense() -> None:
    log = log_of(b"short\n" + b"a" * (10 << 20) + b"needle" + b"b" * (1 << 20) + b"\nneedle\n")
    tracemalloc.start()
    try:
        found = search(log, LogQuery("needle"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [hit.line for hit in found.items] == [2, 3]
    assert "needle" in found.items[0].text
    assert max(len(hit.text) for hit in found.items) <= 500
    assert peak < 8 << 20


@looped
async def test_the_log_of_a_job_is_searched_and_sent_as_a_file(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        job = await here.submit("root", "j")
        path = f"/api/v1/jobs/{job}/logs"
        await here.until("root", job, "running")
        log = here.engine.output(RunId(JobId(job), 1))
        log.text += b"<script>alert(1)</script>\n\x1b[31mred\x1b[0m error\n"
        told = (await client.get(f"{path}/search", params={"q": "SCRIPT"})).json()
        assert told == {
            "items": [{"offset": 0, "line": 1, "text": "<script>alert(1)</script>"}],
            "next": None,
            "size": len(log.text),
        }
        told = (await client.get(f"{path}/search?errors=true")).json()
        assert [hit["line"] for hit in told["items"]] == [2]
        assert (await client.get(f"{path}/search")).status_code == 422
        assert (await client.get(f"{path}/search?q=x&worker=none")).status_code == 404
        part = await client.get(path, params={"offset": 1, "limit": 6})
        assert part.text == "script"
        whole = await client.get(path, params={"download": "true"})
        assert whole.content == bytes(log.text)
        assert (
            whole.headers["content-disposition"] == f'attachment; filename="{job}-1-worker-0.log"'
        )
        assert log.open == 0
