"""Roost's own table: what is written reads back equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.core.cells.site import CellSite, InnerLevel, OuterCell
from roost.core.spec import (
    Costs,
    JobId,
    JobSpec,
    Level,
    NodeId,
    NodeSpec,
    Qos,
    QueueId,
    Range,
    Resources,
    Role,
)
from roost.errors import InvalidSpec, InvalidTrace
from roost.files import TextFile
from roost.traces.table import read_nodes, read_table, write_nodes, write_workload
from roost.traces.workload import ENDS, TraceJob, Workload

JOB = TraceJob(JobId("a"), 0.0, JobSpec(), 1.0)

# What str.isprintable means: no control characters, and no separators but the blank.
signs = st.characters(exclude_categories=("C", "Z"))
names = st.text(signs | st.sampled_from(' ,"|'), max_size=9)
ids = st.tuples(signs, names).map("".join)
kinds = st.lists(st.text(signs, min_size=1).map(lambda kind: kind.replace("|", "/"))).map(tuple)
amounts = st.integers(0, 2**40)
times = st.floats(0, allow_nan=False)
finite = st.floats(0, allow_nan=False, allow_infinity=False)
shapes = st.one_of(
    st.tuples(st.integers(0, 16), st.just(1000)), st.tuples(st.just(1), st.integers(1, 1000))
)


@st.composite
def resources(draw: st.DrawFn) -> Resources:
    gpus, share = draw(shapes)
    qos = draw(st.sampled_from(Qos))
    return Resources(gpus, share, draw(amounts), qos, draw(kinds), draw(amounts), draw(amounts))


specs = st.builds(
    JobSpec,
    workers=st.tuples(st.integers(1, 99), st.integers(0, 99)).map(lambda w: Range(w[0], sum(w))),
    resources=resources(),
    roles=st.lists(
        st.builds(Role, st.text(max_size=5), st.integers(1, 9), resources()),
        unique_by=lambda role: role.name,
    ).map(tuple),
    queue=ids.map(QueueId),
    priority=st.integers(-(2**40), 2**40),
    user=names,
    application=names,
    run_time_s=st.none() | times,
    costs=st.builds(Costs, times, times, times, times, times),
    min_run_s=times,
    max_retries=st.integers(0, 99),
    preemptible=st.booleans(),
    within=st.none() | st.sampled_from(Level),
    cell=names,
)
jobs = st.builds(
    TraceJob,
    id=ids.map(JobId),
    submitted_at=finite,
    spec=specs,
    work_s=finite,
    outcome=st.sampled_from(ENDS),
    fails_at_s=st.lists(finite, max_size=3).map(tuple),
)
nodes = st.builds(
    NodeSpec,
    id=ids.map(NodeId),
    gpus=amounts,
    kind=names,
    gpu_memory_mib=amounts,
    cpu_milli=amounts,
    memory_mib=amounts,
    sockets=st.integers(1, 8),
    switch=names,
)


@settings(max_examples=examples(60))
@given(st.lists(jobs, min_size=1, max_size=4, unique_by=lambda job: job.id))
def test_any_workload_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, some: list[TraceJob]
) -> None:
    path = tmp_path_factory.getbasetemp() / "w.csv"
    some.sort(key=lambda job: job.submitted_at)
    write_workload(path, Workload("w", some))
    assert read_table(path) == Workload("w", some)


@settings(max_examples=examples(60))
@given(st.lists(nodes, min_size=1, max_size=4, unique_by=lambda node: node.id))
def test_any_nodes_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, some: list[NodeSpec]
) -> None:
    path = tmp_path_factory.getbasetemp() / "n.csv"
    write_nodes(path, some)
    assert read_nodes(path) == tuple(some)


def test_columns_that_say_nothing_are_not_written(tmp_path: Path) -> None:
    write_workload(tmp_path / "w.csv", Workload("w", [JOB]))
    assert (tmp_path / "w.csv").read_text() == (
        "id,submitted_at,run_time_s,work_s,outcome,queue,min_workers,max_workers,gpus\n"
        "a,0.0,,1.0,succeeded,default,1,1,1\n"
    )


def test_three_columns_are_enough(tmp_path: Path) -> None:
    table = TextFile("w.csv", "id,submitted_at,work_s\na,0,1\n")
    assert read_table(table).jobs == [JOB]
    (tmp_path / "nodes.csv").write_text("id\nn1\n")
    assert read_table(table, nodes=tmp_path / "nodes.csv").nodes == (NodeSpec(NodeId("n1")),)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("min_workers", "0"),
        ("max_workers", "0"),
        ("gpus", "-1"),
        ("share_milli", "1001"),
        ("qos", "best"),
        ("outcome", "ok"),
        ("priority", "high"),
        ("run_time_s", "-1"),
        ("restart_s", "nan"),
        ("preemptible", "yes"),
        ("within", "room"),
        ("fails_at_s", "1|x"),
        ("roles", "{"),
        ("roles", "3"),
        ("roles", '"[["'),
        ("roles", '"[[""ps"", 0, {}]]"'),
        ("roles", '"[[""ps"", 1.5, {}]]"'),
        ("roles", '"[[""ps"", 1, {""gpus"": 1.5}]]"'),
        ("roles", '"[[""ps"", 1, {""legs"": 4}]]"'),
    ],
)
def test_a_bad_cell_says_where(column: str, cell: str) -> None:
    with pytest.raises(InvalidTrace, match=f"line 2, column '{column}'"):
        read_table(TextFile("w.csv", f"id,submitted_at,work_s,{column}\na,0,1,{cell}\n"))


def test_times_must_be_finite() -> None:
    with pytest.raises(InvalidTrace, match="column 'work_s'"):
        read_table(TextFile("w.csv", "id,submitted_at,work_s\na,0,inf\n"))


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, id=JobId(" ")),
        replace(JOB, id=JobId("a\nb")),
        replace(JOB, spec=JobSpec(queue=QueueId(""))),
        replace(JOB, spec=JobSpec(user="a\0")),
        replace(JOB, spec=JobSpec(user="a" * 200_000)),
        replace(JOB, spec=JobSpec(user="\ud800")),
        replace(JOB, spec=JobSpec(resources=Resources(kinds=("a|b",)))),
        replace(JOB, spec=JobSpec(resources=Resources(kinds=("",)))),
    ],
)
def test_what_would_not_read_back_is_not_written(tmp_path: Path, job: TraceJob) -> None:
    with pytest.raises(InvalidSpec) as caught:
        write_workload(tmp_path / "w.csv", Workload("w", [job]))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nothing_and_one_id_for_two_jobs_are_not_written(tmp_path: Path) -> None:
    for some in ([], [JOB, JOB]):
        with pytest.raises(InvalidSpec, match="job"):
            write_workload(tmp_path / "w.csv", Workload("w", some))
    with pytest.raises(InvalidSpec, match="there is no node to write"):
        write_nodes(tmp_path / "n.csv", [])


def test_nodes_in_declared_trees_read_back_as_they_were(tmp_path: Path) -> None:
    site = CellSite(
        "ROW",
        (InnerLevel("PAIR", ((0, 2), (1, 3))),),
        (OuterCell("RACK", "ROW-0.0"), OuterCell("ROW", "ROW-0")),
    )
    nodes = (NodeSpec(NodeId("a"), gpus=4, site=site), NodeSpec(NodeId("b")))
    write_nodes(tmp_path / "nodes.csv", nodes)
    assert read_nodes(tmp_path / "nodes.csv") == nodes
    (tmp_path / "nodes.csv").write_text("id,site\na,7\n")
    with pytest.raises(InvalidTrace, match="line 2, column 'site'"):
        read_nodes(tmp_path / "nodes.csv")
