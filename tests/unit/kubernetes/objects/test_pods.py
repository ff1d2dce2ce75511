"""Where a pod stands, how it ended, and what was written on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from tests.unit.kubernetes.kube_objects import Object, pod, some

from roost.engines import WorkerExit
from roost.errors import InvalidSpec
from roost.kubernetes.objects import pods
from roost.kubernetes.objects.pods import encode_gpus

NOON = 1714564800.0


def ended(code: int, **more: Any) -> Object:
    return {"name": "c", "state": {"terminated": {"exitCode": code, **more}}}


def over(*containers: Object, phase: str = "Failed", init: Any = (), **given: Any) -> Object:
    status = {
        "phase": phase,
        "containerStatuses": list(containers),
        "initContainerStatuses": list(init),
    }
    return pod(status=status, **given)


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


@pytest.mark.parametrize(
    ("status", "at"),
    [
        ({}, None),
        ({"startTime": "2024-05-01T12:00:00Z"}, NOON),
        (
            {
                "startTime": "2024-05-01T12:00:00Z",
                "containerStatuses": [
                    {"state": {"running": {"startedAt": "2024-05-01T12:00:20Z"}}},
                    {"state": {"terminated": {"startedAt": "2024-05-01T14:00:10+02:00"}}},
                    {"state": {"waiting": {}}},
                ],
            },
            NOON + 10,
        ),
    ],
)
def test_when_it_started(status: Object, at: float | None) -> None:
    assert pods.started_at(pod(status=status)) == at


def test_when_it_was_created_and_ended() -> None:
    late = {"finishedAt": "2024-05-01T12:01:00Z"}
    one = over(ended(0, finishedAt="2024-05-01T12:00:00Z"), ended(0, **late))
    one["metadata"]["creationTimestamp"] = "2024-05-01T12:00:00.5Z"

    assert pods.created_at(one) == NOON + 0.5
    assert pods.ended_at(one) == NOON + 60
    assert pods.ended_at(over(ended(0, **late), {"state": {"running": {}}})) is None
    assert pods.ended_at(pod()) is None


@pytest.mark.parametrize("time", ["noon", "", "2024-05-01T12:00:00", 5, [], "2024-99-01T00:00:00Z"])
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(InvalidSpec, match="a time must be"):
        pods.started_at(pod(status={"startTime": time}))


WORKER = {"training.kubeflow.org/replica-type": "ps", "training.kubeflow.org/replica-index": "2"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([ended(0)], WorkerExit("ps", 2, 0, None)),
        ([ended(1)], WorkerExit("ps", 2, 1, None)),
        ([ended(0), ended(3)], WorkerExit("ps", 2, 3, None)),
        ([ended(137)], WorkerExit("ps", 2, None, 9)),
        ([ended(143)], WorkerExit("ps", 2, None, 15)),
        ([ended(255)], WorkerExit("ps", 2, 255, None)),
        ([ended(128)], WorkerExit("ps", 2, 128, None)),
        ([ended(1, signal=11)], WorkerExit("ps", 2, None, 11)),
        ([ended(137, reason="OOMKilled")], WorkerExit("ps", 2, None, 9, oom=True)),
    ],
)
def test_how_a_worker_ended(containers: list[Object], expected: WorkerExit) -> None:
    assert pods.exits(over(*containers, labels=WORKER)) == (expected,)


def test_an_init_container_that_failed_is_the_setup() -> None:
    one = over({"state": {"waiting": {}}}, init=[ended(0), ended(2)], labels=WORKER)

    assert pods.exits(one) == (WorkerExit("setup", 2, 2, None),)


def test_who_is_not_over_or_never_ran_has_no_exit() -> None:
    assert pods.exits(over(ended(1), phase="Running")) == ()
    assert pods.exits(over()) == ()
    assert pods.exits(over({"state": {"waiting": {"reason": "ErrImagePull"}}})) == ()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, ""),
        ({"reason": "Evicted"}, "Evicted"),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "ErrImagePull",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        ({"containerStatuses": [ended(0, reason="Completed")]}, ""),
        ({"containerStatuses": [ended(0, reason="Completed"), ended(1, reason="Error")]}, "Error"),
        ({"initContainerStatuses": [ended(1, reason="Error")]}, "Error"),
    ],
)
def test_in_one_word_why(status: Object, reason: str) -> None:
    assert pods.reason_of(pod(status=status)) == reason


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


def test_attempt_and_seat() -> None:
    one = pod(annotations={"roost.dev/attempt": "2", "roost.dev/seat": "big-worker-3"})

    assert (pods.attempt_of(one), pods.seat_of(one)) == (2, ("big-worker", 3))
    assert (pods.attempt_of(pod()), pods.seat_of(pod())) == (0, None)


@pytest.mark.parametrize(
    "seat", ["", "worker", "worker-", "-3", "worker-x", "worker-\u0663", 3, []]
)
def test_seats_that_nobody_wrote_are_refused(seat: Any) -> None:
    with pytest.raises(InvalidSpec):
        pods.seat_of(pod(annotations={"roost.dev/seat": seat}))


@pytest.mark.parametrize("attempt", ["", "-1", "x", "1e400", "9" * 100_000, 2.5, []])
def test_attempts_that_nobody_wrote_are_refused(attempt: Any) -> None:
    with pytest.raises(InvalidSpec):
        pods.attempt_of(pod(annotations={"roost.dev/attempt": attempt}))


@pytest.mark.parametrize(
    "status",
    [
        [],
        {"phase": 3},
        {"phase": "Failed", "containerStatuses": {}},
        {"phase": "Failed", "containerStatuses": ["c"]},
        {"phase": "Failed", "containerStatuses": [{"state": []}]},
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": []}}]},
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": "1"}}}]},
        {"phase": "Failed", "initContainerStatuses": 3},
    ],
)
def test_what_has_the_wrong_shape_is_refused(status: Any) -> None:
    with pytest.raises(InvalidSpec):
        pods.exits(pod(status=status))


READERS = [
    *(pods.phase_of, pods.is_over, pods.is_running, pods.is_bound, pods.is_leaving),
    *(pods.is_gated, pods.node_of, pods.scheduler_of, pods.uid_of, pods.created_at),
    *(pods.started_at, pods.ended_at, pods.reason_of, pods.exits, pods.devices_of),
    *(pods.attempt_of, pods.seat_of),
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
