"""Every page, in both themes, on a telephone, and while its questions hang or fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import Portal
from tests.browser.node_tools import node_modules

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

#: Each page, and what is there once it is drawn.
PAGES = {
    "/": "h1:has-text('Home')",
    "/cluster": ".tile-node",
    "/cluster?view=table": "tbody tr",
    "/cluster?by=use": ".c-unknown, .c-u0",
    "/nodes/{node}": "tbody tr",
    "/jobs": "table.jobs tbody tr",
    "/jobs?q=nothing-like-it": "text=No job matches",
    "/jobs/{job}": ".facts",
    "/jobs/{job}?tab=logs": ".log-lines div",
    "/jobs/{job}?tab=timeline": ".spans",
    "/jobs/{job}?tab=events": "tbody tr",
    "/jobs/{job}?tab=spec": "pre.spec",
    "/jobs/{waiting}": ".why-sentence",
    "/jobs/no-such-job": "text=All jobs",
    "/queues": ".queue-cards .card",
    "/submit": ".plan-state",
    "/submit?template=hello": ".plan-state",
    "/templates": ".queue-cards .card",
    "/usage": "section[aria-label=Usage]",
    "/lab": "text=Nothing yet",
    "/alerts": "tbody tr",
    "/admin": "text=Roost works",
    "/admin?tab=users": "tbody tr",
    "/admin?tab=tokens": "tbody tr",
    "/admin?tab=audit": "tbody tr",
    "/account": "tbody tr",
    "/nowhere": "text=Go home",
}
#: Questions that hold no data of a page: the frame asks them.
_FRAME = re.compile(r"/api/v1/(session|stream)")
_SERIOUS = {"serious", "critical"}


@pytest.fixture
def names(portal: Portal) -> dict[str, str]:
    """Jobs and a node for the pages that are about one."""
    job = portal.submit("shown", "echo hello; sleep 600", labels={"note": "<b>bold</b>"})
    waiting = portal.submit("waits", workers=4)
    node = portal.api.get("/nodes").json()["items"][0]["id"]
    portal.until(job, "running")
    return {"job": job, "waiting": waiting, "node": node}


def problems(page: Page) -> list[str]:
    """What axe-core finds that keeps people from using the page."""
    # Not as a script of the page: the policy of the server would not let it in.
    page.evaluate((node_modules() / "axe-core/axe.min.js").read_text())
    found: Any = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in _SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_used_by_everybody(
    portal: Portal, names: dict[str, str], scheme: str
) -> None:
    portal.meant.add(404)
    context = portal.context(scheme=scheme)
    page = context.new_page()
    portal.watch(page)
    found = {}
    for path, sign in PAGES.items():
        page.goto(portal.url + path.format(**names))
        page.wait_for_selector(sign)
        if troubles := problems(page):
            found[path] = troubles
        widths = page.locator("canvas").evaluate_all("all => all.map(one => one.clientWidth)")
        assert 0 not in widths
    assert found == {}


def test_every_page_fits_a_telephone(portal: Portal, names: dict[str, str]) -> None:
    portal.meant.add(404)
    page = portal.page("/", portal.context(width=400))
    wide = {}
    for path, sign in PAGES.items():
        page.goto(portal.url + path.format(**names))
        page.wait_for_selector(sign)
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 400:
            wide[path] = width
    assert wide == {}


def test_loading_is_never_shown_as_empty(portal: Portal, names: dict[str, str]) -> None:
    page = portal.page("/account")
    page.wait_for_selector("tbody tr")
    held: list[Route] = []
    # A builtin has no place for what Playwright notes about it.
    page.route(re.compile(r"/api/v1/"), lambda route: held.append(route))  # noqa: PLW0108
    for path in ("/", "/jobs", "/jobs/{job}", "/queues", "/submit", "/admin"):
        page.evaluate(GO, path.format(**names))
        page.wait_for_selector(".skeleton")
        assert page.locator(".empty").count() == 0, path
    page.unroute_all(behavior="ignoreErrors")
    portal.troubles = [one for one in portal.troubles if "ERR_FAILED" not in one]


def test_a_fault_is_said_in_the_servers_words(portal: Portal, names: dict[str, str]) -> None:
    portal.meant.add(503)
    body = '{"error": {"kind": "retry", "message": "the store <i>rests</i>", "hint": "wait"}}'
    page = portal.page("/account")
    page.wait_for_selector("tbody tr")

    def fail(route: Route) -> None:
        if _FRAME.search(route.request.url):
            route.fallback()
        else:
            route.fulfill(status=503, content_type="application/json", body=body)

    page.route(re.compile(r"/api/v1/"), fail)
    for path in ("/", "/jobs", "/jobs/{job}", "/queues", "/submit", "/admin"):
        page.evaluate(GO, path.format(**names))
        banner = page.locator(".banner-bad").first
        banner.wait_for()
        assert "the store <i>rests</i>" in banner.inner_text(), path
        assert "wait" in banner.inner_text(), path
    page.unroute_all(behavior="ignoreErrors")


#: Follows a link as a person does: without loading everything again.
GO = """path => {
  const link = document.createElement("a");
  link.href = path;
  document.getElementById("main").append(link);
  link.click();
  link.remove();
}"""
