"""The portal in a real browser, over a real server with real jobs: what people do with it."""

from __future__ import annotations

import getpass
import re
from typing import TYPE_CHECKING

import httpx
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


def test_a_form_and_its_job_file_follow_each_other(portal: Portal) -> None:
    page = portal.page("/submit")
    file = page.get_by_label("Job file as YAML")
    expect(page.locator(".plan-state")).to_have_text("It would start now")
    page.get_by_role("textbox", name="Name", exact=True).fill("typed")
    page.get_by_role("textbox", name="Name", exact=True).press("Tab")
    expect(file).to_have_value(re.compile("^name: typed$", re.MULTILINE))
    page.get_by_role("textbox", name="Script").fill("sleep 600")
    page.get_by_role("textbox", name="Workers").fill("64")
    page.get_by_role("textbox", name="Workers").press("Tab")
    expect(page.locator(".plan-state")).to_have_text("Never: it cannot start as it is")
    file.fill("# mine\nname: typed\nrun: sleep 600\nworkrs: 1\nresources: {gpu: 1}\n")
    expect(page.locator(".faults")).to_contain_text("did you mean 'workers'")
    page.get_by_role("button", name="line 4").click()
    chosen = "area => area.value.slice(area.selectionStart, area.selectionEnd)"
    assert file.evaluate(chosen) == "workrs: 1"
    file.fill("# mine\nname: typed\nrun: sleep 600\nworkers: 2\nresources: {gpu: 1}\n")
    expect(page.get_by_text("The file has comments")).to_be_visible()
    expect(page.get_by_role("textbox", name="Workers")).to_have_value("2")
    expect(page.locator(".plan-state")).to_have_text("It would start now")
    page.get_by_role("button", name="Submit", exact=True).dblclick()
    state(page, "running")
    found = portal.api.get("/jobs", params={"q": "typed", "state": "running"}).json()
    assert found["total"] == 1


def test_a_fresh_machine_shows_the_sample_from_its_beginning_to_its_end(portal: Portal) -> None:
    answer = portal.api.post("/users", json={"name": "newcomer", "unix": getpass.getuser()})
    assert answer.status_code in {201, 409}, answer.text
    made = portal.api.post("/tokens", json={"user": "newcomer"}).json()
    link = httpx.post(
        f"{portal.url}/api/v1/session/links", headers={"Authorization": f"Bearer {made['secret']}"}
    ).json()
    page = portal.browser.new_context().new_page()
    portal.watch(page)
    page.goto(portal.url + link["path"])
    page.get_by_role("button", name="Submit the sample").click()
    state(page, "running")
    page.get_by_role("tab", name="Logs").click()
    expect(page.locator(".log-lines")).to_contain_text("step 1 of 5")
    state(page, "succeeded")
    expect(page.locator(".log-lines")).to_contain_text("done")
    page.get_by_role("link", name="Roost, home").click()
    expect(page.locator(".tile", has_text="succeeded").locator(".tile-value")).to_have_text("1")


def test_a_token_is_shown_once_and_a_plain_user_is_told_what_is_lacking(portal: Portal) -> None:
    portal.api.post("/users", json={"name": "viewer", "role": "viewer"})
    page = portal.page("/admin?tab=users")
    row = page.locator("tbody tr", has=page.get_by_role("link", name="viewer"))
    row.get_by_role("link", name="Tokens").click()
    page.get_by_role("button", name="Make a token").click()
    page.get_by_label("What it is for").fill("looking")
    page.get_by_role("button", name="Make it").click()
    secret = page.get_by_role("dialog").locator("code").inner_text()
    assert secret.startswith("roost_")
    page.get_by_role("button", name="I have it").click()
    portal.meant.add(403)
    other = portal.page("/admin?tab=users", portal.context(secret))
    expect(other.locator(".banner-bad")).to_contain_text("Your role does not allow this")
    expect(other.get_by_role("navigation", name="Pages")).not_to_contain_text("Submit")
    row = page.locator("tbody tr", has_text="looking")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(other.locator("h1")).to_have_text("Roost", timeout=20_000)
    portal.meant.add(401)
    assert (
        httpx.get(
            f"{portal.url}/api/v1/whoami", headers={"Authorization": f"Bearer {secret}"}
        ).status_code
        == 401
    )


def test_a_what_if_is_compared_and_shared(portal: Portal) -> None:
    page = portal.page("/lab")
    page.get_by_role("combobox", name="Policies").fill("fifo, srtf")
    page.get_by_role("combobox", name="Jobs").select_option("synthetic")
    page.get_by_label("How many").fill("40")
    page.get_by_label("Nodes").fill("2")
    page.get_by_role("button", name="Simulate").click()
    rows = page.locator("section[aria-labelledby=table-h] tbody tr")
    expect(rows).to_have_count(2, timeout=60_000)
    expect(rows.nth(1)).to_contain_text("srtf")
    expect(page.locator("canvas")).to_have_count(4)
    assert 0 not in page.locator("canvas").evaluate_all("all => all.map(one => one.clientWidth)")
    page.get_by_role("button", name="Table").first.click()
    expect(page.locator(".chart-table tbody tr").first).to_be_visible()
    portal.api.post("/users", json={"name": "onlooker", "role": "viewer"})
    token = portal.api.post("/tokens", json={"user": "onlooker"}).json()["secret"]
    other = portal.page(page.url.removeprefix(portal.url), portal.context(token))
    expect(other.locator("section[aria-labelledby=table-h] tbody tr")).to_have_count(2)
    assert other.locator("tbody").first.inner_text() == page.locator("tbody").first.inner_text()


def test_a_job_that_changes_its_size_shows_it_everywhere(portal: Portal) -> None:
    script = """for i in $(seq 600); do
      echo "{\\"step\\": $i, \\"loss\\": $((700 - i))}" >> "$ROOST_PROGRESS"; sleep 0.2
    done"""
    job = portal.submit("elastic", script, workers={"min": 1, "max": 3})
    page = portal.page(f"/jobs/{job}")
    state(page, "running")
    facts = page.get_by_label("In figures")
    expect(facts).to_contain_text("3 (1")
    page.get_by_role("button", name="Scale").click()
    page.get_by_role("textbox", name="Workers").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    expect(facts).to_contain_text("2 (2)", timeout=30_000)
    expect(facts).to_contain_text("1 time")
    expect(page.locator("roost-chart", has_text="Loss").locator("canvas")).to_be_visible()
    expect(page.locator("roost-chart", has_text="Workers").locator("canvas")).to_be_visible()
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".span-resizing")).to_have_count(1)
    expect(page.locator("#tab-panel tbody").first).to_contain_text("from 3 to 2 workers")
    page.get_by_role("tab", name="Events").click()
    expect(page.locator("[aria-label=Events] tbody")).to_contain_text("3 → 2 workers")
