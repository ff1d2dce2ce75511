"""Promises of cells as text, in specs, and in the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.core.cells import CellPromise, format_promises, parse_promise, parse_promises
from roost.core.cells.site import CellSite, InnerLevel, OuterCell
from roost.core.events import QueueChanged
from roost.core.spec import NodeId, NodeSpec, QueueId, QueueSpec
from roost.core.wire import decode_event, encode_event
from roost.errors import InvalidSpec
from roost.traces.table import read_nodes, write_nodes

TEXTS = {
    "2xnode:A100": CellPromise(2, "node", "A100"),
    "1xswitch": CellPromise(1, "switch"),
    "1xnode:A100*8": CellPromise(1, "node", "A100", 8),
    "3xpair@dgx:V100": CellPromise(3, "pair", "V100", tree="dgx"),
    "1x3-DGX2-V100-NODE": CellPromise(1, "3-DGX2-V100-NODE"),
    "pin:node-7": CellPromise(pinned="node-7"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_promise_tell_the_same(text: str) -> None:
    assert parse_promise(text) == TEXTS[text]
    assert str(TEXTS[text]) == text


def test_several_are_separated_by_commas() -> None:
    assert parse_promises(" 2 x node:A100, pin:a ") == (
        CellPromise(2, "node", "A100"),
        CellPromise(pinned="a"),
    )
    assert parse_promises("") == ()
    assert format_promises(parse_promises("2×node,1xswitch")) == "2xnode,1xswitch"


@pytest.mark.parametrize(
    "text", ["node", "2x", "0xnode", "xnode", "2xnode:", "2xnode*0", "pin:", "2xnode,,", "-1xnode"]
)
def test_what_is_no_promise_says_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"write it like|at least one"):
        parse_promises(text)


def test_a_promise_in_words() -> None:
    assert parse_promise("2xnode:A100").title == "2 × node of A100"
    assert parse_promise("1xnode:A100*8").title == "1 × node of 8 A100"
    assert parse_promise("1xswitch*32").title == "1 × switch of 32 GPUs"
    assert parse_promise("pin:a").title == "cell a"


def test_a_cell_is_promised_to_a_queue_once() -> None:
    with pytest.raises(InvalidSpec, match="queue a: cell 'n1' is promised to it twice"):
        QueueSpec(QueueId("a"), cells=parse_promises("pin:n1,pin:n1"))


def test_the_journal_has_promises_and_reads_lines_without() -> None:
    event = QueueChanged(1.0, QueueSpec(QueueId("a"), cells=parse_promises("2xnode:A100,pin:n1")))
    assert decode_event(encode_event(event)) == event
    plain = QueueChanged(1.0, QueueSpec(QueueId("a")))
    assert "cells" not in str(encode_event(plain))
    assert decode_event(encode_event(plain)) == plain


def test_a_site_divides_its_node() -> None:
    for cells in (((0, 1), (2,)), ((0, 1), (1, 2, 3))):
        with pytest.raises(InvalidSpec, match="does not have each of 4 GPUs once"):
            NodeSpec(NodeId("n"), gpus=4, site=CellSite("t", (InnerLevel("pair", cells),)))
    odd = (InnerLevel("half", ((0, 1), (2, 3))), InnerLevel("pair", ((0, 2), (1, 3))))
    with pytest.raises(InvalidSpec, match="cuts through cells of the one above"):
        NodeSpec(NodeId("n"), gpus=4, site=CellSite("t", odd))


def test_tables_of_nodes_have_sites(tmp_path: Path) -> None:
    inner = (InnerLevel("pair", ((0, 1), (2, 3))),)
    site = CellSite("dgx", inner, (OuterCell("rack", "r1"),))
    nodes = (NodeSpec(NodeId("a"), gpus=4, site=site), NodeSpec(NodeId("b")))

    write_nodes(tmp_path / "nodes.csv", nodes)

    assert read_nodes(tmp_path / "nodes.csv") == nodes
