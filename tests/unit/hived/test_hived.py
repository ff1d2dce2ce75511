from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roost.core import Core, NodeJoined, QueueChanged, QueueId
from roost.core.cells import parse_promises
from roost.core.cells.site import CellSite, InnerLevel, OuterCell
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.hived import HivedCluster, looks_like_hived, read_hived
from roost.placement import placer
from roost.policies import policy

Read = Callable[..., HivedCluster]

TYPES = """
physicalCluster:
  cellTypes:
    SOCKET: {childCellType: A100, childCellNumber: 4}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
    ROW: {childCellType: RACK, childCellNumber: 2}
    SMALL: {childCellType: T4, childCellNumber: 2, isNodeLevel: true}
"""
CELLS = """
  physicalCells:
  - cellType: ROW
    cellChildren:
    - cellChildren: [{cellAddress: 0.10, pinnedCellId: OWN}, {cellAddress: b}]
    - cellAddress: r2
      cellChildren: [{cellAddress: c}, {cellAddress: d}]
  - {cellType: SMALL, cellAddress: 0.0.0.7}
  - {cellType: SMALL, cellAddress: small, cellChildren: [{pinnedCellId: ONE}, {}]}
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(
        virtual: str, cells: str = CELLS, types: str = TYPES, *, declared: bool = False
    ) -> HivedCluster:
        path = tmp_path / "hived.yaml"
        path.write_text(f"kubeApiServerAddress: http://10.10.10.10:8080\n{types}{cells}{virtual}")
        return read_hived(path, declared=declared)

    return read


def of(virtual: str) -> str:
    return f"virtualClusters:\n  vision:\n    virtualCells: [{virtual}]\n"


def test_physical_cells_are_nodes_in_their_domains(read: Read) -> None:
    nodes = {str(node.id): node for node in read("").nodes}
    assert list(nodes) == ["0.10", "b", "c", "d", "0.0.0.7", "small"]
    first, third, small = nodes["0.10"], nodes["c"], nodes["small"]
    assert (first.gpus, first.kind, first.sockets) == (8, "A100", 2)
    assert first.site == CellSite(
        "ROW",
        (InnerLevel("SOCKET", ((0, 1, 2, 3), (4, 5, 6, 7))),),
        (OuterCell("RACK", "ROW-0.0"), OuterCell("ROW", "ROW-0")),
    )
    assert third.site is not None
    assert third.site.above[0].name == "ROW-0.r2"
    assert (small.gpus, small.kind, small.sockets, small.switch) == (2, "T4", 1, "")
    assert small.site == CellSite("SMALL")


def test_declared_chains_keep_their_names_and_their_cells(read: Read) -> None:
    """A core takes all that HiveD's own rules let through."""
    found = read(
        "virtualClusters:\n"
        "  vision:\n"
        "    virtualCells: [{cellType: ROW.RACK, cellNumber: 1}]\n"
        "    pinnedCells: [{pinnedCellId: OWN}, {pinnedCellId: ONE}]\n"
        "  speech:\n"
        "    virtualCells: [{cellType: ROW.RACK.NODE.SOCKET, cellNumber: 2}]\n",
        declared=True,
    )
    vision, speech = found.queues
    assert [*map(str, vision.cells)] == ["1xRACK@ROW:A100", "pin:0.10", "pin:small/gpu0"]
    assert [*map(str, speech.cells)] == ["2xSOCKET@ROW:A100"]
    core = Core(policy("fifo"), placer("pack"))
    core.handle(*(NodeJoined(0.0, node) for node in found.nodes))
    core.handle(*(QueueChanged(0.0, queue) for queue in found.queues))
    more = replace(speech, id=QueueId("more"), cells=parse_promises("1xSOCKET@ROW:A100"))
    with pytest.raises(Conflict, match="queue more cannot be promised 1"):
        core.handle(QueueChanged(1.0, more))


def test_virtual_clusters_are_queues_with_cells(read: Read) -> None:
    found = read(
        "virtualClusters:\n"
        "  vision:\n"
        "    virtualCells:\n"
        "    - {cellType: ROW.RACK, cellNumber: 1}\n"
        "    - {cellType: SMALL.T4, cellNumber: 1}\n"
        "    - {cellType: SMALL.T4, cellNumber: 2}\n"
        "    - {cellType: SMALL, cellNumber: 0}\n"
        "    pinnedCells: [{pinnedCellId: OWN}]\n"
        "  speech:\n"
        "    virtualCells: [{cellType: ROW.RACK.NODE.SOCKET, cellNumber: 2}]\n"
        "  guests: {}\n"
    )
    assert {queue.id: [*map(str, queue.cells)] for queue in found.queues} == {
        "vision": ["1xswitch:A100*16", "3xgpu:T4", "pin:0.10"],
        "speech": ["2xsocket:A100*4"],
        "guests": [],
    }
    assert not found.notes


def test_what_is_not_as_there_is_noted(read: Read) -> None:
    pinned = "virtualClusters:\n  vision:\n    pinnedCells: [{pinnedCellId: RACK}]\n"
    rack = "  physicalCells: [{cellType: RACK, pinnedCellId: RACK, cellChildren: [{cellAddress: a}"
    found = read(pinned, f"{rack}, {{cellAddress: b}}]}}]\n")
    assert [*map(str, found.queues[0].cells)] == ["1xswitch:A100*16"]
    assert found.notes == (
        (
            "RACK: what the switch is called here is not told; "
            "any switch of A100 with 16 GPUs is promised"
        ),
    )

    both = CELLS + "  - {cellType: SMALL, cellAddress: b}\n"
    found = read("", both, declared=True)
    assert [node.id for node in found.nodes][-1] == "b.T4"
    assert "node b has devices of two types, A100 and T4" in found.notes[0]

    found = read(of("{cellType: SMALL, cellNumber: 1}"), CELLS + _PAIR, TYPES + _PAIR_TYPE)
    assert "vision: SMALL of SMALL may also be those of PAIR" in found.notes[0]


_PAIR_TYPE = "    PAIR: {childCellType: SMALL, childCellNumber: 2}\n"
_PAIR = "  - {cellType: PAIR, cellChildren: [{cellAddress: p0}, {cellAddress: p1}]}\n"


@pytest.mark.parametrize(
    ("virtual", "sentence"),
    [
        (of("{cellType: ROE, cellNumber: 1}"), "unknown cell type of virtual cluster vision"),
        (of("{cellType: ROE, cellNumber: 1}"), "'ROE'; did you mean 'ROW'?"),
        (of("{cellType: ROW.NODE, cellNumber: 1}"), "there is no ROW.NODE"),
        (
            of("{cellType: ROW.RACK, cellNumber: 3}"),
            "virtual clusters ask for 3 cells of type ROW.RACK (vision 3); 2 are left for them",
        ),
        (
            of("{cellType: ROW, cellNumber: 1}, {cellType: ROW.RACK.NODE, cellNumber: 1}"),
            "ask for 1 cells of type ROW.RACK.NODE (vision 1); 0 are left for them",
        ),
        (
            of("{cellType: ROW, cellNumber: 1}")
            + "  speech:\n    pinnedCells: [{pinnedCellId: OWN}]\n",
            "ask for 1 cells of type ROW (vision 1); 0 are left for them",
        ),
        (
            "virtualClusters:\n  vision:\n    pinnedCells: [{pinnedCellId: OWM}]\n",
            "unknown pinned cell of virtual cluster vision: 'OWM'; did you mean 'OWN'?",
        ),
        (
            (
                "virtualClusters:\n  a:\n    pinnedCells: [{pinnedCellId: OWN}]\n"
                "  b:\n    pinnedCells: [{pinnedCellId: OWN}]\n"
            ),
            "the pinned cell OWN is promised to a and to b",
        ),
        (
            of("{cellTyp: ROW, cellNumber: 1}"),
            "line 21: virtualClusters.vision.virtualCells.0.cellTyp: there is no such field",
        ),
        ("virtualClusters: 7\n", "virtualClusters: Input should be a valid dict"),
    ],
)
def test_promises_that_cannot_be_are_named(
    read: Read,
    virtual: str,
    sentence: str,
) -> None:
    with pytest.raises((InvalidSpec, NotFound)) as error:
        read(virtual)
    assert sentence in str(error.value)
    assert str(error.value).count("hived.yaml") == 1


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ("  physicalCells: []\n", "there are no cells"),
        ("  physicalCells: [{cellType: ROX}]\n", "'ROX'; did you mean 'ROW'?"),
        ("  physicalCells: [{cellAddress: a}]\n", "cell 0 does not say its cellType"),
        ("  physicalCells: [{cellType: SMALL}]\n", "a cell of type SMALL has no cellAddress"),
        (
            "  physicalCells: [{cellType: RACK, cellChildren: [{cellAddress: a}]}]\n",
            "RACK 0 has 1 cellChildren, a cell of its type has 2",
        ),
        (
            (
                "  physicalCells:\n  - {cellType: SMALL, cellAddress: a}\n"
                "  - {cellType: SMALL, cellAddress: a}\n"
            ),
            "node a is there twice",
        ),
        (
            (
                "  physicalCells:\n  - cellType: RACK\n    pinnedCellId: R\n    cellChildren:\n"
                "    - {cellAddress: a, pinnedCellId: N}\n    - {cellAddress: b}\n"
            ),
            "the pinned cells R and N overlap: NODE a is a part of RACK 0",
        ),
        (
            (
                "  physicalCells:\n  - {cellType: SMALL, cellAddress: a, pinnedCellId: R}\n"
                "  - {cellType: SMALL, cellAddress: b, pinnedCellId: R}\n"
            ),
            "two cells have the pinnedCellId R",
        ),
        (
            (
                "  physicalCells:\n  - cellType: RACK\n    cellChildren:\n"
                "    - {cellAddress: a, cellType: SMALL}\n    - {cellAddress: b}\n"
            ),
            "SMALL a is where a NODE belongs: RACK is made of NODE, SOCKET, A100",
        ),
    ],
)
def test_cells_that_cannot_be_are_named(
    read: Read,
    cells: str,
    sentence: str,
) -> None:
    with pytest.raises((InvalidSpec, NotFound)) as error:
        read("", cells)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("types", "sentence"),
    [
        ("    SMALL: {childCellType: SMALL, childCellNumber: 2}\n", "SMALL contains itself"),
        ("    SMALL: {childCellType: T4, childCellNumber: 2}\n", "exactly one has to be a node"),
        (
            (
                "    SMALL: {childCellType: N, childCellNumber: 2, isNodeLevel: true}\n"
                "    N: {childCellType: T4, childCellNumber: 2, isNodeLevel: true}\n"
            ),
            "exactly one has to be a node (isNodeLevel), here it is SMALL and N",
        ),
        (
            "    SMALL: {childCellType: T4, childCellNumber: 0, isNodeLevel: true}\n",
            "physicalCluster.cellTypes.SMALL.childCellNumber: Input should be greater",
        ),
    ],
)
def test_types_that_cannot_be_are_named(
    read: Read,
    types: str,
    sentence: str,
) -> None:
    cells = "  physicalCells: [{cellType: SMALL, cellAddress: a}]\n"
    with pytest.raises(InvalidSpec) as error:
        read("", cells, f"physicalCluster:\n  cellTypes:\n{types}")
    assert sentence in str(error.value)


def test_levels_that_roost_has_not_are_named(read: Read) -> None:
    pair = TYPES.replace("childCellType: A100, childCellNumber: 4", "childCellType: PAIR") + (
        "    PAIR: {childCellType: A100, childCellNumber: 2}\n"
    )
    pair = pair.replace("childCellType: PAIR}", "childCellType: PAIR, childCellNumber: 2}")
    assert read("", types=pair).nodes[0].gpus == 8
    with pytest.raises(InvalidSpec, match="PAIR is between a GPU and a socket, which here is SOCK"):
        read(of("{cellType: ROW.RACK.NODE.SOCKET.PAIR, cellNumber: 1}"), types=pair)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,gpus\na,8\n")
    assert not looks_like_hived(path.read_text())
    with pytest.raises(InvalidSpec, match="is not a configuration of HiveD: it has no field"):
        read_hived(path)
    path.write_text("physicalCluster: [\n")
    with pytest.raises(InvalidSpec, match=r"nodes.csv, line 2: this is not YAML"):
        read_hived(path)
