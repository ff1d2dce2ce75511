"""A real server that promises cells: what others had of them they give back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.commands import ROOST, run
from tests.integration.test_server import Served, served

from roost.client import Client
from roost.errors import Conflict

FOREVER = "sleep 600"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """Two slots, of which the queue vision is promised one by an option."""
    with served(tmp_path / "home", "--queue", "vision:cells=1xgpu,weight=2") as here:
        with here.client() as client:
            client.put("/queues/guests", json={}).raise_for_status()
        yield here


class Verbs:
    """The ``roost`` command of an administrator of a server."""

    def __init__(self, server: Served, folder: Path) -> None:
        self._home, self._folder = server.home, folder

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(ROOST, *words, cwd=self._folder, ROOST_HOME=str(self._home))


def queue(server: Served, name: str) -> dict[str, Any]:
    with server.client() as client:
        found = {one["id"]: one for one in client.get("/queues").json()["items"]}
    one: dict[str, Any] = found[name]
    return one


def test_a_job_beyond_any_promise_leaves_for_one_that_was_promised_its_place(
    server: Served, tmp_path: Path
) -> None:
    assert queue(server, "vision")["cells"] == ["1xgpu"]
    assert queue(server, "vision")["weight"] == 2
    guest = server.submit(FOREVER, "guest", queue="guests", workers=2, gpus=1)
    assert server.until(guest, "running")["promise"] == ""
    with server.client() as client:
        why = client.get(f"/jobs/{guest}/explain").json()["reason"]
    assert "it makes room for queues that are promised cells" in why

    own = server.submit(FOREVER, "own", queue="vision", gpus=1)
    assert server.until(own, "running")["promise"] == "1 × gpu"
    assert server.until(guest, "queued")["preemptions"] == 1
    standing = queue(server, "vision")["standing"]
    assert standing == [{"promise": "1xgpu", "used": 1, "broken": 0}]

    listed = run(ROOST, "queues", cwd=tmp_path, ROOST_HOME=str(server.home)).stdout
    assert "1xgpu (1 used)" in listed
    told = run(ROOST, "events", guest, cwd=tmp_path, ROOST_HOME=str(server.home)).stdout
    assert "vision is promised 1 × gpu: makes room for" in told
    with server.client() as client:
        client.post(f"/jobs/{own}/cancel").raise_for_status()
    server.until(guest, "running")


def test_a_guest_of_the_same_queue_leaves_and_a_cell_is_where_a_job_runs(
    server: Served, tmp_path: Path
) -> None:
    here = Verbs(server, tmp_path)
    (node,) = queue_nodes(server)
    pinned = f"{node}/gpu1"
    assert here("queues", "set", "vision", "--cells", f"pin:{pinned}").returncode == 0
    with server.client() as client:
        for body, said in (
            ({"queue": "vision", "cell": "gpu9"}, f"has no cell 'gpu9': it was promised {pinned}"),
            ({"queue": "guests", "cell": pinned}, "it was promised none by name"),
            ({"cell": pinned}, "queue default has no cell"),
            ({"queue": "vision", "cell": pinned, "guest": True}, "leave out 'cell' or 'guest'"),
            ({"queue": "vision", "cell": pinned, "workers": 2}, "that cell is smaller"),
        ):
            refused = client.post("/jobs", json={"job": {"run": FOREVER, "gpus": 1, **body}})
            assert refused.status_code in (409, 422), refused.text
            assert said in refused.json()["error"]["message"], refused.text

    guest = here(
        *("submit", "--name", "sweep", "--queue", "vision", "--guest", "--workers", "2"),
        *("--gpus", "1", "--yes", "--detach", "--", *FOREVER.split()),
    ).stdout.strip()
    running = server.until(guest, "running")
    assert (running["priority"], running["promise"]) == (-1, "")
    assert "guest: true" in here("get", guest, "--spec").stdout
    assert "vision, a guest" in here("get", guest).stdout

    own = here(
        *("submit", "--name", "own", "--queue", "vision", "--cell", pinned),
        *("--gpus", "1", "--yes", "--detach", "--", *FOREVER.split()),
    ).stdout.strip()
    placed = server.until(own, "running")
    assert placed["promise"] == f"cell {pinned}"
    assert [part["gpus"] for part in placed["placement"]] == [[1]]
    assert server.until(guest, "queued")["preemptions"] == 1
    assert f"cell: {pinned}" in here("get", own, "--spec").stdout

    with Client(home=server.home) as sdk:
        fields = {"command": FOREVER.split(), "queue": "vision", "gpus": 1, "cell": pinned}
        second = sdk.submit({"name": "second", **fields}).id
        spare = sdk.submit({"name": "spare", "command": ["true"], "gpus": 1, "guest": True})
        assert spare.wait(timeout=60).state == "succeeded"
        assert spare.document()["guest"] is True
        with pytest.raises(Conflict, match="queue guests has no cell"):
            sdk.submit({**fields, "queue": "guests"})
    with server.client() as client:
        why = client.get(f"/jobs/{second}/explain").json()
    assert f"its queue uses 1 of cell {pinned}" in why["reason"], why
    again = here("rerun", guest, "--no-guest", "--priority", "3").stdout.strip()
    with server.client() as client:
        assert client.get(f"/jobs/{again}").json()["priority"] == 3


def test_a_promise_that_cannot_be_kept_is_refused_and_changes_nothing(
    server: Served, tmp_path: Path
) -> None:
    with server.client() as client:
        beyond = client.put("/queues/speech", json={"cells": ["2xgpu"]})
        assert beyond.status_code == 409, beyond.text
        assert "queue speech cannot be promised 2" in beyond.json()["error"]["message"]
        assert "1 × gpu" in beyond.json()["error"]["message"]
        assert "speech" not in {one["id"] for one in client.get("/queues").json()["items"]}
        nonsense = client.put("/queues/vision", json={"cells": ["two nodes"]})
        assert nonsense.status_code == 422
        assert "'two nodes' is no promise of cells: write it like" in nonsense.text
    assert queue(server, "vision")["cells"] == ["1xgpu"]

    here = Verbs(server, tmp_path)
    refused = here("queues", "set", "vision", "--cells", "1xrack")
    assert refused.returncode == 2
    assert "there is no rack such as in '1xrack'; there are gpu of cpu-slot" in refused.stderr
    assert here("queues", "set", "vision", "--cells", "none").returncode == 0
    assert queue(server, "vision")["cells"] == []
    assert here("queues", "set", "vision", "--cells", "1xnode").returncode == 0
    assert queue(server, "vision")["cells"] == ["1xnode"]
    assert queue(server, "vision")["weight"] == 2, "the rest stays"


def test_hiveds_virtual_clusters_become_queues(server: Served, tmp_path: Path) -> None:
    here = Verbs(server, tmp_path)
    node = next(iter(queue_nodes(server)))
    (tmp_path / "hived.yaml").write_text(
        "physicalCluster:\n  cellTypes:\n"
        "    NODE: {childCellType: cpu-slot, childCellNumber: 2, isNodeLevel: true}\n"
        f"  physicalCells: [{{cellType: NODE, cellAddress: {node!r}}}]\n"
        "virtualClusters:\n"
        "  vision: {}\n"
        "  speech: {virtualCells: [{cellType: NODE.cpu-slot, cellNumber: 2}]}\n"
    )
    done = here("queues", "import", "hived.yaml")
    assert done.returncode == 0, done.stderr
    assert queue(server, "vision")["cells"] == []
    assert queue(server, "speech")["cells"] == ["2xgpu:cpu-slot"]


def queue_nodes(server: Served) -> list[str]:
    with server.client() as client:
        return [node["id"] for node in client.get("/nodes").json()["items"]]
