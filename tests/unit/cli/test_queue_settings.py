"""Queues as they are typed, and HiveD's file of them, for the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost.cli.queue_settings import read_queues
from roost.core.cells import parse_promises
from roost.core.spec import QueueId, QueueSpec
from roost.errors import InvalidSpec, NotFound

HIVED = """
physicalCluster:
  cellTypes:
    NODE: {childCellType: A100, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: b}]}
virtualClusters:
  vision: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}
  speech: {}
"""


def test_cells_are_separated_by_slashes() -> None:
    (vision,) = read_queues(["vision:weight=2,cells=2xnode:A100/1xswitch/pin:a"])
    assert vision.weight == 2
    assert vision.cells == parse_promises("2xnode:A100,1xswitch,pin:a")
    (none,) = read_queues(["vision:cells=none"])
    assert none == QueueSpec(QueueId("vision"))


def test_what_is_typed_of_a_queue_counts_before_what_a_file_says() -> None:
    node, switch = parse_promises("1xnode"), parse_promises("1xswitch")
    of_file = [QueueSpec(QueueId(name), cells=node) for name in ("a", "b", "c")]
    found = {q.id: q for q in read_queues(["b:weight=2", "c:cells=1xswitch"], of_file)}
    assert found[QueueId("a")].cells == node
    assert (found[QueueId("b")].cells, found[QueueId("b")].weight) == (node, 2)
    assert found[QueueId("c")].cells == switch


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (":cells=1xnode", "--queue takes NAME:KEY=VALUE"),
        ("a:cells=two", "queue 'a': 'two' is no promise of cells: write it like"),
        ("a:cells=1xnode,cells=2xnode", "'cells' of queue 'a' is given twice"),
        ("a:cell=1xnode", "'cell'"),
    ],
)
def test_nonsense_is_named(text: str, why: str) -> None:
    with pytest.raises((InvalidSpec, NotFound)) as error:
        read_queues([text])
    assert why in str(error.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hived.yaml").write_text(HIVED)
    head = "id,submitted_at,work_s,min_workers,max_workers,gpus,queue"
    rows = ["g,0,1000,2,2,4,guests", "v,10,100,1,1,4,vision"]
    (tmp_path / "jobs.csv").write_text("\n".join([head, *rows]) + "\n")
    return tmp_path


def test_a_cluster_of_hived_is_simulated_with_its_promises(folder: Path) -> None:
    """The guest has both nodes until vision asks for the one that it was promised."""
    del folder
    said = roost("simulate", "jobs.csv", "--cluster", "hived.yaml", "--policy", "fifo")
    assert "2 nodes, 8 GPUs" in said.out
    assert "queue vision" in said.out
    json = roost(
        *("simulate", "jobs.csv", "--cluster", "hived.yaml", "--policy", "fifo", "-o", "json")
    )
    assert '"preemptions": 1' in json.out
    without = roost(
        *("simulate", "jobs.csv", "--cluster", "hived.yaml", "--policy", "fifo", "-o", "json"),
        *("--queue", "vision:cells=none"),
    )
    assert '"preemptions": 0' in without.out


def test_promises_that_the_cluster_cannot_keep_are_refused(folder: Path) -> None:
    del folder
    beyond = "guests:cells=2xnode@RACK:A100"
    said = roost("simulate", "jobs.csv", "--cluster", "hived.yaml", "--queue", beyond)
    assert said.error.startswith("queue guests cannot be promised 2")
    assert "1 × node of A100" in said.error


def test_what_is_wrong_with_the_file_is_one_line(folder: Path) -> None:
    (folder / "hived.yaml").write_text(HIVED.replace("cellNumber: 1}", "cellNumber: 3}"))
    said = roost("simulate", "jobs.csv", "--cluster", "hived.yaml")
    assert "hived.yaml: virtual clusters ask for 3 cells of type RACK.NODE" in said.error
    said = roost("queues", "import", "hived.yaml", "--dry-run")
    assert "2 are left for them" in said.error
    (folder / "hived.yaml").write_text(HIVED)
    said = roost("queues", "import", "hived.yaml", "--dry-run", "-o", "json")
    assert '"cells": ["1xnode:A100*4"]' in " ".join(said.out.split()).replace("[ ", "[").replace(
        " ]", "]"
    )
