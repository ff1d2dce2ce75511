"""The report in a real browser: a few journeys, no console error, no request beyond the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.sim.test_report import EVIL, POLICIES, fake_run, large_run

from roost.sim.report import write_report
from roost.sim.results import Results, Series

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
)
expect = playwright.expect

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def runs() -> list[Results]:
    made = [fake_run(policy, seed, count=120, nodes=3) for policy in POLICIES for seed in range(2)]
    return [replace(run, jobs=[run.jobs[0]._replace(id=EVIL), *run.jobs[1:]]) for run in made]


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a report; at the end nothing may have gone wrong or out."""
    troubles: list[str] = []

    def open_(runs: Sequence[Results], *, width: int = 1280, scheme: str = "light") -> Page:
        path = tmp_path / "report.html"
        write_report(path, runs)
        size = {"width": width, "height": 900}
        page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: troubles.append(request.url))
        page.goto(path.as_uri())
        assert troubles.pop() == path.as_uri()
        return page

    yield open_
    for context in browser.contexts:
        context.close()
    assert troubles == []


def names(page: Page) -> list[str]:
    """Policies in the order of the comparison table, without their small print."""
    rows = page.locator("#compare-table tbody th").all_inner_texts()
    return [row.split()[0] for row in rows]


def picture(canvas: Locator) -> str:
    """What a canvas shows, once the next frame is drawn."""
    drawn = "canvas => new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
    shown: str = canvas.evaluate(drawn + "() => done(canvas.toDataURL()))))")
    return shown


def point_at_a_bar(page: Page) -> str:
    """Move the pointer until it is on a bar of the timeline, and read the tip."""
    canvas = page.locator(".timeline-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    for step in range(10, 90):
        page.mouse.move(box["x"] + box["width"] * step / 100, box["y"] + 60)
        if page.locator("#tip").is_visible():
            return page.locator("#tip .tip-title").inner_text()
    pytest.fail("no bar found")


def test_everything_is_there(open_report: Open, runs: list[Results]) -> None:
    page = open_report(runs)
    assert page.locator("h1").inner_text() == "philly-like"
    assert re.search(r"3 nodes . 8 GPUs", page.locator("#facts").inner_text())
    assert "Seeds 0, 1" in page.locator("#facts").inner_text()
    assert page.locator(".tile").count() == 6
    assert "against fifo" in page.locator(".tile").first.inner_text()
    assert names(page) == list(POLICIES)
    assert page.locator("#cdf path.line").count() == len(POLICIES)
    assert page.locator("#use-charts svg.plot").count() == len(POLICIES)
    assert page.locator(".split-row").count() == len(POLICIES)
    assert page.locator("#by-queue tbody tr").count() == len(POLICIES)
    assert page.locator("#compare-table .ci").count() > 0
    assert page.locator("main h2").count() >= 14
    for twin in page.locator("details.twin").all():
        twin.locator("summary").click()
        expect(twin.locator("table").first.locator("tbody tr")).to_have_count(len(POLICIES))


def test_the_comparison_sorts_and_marks_the_best(open_report: Open, runs: list[Results]) -> None:
    page = open_report(runs)
    head = page.locator("#compare-table th", has_text="Mean JCT")
    head.locator("button").click()
    ascending = names(page)
    assert page.locator("#compare-table th[aria-sort=ascending]").count() == 1
    assert page.locator("#compare-table tbody tr").first.locator("td.best").count() >= 1
    page.keyboard.press("Enter")
    assert names(page) == ascending[::-1]
    page.get_by_role("button", name="All", exact=True).first.click()
    assert page.locator("#compare-table thead th").count() == 25


def test_charts_tell_values_to_pointer_and_keyboard(open_report: Open, runs: list[Results]) -> None:
    page = open_report(runs)
    chart = page.locator("#cdf svg.plot")
    chart.hover()
    tip = page.locator("#tip")
    assert "Done within" in tip.inner_text()
    assert tip.locator(".tip-row").count() == len(POLICIES)
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    chart.focus()
    page.keyboard.press("ArrowRight")
    before = tip.inner_text()
    page.keyboard.press("PageUp")
    assert tip.inner_text() != before
    page.keyboard.press("Escape")
    page.locator("#use-charts svg.plot").nth(1).hover()
    assert "useful" in tip.inner_text()
    page.locator("#load-chart svg.plot").hover()
    assert "After" in tip.inner_text()


def test_a_policy_can_be_left_out_everywhere(open_report: Open, runs: list[Results]) -> None:
    page = open_report(runs)
    chip = page.locator(".chip", has_text="fifo")
    chip.click()
    expect(page.locator("#cdf path.line")).to_have_count(5)
    assert names(page) == list(POLICIES)[1:]
    page.locator(".chip", has_text="fifo").click()
    expect(page.locator("#cdf path.line")).to_have_count(6)


def test_the_timeline_zooms_moves_and_resets(open_report: Open, runs: list[Results]) -> None:
    page = open_report(runs)
    canvas = page.locator(".timeline-canvas")
    canvas.scroll_into_view_if_needed()
    everything = picture(canvas)
    steps: list[Callable[[], None]] = [
        page.get_by_role("button", name="Zoom in").click,
        lambda: canvas.press("+"),
        lambda: canvas.press("ArrowRight"),
        lambda: page.mouse.wheel(0, -240),
        lambda: drag(page, canvas),
    ]
    seen = {everything}
    for step in steps:
        canvas.hover(position={"x": 500, "y": 100})
        step()
        shown = picture(canvas)
        assert shown not in seen
        seen.add(shown)
    canvas.dblclick(position={"x": 90, "y": 12})
    page.mouse.move(0, 0)
    assert picture(canvas) == everything


def drag(page: Page, canvas: Locator) -> None:
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100, steps=4)
    page.mouse.up()


def test_the_wheel_scrolls_the_page_until_the_timeline_is_chosen(
    open_report: Open, runs: list[Results]
) -> None:
    page = open_report(runs)
    canvas = page.locator(".timeline-canvas")
    canvas.hover(position={"x": 500, "y": 100})
    everything = picture(canvas)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 120)
    page.wait_for_function("(before) => scrollY > before", arg=before)
    assert picture(canvas) == everything


def test_a_job_is_followed_from_the_timeline_and_from_the_table(
    open_report: Open, runs: list[Results]
) -> None:
    page = open_report(runs)
    canvas = page.locator(".timeline-canvas")
    job = point_at_a_bar(page)
    assert "Held for" in page.locator("#tip").inner_text()
    plain = picture(canvas)
    page.mouse.down()
    page.mouse.up()
    card = page.locator("#timeline-job")
    assert card.locator("h3").inner_text() == job
    assert picture(canvas) != plain
    canvas.press("Escape")
    assert card.inner_text() == ""
    page.locator("#jobs-table tbody button").nth(3).click()
    assert (
        card.locator("h3").inner_text()
        == page.locator("#jobs-table button.link").nth(3).inner_text()
    )
    page.locator("#timeline .shown-policy").select_option(label="srtf")
    assert page.locator("#jobs .shown-policy").input_value() == "3"
    assert card.inner_text() == ""


def test_jobs_are_found_sorted_and_paged(open_report: Open, runs: list[Results]) -> None:
    page = open_report(runs)
    rows = page.locator("#jobs-table tbody tr")
    status = page.locator("#jobs-pager [role=status]")
    expect(status).to_have_text(re.compile("1.25 of 120"))
    page.get_by_role("button", name="Next page").click()
    expect(status).to_have_text(re.compile("26.50 of 120"))
    page.locator("#jobs-search").fill("job-004")
    expect(rows).to_have_count(10)
    page.locator("#jobs-table [data-key=id]").click()
    expect(rows.first.locator("th")).to_have_text("job-0040")
    page.locator("#jobs-search").fill("</script>")
    expect(rows).to_have_count(1)
    expect(rows.first.locator("th")).to_contain_text("</script><script>alert(1)")
    page.locator("#jobs-search").fill("no such job")
    expect(page.locator("#jobs-table .empty")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone_in_both_themes(
    open_report: Open, runs: list[Results], scheme: str
) -> None:
    page = open_report(runs, width=400, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    dark = lightness(page) < 0.2
    assert dark == (scheme == "dark")
    for _ in range(2 if scheme == "light" else 1):
        page.locator("#theme").click()
    assert (lightness(page) < 0.2) != dark


def lightness(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 765


def test_hardly_anything_to_show_is_no_trouble(open_report: Open, runs: list[Results]) -> None:
    jobs = [job._replace(finished_at=None) for job in runs[0].jobs]
    page = open_report([replace(runs[0], jobs=jobs, series=Series(), segments=[])])
    assert "not recorded" in page.locator("#timeline").inner_text()
    page = open_report([replace(runs[0], jobs=[], series=Series(), segments=[])])
    assert "No job finished" in page.locator("#cdf").inner_text()


def test_fifty_thousand_bars_move_smoothly(open_report: Open) -> None:
    page = open_report([large_run(50_000)])
    page.locator(".timeline-canvas").focus()
    frame = """async (canvas) => {
      const begin = performance.now();
      for (const key of ["+", "ArrowRight", "+", "ArrowRight", "-", "-", "ArrowDown", "0"]) {
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      }
      return (performance.now() - begin) / 8;
    }"""
    # 17 ms measured, without a GPU; the margin is for busy machines.
    assert page.locator(".timeline-canvas").evaluate(frame) < 150
