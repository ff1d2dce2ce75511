"""The portal in a real browser, over a real server with real jobs: what people do with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.browser.conftest import Portal
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page

from playwright.sync_api import expect

EVIL = "<script>alert(1)</script>"
_STATE = ".page-head .state"


def state(page: Page, name: str) -> None:
    """Wait until a job's page shows this state."""
    expect(page.locator(_STATE)).to_have_text(name, timeout=20_000)


def test_a_token_logs_in_and_leads_back(portal: Portal) -> None:
    page = portal.browser.new_context().new_page()
    portal.watch(page)
    portal.meant.add(401)
    page.goto(f"{portal.url}/jobs?state=failed")
    expect(page.locator("h1")).to_have_text("Roost")
    page.get_by_label("Or paste a token").fill("nonsense")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("No such token")
    page.get_by_label("Or paste a token").fill(portal.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Jobs")
    assert page.url.endswith("/jobs?state=failed")
    expect(page.locator(".live")).to_have_text("live")


def test_a_job_that_waits_says_why_and_runs_without_a_reload(portal: Portal) -> None:
    first = portal.submit("first", workers=4)
    second = portal.submit("second", workers=2)
    page = portal.page(f"/jobs/{second}")
    state(page, "queued")
    expect(page.locator(".why-sentence")).to_contain_text("free")
    expect(page.locator(".why-card")).to_contain_text(first)
    expect(page.locator(".when")).to_contain_text("Starts")
    portal.api.post(f"/jobs/{first}/cancel")
    state(page, "running")
    assert page.title() == f"running: {second} · Roost"


def test_a_job_is_cancelled_with_a_question_that_names_it(portal: Portal) -> None:
    job = portal.submit("goner")
    page = portal.page(f"/jobs/{job}")
    state(page, "running")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(job)
    dialog.get_by_text("As a command").click()
    expect(dialog.locator("code").first).to_have_text(f"roost cancel {job} -y")
    dialog.get_by_role("button", name="Back").click()
    state(page, "running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    state(page, "cancelled")


def test_logs_are_text_followed_searched_and_kept(portal: Portal) -> None:
    script = f"""for i in $(seq 1 3000); do echo "line $i {EVIL}"; done
    printf '\\033[31mTraceback: red\\033[0m\\n'; sleep 600"""
    job = portal.submit("talks", script)
    page = portal.page(f"/jobs/{job}?tab=logs")
    lines = page.locator(".log-lines")
    expect(lines.locator("div", has_text=f"line 3000 {EVIL}")).to_be_visible(timeout=20_000)
    expect(lines.locator("div").last).to_have_text("Traceback: red")
    expect(page.locator(".log-foot")).to_contain_text("following")
    lines.hover()
    page.mouse.wheel(0, -400)
    expect(page.get_by_role("button", name="Follow the end")).to_be_visible()
    page.get_by_role("button", name="Show what is before").click()
    expect(lines.locator("div").first).to_have_text(f"line 1 {EVIL}")
    portal.api.post(f"/jobs/{job}/cancel")
    expect(page.locator(_STATE)).to_have_text("cancelled")
    page.reload()
    expect(lines.locator("div", has_text=f"line 3000 {EVIL}")).to_be_visible()


def test_jobs_are_filtered_sorted_and_ended_together(portal: Portal) -> None:
    jobs = [portal.submit(f"many-{number}", priority=number) for number in range(5)]
    page = portal.page("/jobs?q=many-")
    rows = page.locator("table.jobs tbody tr")
    expect(rows).to_have_count(5)
    page.get_by_role("button", name=re.compile("^running")).click()
    expect(rows).to_have_count(4)
    assert "state=running" in page.url
    page.go_back()
    expect(rows).to_have_count(5)
    page.get_by_role("button", name="Job", exact=True).click()
    expect(rows.first).to_contain_text("many-0")
    assert "sort=name" in page.url
    page.get_by_label("Choose all on this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    for job in jobs:
        expect(dialog.locator(".names")).to_contain_text(job)
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator(".state-cancelled", has_text="cancelled")).to_have_count(5)
    page.locator("[data-filter]").fill("no such job")
    expect(page.get_by_text("No job matches these filters")).to_be_visible()
    page.get_by_role("link", name="Clear the filters").click()
    expect(rows.first).to_be_visible()


def test_a_server_that_was_killed_is_waited_for(portal: Portal, server: ServerProcess) -> None:
    job = portal.submit("survivor")
    context = portal.context()
    pages = [portal.page(f"/jobs/{job}", context) for _ in range(8)]
    for page in pages:
        expect(page.locator(".live")).to_have_text("live")
    server.stop()
    for page in pages:
        expect(page.locator(".live")).to_contain_text("retrying, data from")
    port = portal.url.rpartition(":")[2]
    server.start(options=["--port", port])
    assert server.ready()
    for page in pages:
        expect(page.locator(".live")).to_have_text("live")
        state(page, "running")
    portal.api.post(f"/jobs/{job}/cancel")
    for page in pages:
        state(page, "cancelled")
    # What a browser says of connections that are refused is meant here.
    portal.troubles = [
        one
        for one in portal.troubles
        if "ERR_CONNECTION" not in one and "ERR_INCOMPLETE" not in one
    ]
