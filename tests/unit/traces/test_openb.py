"""Alibaba's openb."""

from __future__ import annotations

import pytest

from roost.core.events import Outcome
from roost.core.spec import NodeId, NodeSpec, Resources
from roost.errors import InvalidTrace
from roost.files import TextFile
from roost.traces.openb import read_openb, read_openb_nodes
from roost.traces.workload import TraceJob

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
NODES = TextFile(
    "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,4096,0,\nn2,96000,8192,2,T4\n"
)


def pod(line: str) -> TraceJob:
    (job,) = read_openb(TextFile("pods.csv", f"{HEADER}{line}\n")).jobs
    return job


def test_a_share_of_a_gpu_of_certain_kinds() -> None:
    job = pod("p,6000,12288,1,460,V100M16|T4|T4,LS,Running,100,700,160")
    assert job.spec.resources == Resources(
        share_milli=460, kinds=("V100M16", "T4"), cpu_milli=6000, memory_mib=12288
    )
    assert (job.submitted_at, job.work_s, job.spec.run_time_s) == (0.0, 540.0, 540.0)
    assert (job.spec.priority, job.spec.workers) == (2, (1, 1))


def test_a_pod_is_one_worker_with_all_its_gpus_or_none() -> None:
    assert pod("p,1,1,8,1000,,BE,Running,0,9,0").spec.resources.gpus == 8
    assert pod("p,1,1,0,0,,BE,Running,0,9,0").spec.gpus == 0


@pytest.mark.parametrize(
    ("phase", "scheduled", "outcome", "work_s"),
    [
        ("Running", "10", Outcome.SUCCEEDED, 90.0),
        ("Succeeded", "10", Outcome.SUCCEEDED, 90.0),
        ("Failed", "10", Outcome.FAILED, 90.0),
        ("Pending", "", Outcome.CANCELLED, 100.0),
    ],
)
def test_phases_become_outcomes(
    phase: str, scheduled: str, outcome: Outcome, work_s: float
) -> None:
    job = pod(f"p,1,1,1,1000,,Burstable,{phase},0,100,{scheduled}")
    assert (job.outcome, job.work_s, job.spec.priority) == (outcome, work_s, 1)


def test_pods_without_times_come_one_by_one_and_stay() -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\nb,1,1,2,1000\n"
    for stay_s, workload in (
        (86400.0, read_openb(TextFile("pods.csv", text))),
        (60.0, read_openb(TextFile("pods.csv", text), stay_s=60.0)),
    ):
        assert [(job.id, job.submitted_at, job.work_s) for job in workload.jobs] == [
            ("a", 0.0, stay_s),
            ("b", 1.0, stay_s),
        ]


def test_nodes_are_read_alone_or_beside_the_pods() -> None:
    nodes = (
        NodeSpec(NodeId("n1"), gpus=0, kind="cpu", cpu_milli=32000, memory_mib=4096),
        NodeSpec(NodeId("n2"), gpus=2, kind="T4", cpu_milli=96000, memory_mib=8192),
    )
    assert read_openb_nodes(NODES) == nodes
    pods = TextFile("pods.csv", f"{HEADER}p,1,1,1,1000,,LS,Running,0,9,0\n")
    assert read_openb(pods, nodes=NODES).nodes == nodes


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("p,1,1,2,500,,LS,Running,0,9,0", "gpu_milli"),
        ("p,1,1,1,0,,LS,Running,0,9,0", "gpu_milli"),
        ("p,1,1,1,1001,,LS,Running,0,9,0", "gpu_milli"),
        ("p,1,1,1,1000,,XX,Running,0,9,0", "qos"),
        ("p,1,1,1,1000,,LS,Gone,0,9,0", "pod_phase"),
        ("p,1,1,1,1000,,LS,Running,0,9,10", "deletion_time"),
    ],
)
def test_a_bad_pod_says_where(line: str, column: str) -> None:
    with pytest.raises(InvalidTrace, match=f"line 2, column '{column}'"):
        pod(line)


def test_a_node_that_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidTrace, match="line 4, column 'sn'"):
        read_openb_nodes(TextFile("nodes.csv", NODES.text + "n1,1,1,0,\n"))
