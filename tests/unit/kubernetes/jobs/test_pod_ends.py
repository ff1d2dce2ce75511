"""How pods of a Job stand, and what a new leader finds of a run."""

from __future__ import annotations

from typing import Any

import pytest

from roost.core import Allocation, JobState, NodeId
from roost.core.allocation import Part
from roost.engines import WorkerExit
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import JobOwner
from roost.kubernetes.jobs.pod_ends import end_of, stuck, why_deleted
from roost.kubernetes.jobs.recovery import StatusSummary, run_of, summary_of
from roost.kubernetes.objects.pods import encode_plan

OWNER = JobOwner("default", "train", "uid-1")
PLAN = Allocation((Part(NodeId("a"), (0, 1), workers=2),))


def pod(index: int = 0, attempt: int = 1, generation: int = 1, **status: Any) -> Object:
    return {
        "metadata": {
            "name": f"train-{attempt}-worker-{index}",
            "labels": {
                "roost.dev/role": "worker",
                "roost.dev/index": str(index),
                "roost.dev/attempt": str(attempt),
                "roost.dev/generation": str(generation),
            },
            "annotations": {"roost.dev/plan": encode_plan(PLAN)},
            "ownerReferences": [OWNER.reference()],
        },
        "spec": {},
        "status": {"phase": "Running", **status},
    }


def ended(**how: Any) -> Object:
    state = {"terminated": {"finishedAt": "2026-01-01T00:00:01Z", **how}}
    return pod(phase="Failed", containerStatuses=[{"name": "worker", "state": state}])


def test_who_made_a_pod_go_is_told_where_it_is_known() -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempted by default-scheduler",
    }
    gone = pod(conditions=[condition])
    assert why_deleted("w", gone) == "pod w was displaced: preempted by default-scheduler"
    assert why_deleted("w", pod()) == "pod w was deleted, and not by Roost"
    failed = end_of(pod(phase="Failed", reason="Evicted", conditions=[condition]))
    assert failed is not None
    assert "was displaced: preempted" in failed.lost


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"exitCode": 128, "reason": "StartError", "message": "exec: not found"}, "no python3"),
        ({"exitCode": 127}, "--no-send"),
        ({"exitCode": 1, "message": "cannot be unpacked: x\n"}, "cannot be unpacked: x"),
        ({"exitCode": 137}, "was not unpacked (exit 137)"),
    ],
)
def test_why_a_worker_has_no_folder(how: dict[str, Any], said: str) -> None:
    state = {"terminated": how}
    found = end_of(
        pod(phase="Failed", initContainerStatuses=[{"name": "roost-folder", "state": state}])
    )
    assert found is not None
    assert said in found.bare
    other = end_of(pod(phase="Failed", initContainerStatuses=[{"name": "other", "state": state}]))
    assert other is not None
    assert not other.bare


@pytest.mark.parametrize(
    ("how", "exit_"),
    [
        ({"exitCode": 7}, WorkerExit("worker", 0, 7, None)),
        ({"exitCode": 137}, WorkerExit("worker", 0, 137, None)),
        ({"exitCode": 137, "signal": 9}, WorkerExit("worker", 0, None, 9)),
        (
            {"exitCode": 137, "reason": "OOMKilled"},
            WorkerExit("worker", 0, 137, None, oom=True),
        ),
        ({"exitCode": 4, "message": "roost: setup"}, WorkerExit("setup", 0, 4, None)),
    ],
)
def test_how_a_worker_ended(how: dict[str, Any], exit_: WorkerExit) -> None:
    found = end_of(ended(**how))

    assert found is not None
    assert (found.exit, found.lost) == (exit_, "")


def test_an_evicted_pod_did_not_fail_by_itself() -> None:
    found = end_of(pod(phase="Failed", reason="Evicted", message="The node was low on memory"))

    assert found is not None
    assert found.lost == "pod train-1-worker-0: The node was low on memory"
    assert end_of(pod()) is None


def test_what_keeps_a_pod_from_beginning() -> None:
    def waiting(reason: str) -> Object:
        state = {"waiting": {"reason": reason, "message": "no such image"}}
        return pod(phase="Pending", containerStatuses=[{"name": "worker", "state": state}])

    hopeless, patient = stuck(waiting("InvalidImageName")), stuck(waiting("ImagePullBackOff"))
    assert hopeless is not None
    assert patient is not None
    assert hopeless.patience_s == 0.0 < patient.patience_s
    assert patient.why == "ImagePullBackOff: no such image"
    assert stuck(waiting("ContainerCreating")) is None


def past(state: str = "", attempts: int = 0) -> StatusSummary:
    return StatusSummary(JobState(state) if state else None, attempts)


@pytest.mark.parametrize(
    ("before", "pods", "attempt"),
    [
        (past(), [], None),
        (past(), [pod()], 1),  # made, and no status written yet
        (past("queued"), [pod()], 1),
        (past("starting", 1), [pod()], 1),
        (past("running", 1), [pod(), pod(1)], 1),
        (past("queued", 1), [pod()], None),  # that one is known to have ended
        (past("suspended", 1), [pod()], None),
        (past("queued", 1), [pod(), pod(attempt=2)], 2),
        (past("running", 2), [pod()], None),  # what is left of an earlier one
        (past("succeeded", 1), [pod()], None),
    ],
)
def test_which_run_goes_on(before: StatusSummary, pods: list[Object], attempt: int | None) -> None:
    found = run_of(OWNER, before, pods)

    assert (None if found is None else found.attempt) == attempt


def test_the_pods_of_another_object_are_no_run() -> None:
    assert run_of(JobOwner("default", "train", "uid-2"), past(), [pod()]) is None


def test_a_run_is_what_its_plan_says() -> None:
    found = run_of(OWNER, past("running", 1), [pod(1), pod(generation=2), pod(1, generation=2)])

    assert found is not None
    assert (found.generation, found.allocation, len(found.pods)) == (2, PLAN, 2)
    assert found.crew.members == ("0", "1")
    assert found.was_up
    assert not run_of(OWNER, past("starting", 1), [pod()]).was_up  # type: ignore[union-attr]


def test_a_status_that_makes_no_sense_is_as_good_as_none() -> None:
    assert summary_of(
        {"status": {"state": "dancing", "attempt": "many", "view": {}}}
    ) == StatusSummary(None)
    assert summary_of({}) == StatusSummary(None)
