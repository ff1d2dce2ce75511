"""The map of two thousand GPUs, by keyboard only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import Portal
from tests.browser.large_cluster import LargeCluster, large_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser

from playwright.sync_api import expect

NODES = 250


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeCluster]:
    with large_cluster(tmp_path_factory.mktemp("large") / "home", NODES) as made:
        yield made


@pytest.fixture
def portal(large: LargeCluster, browser: Browser) -> Iterator[Portal]:
    made = Portal(large.url, large.token, browser)
    yield made
    for context in browser.contexts:
        context.close()
    made.api.close()
    assert made.troubles == []


def test_a_failed_gpu_is_found_and_its_node_drained_by_keyboard(portal: Portal) -> None:
    portal.api.post("/nodes/node-077/gpus/5/disable", json={"reason": "ECC errors"})
    page = portal.page("/cluster")
    expect(page.locator(".tile-node")).to_have_count(NODES)
    page.get_by_role("button", name="with trouble").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tile-node")).to_have_count(1)
    page.locator(".tile-node").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("node-077")
    expect(page.locator("tbody tr").nth(5)).to_contain_text("ECC errors")
    page.get_by_role("button", name="Drain").press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").press_sequentially("bad memory")
    page.keyboard.press("Enter")
    expect(page.locator(".page-head .state")).to_have_text("drained")
    expect(page.locator(".banner").first).to_contain_text("bad memory")
    page.keyboard.press("g")
    page.keyboard.press("c")
    tile = page.locator(".tile-node[href='/nodes/node-077']")
    expect(tile.locator(".hatch")).to_have_count(8)
    portal.api.delete("/nodes/node-077/cordon")
    expect(tile.locator(".hatch")).to_have_count(0)


def test_arrows_move_on_the_map_and_a_job_stands_out(portal: Portal) -> None:
    jobs = [portal.submit(f"wide-{number}", workers=16, gpus=1) for number in range(3)]
    page = portal.page("/cluster")
    expect(page.locator(f".part[data-job='{jobs[0]}']")).to_have_count(16)
    first = page.locator(".tile-node").first
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tile-node").nth(1)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tile-node").nth(1)).not_to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(".tile-node").last).to_be_focused()
    page.get_by_label("Only the job").select_option(jobs[1])
    assert f"job={jobs[1]}" in page.url
    expect(page.locator(".part.faded")).to_have_count(32)
    page.get_by_role("button", name="As a table").click()
    expect(page.locator("tbody tr")).to_have_count(NODES)
    page.locator("[data-filter]").fill("H100")
    expect(page.locator("tbody tr")).to_have_count(63)
    portal.clear()
