"""The card of a job: true, live where it can be, and safe whatever a job is called."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.unit.client.fakes import NOW, FakeServer, view

from roost.client import notebook
from roost.client.views import job_view

HOSTILE = "<script>alert(1)</script>\x1b[31m & \"quoted\" 'too'"


def test_everything_that_a_job_says_is_escaped() -> None:
    told = view(
        HOSTILE,
        "failed",
        reason=HOSTILE,
        queue=HOSTILE,
        placement=[{"node": HOSTILE, "gpus": [0]}],
        verdict={"kind": HOSTILE, "phrase": HOSTILE, "advice": HOSTILE},
    )
    html = notebook.card(job_view(told), [HOSTILE], now=NOW)
    assert "<script" not in html
    assert "\x1b" not in html
    assert html.count("&lt;script&gt;") >= 5
    assert "'too'" not in html


def test_a_card_tells_what_matters() -> None:
    told = view(
        state="running",
        gpus=4.0,
        gpus_held=2.0,
        elastic=True,
        workers={"min": 1, "max": 4, "now": 2},
        progress=0.42,
        loss=0.1234,
        attempt=2,
        started_at=NOW + 60,
        placement=[{"node": "n1", "gpus": [0, 3]}],
    )
    html = notebook.card(job_view(told), ["epoch 3"], now=NOW + 120)
    for text in ("running", "2 of 4", "2/1..4", "n1:0,3", "42 %", "0.1234", "2m ago", "epoch 3"):
        assert text in html


@pytest.fixture
def server() -> FakeServer:
    fake = FakeServer(logs={"worker-0": b"hello\n"})
    fake.add(state="running", started_at=NOW, attempt=1)
    return fake


def ends(server: FakeServer) -> Any:
    """Answers as usual, and then the job is over."""

    def answer(request: Any) -> Any:
        server.jobs["resnet-x7k2p"]["state"] = "succeeded"
        return server.answer(request)

    return answer


def test_without_ipython_and_terminal_each_change_is_a_line(
    server: FakeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("IPython"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.setattr("roost.client.transports.time.sleep", lambda _: None)
    handle = server.client().job("resnet-x7k2p")
    server.faults = [None, None, ends(server)]

    handle.show()

    assert capsys.readouterr().out.splitlines() == [
        "resnet-x7k2p  running",
        "resnet-x7k2p  succeeded",
    ]


class Display:
    """As IPython's: an output that can be changed later."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def display(self, page: Any, *, display_id: bool) -> Display:
        assert display_id
        self.pages.append(page.data)
        return self

    def update(self, page: Any) -> None:
        self.pages.append(page.data)


def test_in_a_notebook_one_output_is_updated(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Display()
    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.HTML = lambda data: SimpleNamespace(data=data)  # type: ignore[attr-defined]
    module.display = screen.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("roost.client.transports.time.sleep", lambda _: None)
    handle = server.client().job("resnet-x7k2p")
    server.faults = [None, None, ends(server)]

    handle.show()

    assert len(screen.pages) == 2
    assert "running" in screen.pages[0]
    assert "hello" in screen.pages[0]
    assert "succeeded" in screen.pages[1]


def test_the_same_awaited(
    server: FakeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    server.jobs["resnet-x7k2p"]["state"] = "succeeded"

    async def talk() -> None:
        async with server.async_client() as client:
            await (await client.job("resnet-x7k2p")).show()

    asyncio.run(talk())
    assert capsys.readouterr().out == "resnet-x7k2p  succeeded\n"


def test_interrupting_ends_the_view_at_once(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    @contextmanager
    def drawing() -> Iterator[Any]:
        try:
            yield lambda _view, _lines: None
        finally:
            ended.append("ended")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(notebook, "_drawing", drawing)
    monkeypatch.setattr("roost.client.transports.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        server.client().job("resnet-x7k2p").show()
    assert ended == ["ended"], caught


def test_a_handle_shows_how_it_was_where_nobody_answers(server: FakeServer) -> None:
    handle = server.client(patience=0.0).job("resnet-x7k2p")
    server.faults = [httpx.ConnectError("refused")]
    assert "running" in handle._repr_html_()


def test_a_handle_shows_itself(server: FakeServer) -> None:
    assert "resnet-x7k2p" in server.client().job("resnet-x7k2p")._repr_html_()


def test_on_a_terminal_nothing_is_taken_for_markup(
    server: FakeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython", None)
    server.jobs["resnet-x7k2p"] |= {"state": "failed", "reason": "[red]\x1b[31mno[/red]"}
    server.client().job("resnet-x7k2p").show()
    out = capsys.readouterr().out
    assert "[red]\\x1b[31mno[/red]" in out
