"""Where a pod stands, and what was written on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from tests.unit.kubernetes.kube_objects import Object, pod, some

from roost.errors import InvalidSpec
from roost.kubernetes.objects import pods
from roost.kubernetes.objects.pods import encode_gpus

NOON = 1714564800.0


@pytest.mark.parametrize(
    ("phase", "is_over", "runs"),
    [
        ("Pending", False, False),
        ("Running", False, True),
        ("Succeeded", True, False),
        ("Failed", True, False),
        ("Unknown", False, False),
        (None, False, False),
    ],
)
def test_phases(phase: str | None, is_over: bool, runs: bool) -> None:  # noqa: FBT001
    one = pod(status={"phase": phase})

    assert (pods.is_over(one), pods.is_running(one)) == (is_over, runs)


def test_bound_leaving_and_gated() -> None:
    plain = pod()
    assert not any(test(plain) for test in (pods.is_bound, pods.is_leaving, pods.is_gated))
    assert pods.node_of(plain) is None

    one = pod(spec={"nodeName": "n1", "schedulingGates": [{"name": "g"}], "schedulerName": "roost"})
    one["metadata"]["deletionTimestamp"] = "2024-05-01T12:00:00Z"
    assert pods.is_bound(one)
    assert pods.is_leaving(one)
    assert pods.is_gated(one)
    assert (pods.node_of(one), pods.scheduler_of(one), pods.uid_of(one)) == (
        "n1",
        "roost",
        "uid-p0",
    )
    assert pods.scheduler_of(plain) == "default-scheduler"


def test_when_it_was_created() -> None:
    one = pod()
    one["metadata"]["creationTimestamp"] = "2024-05-01T12:00:00.5Z"

    assert pods.created_at(one) == NOON + 0.5


@pytest.mark.parametrize("time", ["noon", "", "2024-05-01T12:00:00", 5, [], "2024-99-01T00:00:00Z"])
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(InvalidSpec, match="a time must be"):
        pods.created_at({"metadata": {"creationTimestamp": time}})


@pytest.mark.parametrize("devices", [(), (0,), (0, 3), (7, 5, 6)])
def test_devices_come_back_as_they_were_written(devices: tuple[int, ...]) -> None:
    one = pod(annotations={"roost.dev/gpus": encode_gpus(devices)})

    assert pods.devices_of(one) == devices
    assert pods.devices_of(pod()) == ()


@pytest.mark.parametrize(
    "written",
    [
        "0,",
        ",",
        "a",
        "-1",
        "0,0",
        "0 1",
        "1.5",
        "\u0663",
        "1e400",
        "99999",
        "0," * 50_000,
        3,
        ["0"],
    ],
)
def test_devices_that_nobody_wrote_are_refused(written: Any) -> None:
    with pytest.raises(InvalidSpec):
        pods.devices_of(pod(annotations={"roost.dev/gpus": written}))


def test_attempt() -> None:
    assert pods.attempt_of(pod(annotations={"roost.dev/attempt": "2"})) == 2
    assert pods.attempt_of(pod()) == 0


@pytest.mark.parametrize("attempt", ["", "-1", "x", "1e400", "9" * 100_000, 2.5, []])
def test_attempts_that_nobody_wrote_are_refused(attempt: Any) -> None:
    with pytest.raises(InvalidSpec):
        pods.attempt_of(pod(annotations={"roost.dev/attempt": attempt}))


READERS = [
    *(pods.phase_of, pods.is_over, pods.is_running, pods.is_bound, pods.is_leaving),
    *(pods.is_gated, pods.node_of, pods.scheduler_of, pods.uid_of, pods.created_at),
    *(pods.devices_of, pods.attempt_of),
]


@given(
    some("phase", "reason", "startTime", "containerStatuses", "initContainerStatuses"),
    some("nodeName", "schedulerName", "schedulingGates"),
    some("roost.dev/gpus", "roost.dev/attempt", "roost.dev/seat"),
    some("exitCode", "signal", "reason", "startedAt", "finishedAt"),
)
def test_nothing_but_a_refusal_comes_of_nonsense(
    status: Object, spec: Object, annotations: Object, terminated: Object
) -> None:
    containers = [{"state": {"terminated": terminated}}]
    for one in (
        {"metadata": annotations, "spec": spec, "status": status},
        pod(annotations=annotations, status=status),
        pod(status={"phase": "Failed", "containerStatuses": containers}),
    ):
        for read in READERS:
            with suppress(InvalidSpec):
                read(one)
