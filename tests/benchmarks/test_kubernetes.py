"""What ``roost bench kubernetes`` says of what it measured."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.kubernetes.processes import Process
from tests.unit.cli.told import roost

from roost.errors import Fatal
from roost.kubernetes.client import access
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import Object
from roost_bench.kubernetes import binding, command
from roost_bench.kubernetes.binding import (
    GANG,
    BindingRace,
    cpu_s,
    faults,
    gang,
    made,
    paused,
    peak_rss_mib,
)
from roost_bench.kubernetes.command import (
    ARRIVING,
    CLIENT,
    CREATED,
    GANGS,
    JOBS,
    KUBE,
    MEMORY,
    ROOST,
    SINGLE,
    BindingRow,
    BindingSizes,
    goals,
)

Asked = list[tuple[list[str], BindingSizes]]


def row(
    scheduler: str,
    shape: str,
    rate: float,
    *,
    nodes: int = 1000,
    rss: float = 100.0,
    cpu_s: float = 5.0,
) -> BindingRow:
    cpu_s = 1.0 if scheduler == ROOST else cpu_s
    return BindingRow(scheduler, nodes, shape, 2000, rate, 2000 / rate, rss, cpu_s, 3.0)


WELL = [
    row(ROOST, SINGLE, 400.0),
    row(KUBE, SINGLE, 200.0),
    row(ROOST, GANGS, 320.0),
    row(KUBE, GANGS, 210.0),
    row(ROOST, JOBS, 200.0),
    row(CLIENT, CREATED, 280.0, rss=0.0),
    row(ROOST, MEMORY, 300.0, rss=300.0),
]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[BindingRow]], Asked]:
    """Say what was measured; answers what was asked for."""

    def give(rows: list[BindingRow]) -> Asked:
        asked: Asked = []

        def measure(schedulers: Sequence[str], sizes: BindingSizes) -> list[BindingRow]:
            asked.append((list(schedulers), sizes))
            return rows

        monkeypatch.setattr(command, "measured", measure)
        return asked

    return give


def test_rows_come_as_a_list(measured: Callable[[list[BindingRow]], Asked]) -> None:
    measured(WELL[:1])
    told = roost("bench", "kubernetes", "-o", "json")

    assert told.status == 0
    assert json.loads(told.out) == [
        {
            "scheduler": "roost",
            "nodes": 1000,
            "shape": "single",
            "pods": 2000,
            "pods_per_s": 400.0,
            "seconds_to_last": 5.0,
            "peak_rss_mib": 100.0,
            "cpu_s": 1.0,
            "server_cpu_s": 3.0,
        }
    ]


def test_the_table_ends_with_a_verdict_for_each_goal(
    measured: Callable[[list[BindingRow]], Asked],
) -> None:
    measured(WELL)
    told = roost("bench", "kubernetes")

    assert told.status == 0
    assert told.out.splitlines() == [
        "SCHEDULER       NODES  SHAPE     PODS  PODS/S  S TO LAST  CPU S  SERVER CPU S  RSS MIB",
        "roost           1,000  single   2,000     400       5.00   1.00          3.00      100",
        "kube-scheduler  1,000  single   2,000     200      10.00   5.00          3.00      100",
        "roost           1,000  gangs    2,000     320       6.25   1.00          3.00      100",
        "kube-scheduler  1,000  gangs    2,000     210       9.52   5.00          3.00      100",
        "roost           1,000  jobs     2,000     200      10.00   1.00          3.00      100",
        "client          1,000  created  2,000     280       7.14   5.00          3.00        0",
        "roost           1,000  memory   2,000     300       6.67   1.00          3.00      300",
        "",
        "MEASURE         VALUE         GOAL  PASSED",
        "rate-1000     2 times   >= 2 times  yes",
        "cpu-1000      2 times   >= 2 times  yes",
        "gangs-1000       80 %      >= 80 %  yes",
        "jobs        1.4 times  < 1.5 times  yes",
        "memory         315 MB     < 400 MB  yes",
    ]


@pytest.mark.parametrize(
    ("worse", "name"),
    [
        (row(KUBE, SINGLE, 201.0), "rate-1000"),
        (row(KUBE, SINGLE, 200.0, cpu_s=4.9), "cpu-1000"),
        (row(ROOST, GANGS, 319.0), "gangs-1000"),
        (row(ROOST, JOBS, 180.0), "jobs"),
        (row(ROOST, MEMORY, 300.0, rss=382.0), "memory"),
    ],
)
def test_each_goal_can_be_missed(
    worse: BindingRow, name: str, measured: Callable[[list[BindingRow]], Asked]
) -> None:
    key = (worse.scheduler, worse.shape)
    measured([worse if (one.scheduler, one.shape) == key else one for one in WELL])
    told = roost("bench", "kubernetes")

    assert told.status == 1
    [missed] = [line for line in told.out.splitlines() if line.endswith("  no")]
    assert missed.startswith(name)


def test_each_cluster_has_goals_of_its_own() -> None:
    other = [row(ROOST, SINGLE, 100.0, nodes=5000), row(KUBE, SINGLE, 90.0, nodes=5000)]
    found = {figure.name: figure.passed for figure in goals([*WELL, *other])}

    assert found == {
        "rate-1000": True,
        "cpu-1000": True,
        "gangs-1000": True,
        "rate-5000": False,
        "cpu-5000": True,
        "jobs": True,
        "memory": True,
    }


def test_the_round_with_the_median_rate_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([1.0, 300.0, 4.0, 200.0, 30.0, 5.0, 100.0, 20.0, 6.0, 7.0])
    phases: list[tuple[str, str, int]] = []

    async def prepare(_course: BindingRace, _count: int) -> None: ...

    async def measure(_course: BindingRace, scheduler: str, shape: str, pods: int) -> BindingRow:
        phases.append((scheduler, shape, pods))
        return row(scheduler, shape, next(rates))

    async def jobs(_course: BindingRace, count: int) -> list[BindingRow]:
        return [row(ROOST, JOBS, float(count))]

    monkeypatch.setattr(BindingRace, "_prepare", prepare)
    monkeypatch.setattr(BindingRace, "_row", measure)
    monkeypatch.setattr(BindingRace, "_jobs", jobs)

    async def rows() -> list[BindingRow]:
        course = BindingRace(None, None, print)  # type: ignore[arg-type]
        return [
            one async for one in course.rows([ROOST], BindingSizes((10,), 5, 2, kept=9, jobs=3))
        ]

    found = [(one.shape, one.pods_per_s) for one in asyncio.run(rows())]
    assert found == [(SINGLE, 100.0), (GANGS, 30.0), (ARRIVING, 5.0), (JOBS, 3.0), (MEMORY, 7.0)]
    each = [(ROOST, SINGLE, 5), (ROOST, GANGS, 16), (ROOST, ARRIVING, 5)]
    assert phases == [*each * 3, (ROOST, MEMORY, 9)]


def test_what_was_not_measured_is_not_judged() -> None:
    assert goals([row(KUBE, SINGLE, 90.0), row(KUBE, GANGS, 90.0)]) == []


def test_sizes_are_those_of_the_promise_unless_told_otherwise(
    measured: Callable[[list[BindingRow]], Asked],
) -> None:
    asked = measured(WELL)
    roost("bench", "kubernetes")
    roost(
        "bench",
        "kubernetes",
        "--nodes",
        7,
        "--nodes",
        9,
        "--nodes",
        7,
        "--only",
        "roost",
        "--rounds",
        5,
    )
    roost("bench", "kubernetes", "--quick", "--pods", 3, "--gangs", 2, "--jobs", 4)

    assert asked[0] == ([ROOST, KUBE], BindingSizes((1000, 5000), 2000, 250, 20_000, 1000, 3))
    assert asked[1] == ([ROOST], BindingSizes((7, 9), 2000, 250, 20_000, 1000, 5))
    assert asked[2][1] == BindingSizes((50,), 3, 2, 200, 4, 1)


def test_an_unknown_scheduler_is_refused_before_anything_runs(
    measured: Callable[[list[BindingRow]], Asked],
) -> None:
    asked = measured(WELL)

    assert "did you mean 'kube-scheduler'" in roost("bench", "kubernetes", "--only", "kube").error
    assert asked == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.client", None)
    for name in (binding.__name__, Api.__module__, access.__name__):
        monkeypatch.delitem(sys.modules, name)

    told = roost("bench", "kubernetes", "--quick").error
    assert told.startswith("this needs kubernetes_asyncio.client, which is missing: pip install")


def test_both_schedulers_get_the_same_pods_but_for_their_names() -> None:
    for shape in (SINGLE, GANGS, MEMORY):
        ours, theirs = made(shape, 16, ROOST), made(shape, 16, KUBE)
        assert len(ours) == len(theirs) == 16
        for one, other in zip(ours, theirs, strict=True):
            assert one["spec"].pop("schedulerName") == "roost"
            assert other["spec"].pop("schedulerName") == "default-scheduler"
            assert one == other


def bound(pods: Sequence[Object], *, node: str = "a", first: int = 0) -> list[Object]:
    for number, one in enumerate(pods):
        one["spec"]["nodeName"] = node
        one["metadata"]["annotations"]["roost.dev/gpus"] = str(first + number)
    return list(pods)


def test_a_part_of_a_gang_is_a_fault_of_roost_alone() -> None:
    pods = bound(gang("g", GANG, ROOST))

    assert faults(pods, roost=True) == []
    assert faults(pods[1:], roost=True) == ["7 of 8 pods of g are bound"]
    assert faults(pods[1:], roost=False) == []


def test_what_is_taken_twice_is_a_fault() -> None:
    pods = bound(made(SINGLE, 9, ROOST))
    assert faults(pods, roost=True) == ["9 pods are on a"]

    pods = [*bound(made(SINGLE, 2, ROOST)), *bound(made(SINGLE, 1, ROOST), first=1)]
    assert faults(pods, roost=True) == ["GPU 1 of a is taken twice"]


EATER = "held = b'x' * 2**26; print('up', flush=True); input()"


def test_a_process_that_has_ended_is_not_paused(tmp_path: Path) -> None:
    process = Process("eater", tmp_path)
    process.start(["false"])
    process.kill()

    with pytest.raises(Fatal, match="eater ended"), paused(process):
        pass


def test_what_a_process_uses_is_read_while_it_runs(tmp_path: Path) -> None:
    process = Process("eater", tmp_path)
    with subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", EATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process._process = child
        assert peak_rss_mib(process) > 64
        assert cpu_s(process) >= 0
        with paused(process):
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            assert _state(child.pid) == "T"
        os.waitid(os.P_PID, child.pid, os.WCONTINUED)
        assert _state(child.pid) != "T"
        child.communicate(b"\n")


def _state(pid: int) -> str:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]
