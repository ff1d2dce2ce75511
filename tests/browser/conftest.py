"""A real browser, and a real server with its portal: whatever goes wrong in a page fails a test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.server_process import ServerProcess

from roost.web import vendor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
#: What a browser itself says of answers that a test asked for.
_ANSWERED = "Failed to load resource"
_SLOTS = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder need a browser."""
    here = Path(__file__).parent
    lacking = pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here (apt-get install chromium)"
    )
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(lacking)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu"]
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


class Portal:
    """A server with its pages, browsers that look at it, and what went wrong in them."""

    def __init__(self, url: str, token: str, browser: Browser) -> None:
        self.url, self.token, self.browser = url, token, browser
        self.troubles: list[str] = []
        #: Answers of these statuses are meant; a browser says so of each.
        self.meant: set[int] = {404}
        self.api = httpx.Client(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60
        )

    def context(
        self, token: str = "", *, width: int = 1280, scheme: Any = "light"
    ) -> BrowserContext:
        """A browser of its own, logged in; without ``token`` as the administrator."""
        size: Any = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=size, color_scheme=scheme)
        context.set_default_timeout(20_000)
        answer = context.request.post(
            f"{self.url}/api/v1/session", data={"token": token or self.token}
        )
        assert answer.status == 201, answer.text()
        return context

    def page(self, path: str, context: BrowserContext | None = None) -> Page:
        """A page, watched."""
        page = (context or self.context()).new_page()
        self.watch(page)
        page.goto(self.url + path)
        return page

    def watch(self, page: Page) -> None:
        """Note whatever goes wrong in a page, or out of it."""
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return
        if message.text.startswith(_ANSWERED) and any(
            str(one) in message.text for one in self.meant
        ):
            return
        self.troubles.append(f"{message.text} ({message.location.get('url')})")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.troubles.append(f"a request to another host: {url}")

    def submit(self, name: str, script: str = "sleep 600", **fields: Any) -> str:
        """Submit a job of one CPU slot; returns its id."""
        job = {"name": name, "command": ["bash", "-c", script], "workdir": "/tmp", **fields}  # noqa: S108
        answer = self.api.post("/jobs", json={"job": job})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def clear(self) -> None:
        """End and forget all jobs."""
        for one in self.api.get("/jobs", params={"limit": 200}).json()["items"]:
            self.api.post(f"/jobs/{one['id']}/cancel")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A real server with a few CPU slots."""
    if not vendor.complete():
        pytest.skip("the libraries of the pages are not here: python -m roost.web.vendor")
    made = ServerProcess(tmp_path_factory.mktemp("portal") / "home", _SLOTS)
    made.start()
    assert made.ready(), made.said()
    yield made
    made.close()


@pytest.fixture
def portal(server: ServerProcess, browser: Browser) -> Iterator[Portal]:
    """The portal of that server; at the end nothing may have gone wrong or out."""
    url = str(json.loads((server.home / "server.json").read_text())["url"])
    made = Portal(url, (server.home / "token").read_text().strip(), browser)
    yield made
    for context in browser.contexts:
        context.close()
    made.clear()
    made.api.close()
    assert made.troubles == []
