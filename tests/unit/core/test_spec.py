"""Specs refuse what makes no sense, and say what was wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roost.core import (
    Costs,
    JobSpec,
    NodeId,
    NodeSpec,
    QueueId,
    QueueSpec,
    Range,
    Resources,
    Role,
    Training,
)
from roost.errors import InvalidSpec
from roost.testing.builders import node, role, spec, worker


def staged(resources: Resources) -> JobSpec:
    return JobSpec(resources=resources, training=Training(8, pipeline=4))


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("gpus", lambda: Resources(gpus=-1)),
    ("share_milli", lambda: Resources(share_milli=0)),
    ("share_milli", lambda: Resources(share_milli=1001)),
    ("gpus=2", lambda: Resources(gpus=2, share_milli=500)),
    ("gpus=0", lambda: Resources(gpus=0, share_milli=500)),
    ("cpu_milli", lambda: Resources(cpu_milli=-1)),
    ("ps", lambda: Role("ps", 0, Resources())),
    ("workers", lambda: JobSpec(Range(0, 1))),
    ("workers", lambda: JobSpec(Range(2, 1))),
    ("run_time_s", lambda: JobSpec(run_time_s=-1.0)),
    ("run_time_s", lambda: JobSpec(run_time_s=float("nan"))),
    ("min_run_s", lambda: JobSpec(min_run_s=float("nan"))),
    ("worker", lambda: spec(1, roles=(role("worker"),))),
    ("ps", lambda: spec(1, roles=(role("ps"), role("ps", cpu_milli=1)))),
    ("restart_s", lambda: Costs(restart_s=-1.0)),
    ("checkpoint_every_s", lambda: Costs(checkpoint_every_s=float("nan"))),
    ("pipeline", lambda: Training(8, pipeline=0)),
    ("micro", lambda: Training(8, micro=0)),
    ("micro 16 is above the batch", lambda: Training(8, micro=16)),
    ("micro 4 is above", lambda: Training(8, local_max=(("T4", 2),), micro=4)),
    ("multiple of 4 GPUs", lambda: staged(Resources(gpus=6))),
    ("multiple of 4 GPUs", lambda: staged(Resources(gpus=0))),
    ("whole GPUs", lambda: staged(Resources(share_milli=500))),
    ("gpus", lambda: NodeSpec(NodeId("n"), gpus=-1)),
    ("sockets", lambda: NodeSpec(NodeId("n"), sockets=0)),
    ("weight", lambda: QueueSpec(QueueId("q"), weight=0.0)),
    ("weight", lambda: QueueSpec(QueueId("q"), weight=float("inf"))),
    ("quota", lambda: QueueSpec(QueueId("q"), quota_milli=-1)),
    ("limit", lambda: QueueSpec(QueueId("q"), quota_milli=2, limit_milli=1)),
]


@pytest.mark.parametrize(("named", "build"), WRONG)
def test_what_makes_no_sense_is_refused_by_name(named: str, build: Callable[[], object]) -> None:
    with pytest.raises(InvalidSpec, match=named):
        build()


def test_demand_counts_workers_roles_and_shares() -> None:
    job = spec(0.5, workers=(2, 4), roles=(role("ps", 2, 1),))

    assert job.elastic
    assert job.gpus == 3.0
    assert job.gpu_milli(4) == 4000


def test_devices_are_spread_over_sockets_evenly_and_in_order() -> None:
    machine = node(gpus=8, sockets=2)
    odd = node(gpus=3, sockets=2)

    assert [machine.socket_of(gpu) for gpu in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sorted({odd.socket_of(gpu) for gpu in range(3)}) == [0, 1]


def test_builders_speak_in_gpus() -> None:
    assert worker(0.25) == Resources(1, 250)
    assert worker(2) == Resources(2)
    assert worker(0) == Resources(0)
