"""What a Job object says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes.operator.small_cluster import merged

from roost.kubernetes.operator.status import (
    LastStatus,
    Obstacle,
    difference,
    moment,
    stamp,
    status_of,
    status_without,
    word,
)

VIEW: dict[str, Any] = {
    "state": "running",
    "cause": "",
    "reason": "",
    "workers": {"min": 1, "max": 4, "now": 2},
    "gpus_held": 2.0,
    "attempt": 3,
    "failures": 1,
    "placement": [{"node": "a"}, {"node": "b"}, {"node": "a"}],
    "progress": 0.5,
    "started_at": 5.0,
    "verdict": None,
}
NEW = LastStatus({}, 7, "roost.dev/job=train")


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_a_running_job() -> None:
    found = status_of(VIEW, NEW, 100.0)

    assert (found["state"], found["observedGeneration"], found["replicas"]) == ("running", 7, 2)
    assert (found["nodes"], found["gpus"], found["progress"]) == (["a", "b"], 2.0, 0.5)
    assert conditions(found) == {
        "Admitted": "True",
        "Running": "True",
        "Succeeded": "False",
        "Failed": "False",
        "Blocked": "False",
    }
    assert found["view"] == VIEW


@pytest.mark.parametrize(
    ("state", "true"),
    [
        ("queued", set()),
        ("starting", {"Admitted"}),
        ("suspended", set()),
        ("resizing", {"Admitted", "Running"}),
        ("succeeded", {"Admitted", "Succeeded"}),
        ("failed", {"Admitted", "Failed"}),
        ("cancelled", {"Admitted"}),
    ],
)
def test_conditions_follow_the_state(state: str, true: set[str]) -> None:
    found = conditions(status_of({**VIEW, "state": state}, NEW, 1.0))

    assert {name for name, holds in found.items() if holds == "True"} == true


def test_a_failure_is_told_in_its_sentence() -> None:
    verdict = {"kind": "gpu-out-of-memory", "sentence": "GPU out of memory: a smaller batch"}
    found = status_of({**VIEW, "state": "failed", "verdict": verdict}, NEW, 1.0)
    failed = next(one for one in found["conditions"] if one["type"] == "Failed")

    assert (failed["reason"], failed["message"]) == ("GpuOutOfMemory", verdict["sentence"])


def test_times_of_conditions_move_with_their_truth_alone() -> None:
    first = status_of(VIEW, NEW, 100.0)
    then = status_of({**VIEW, "progress": 0.6}, LastStatus(first, 8, ""), 200.0)
    over = status_of({**VIEW, "state": "succeeded"}, LastStatus(then, 8, ""), 300.0)
    at = [
        {one["type"]: moment(one["lastTransitionTime"]) for one in status["conditions"]}
        for status in (first, then, over)
    ]

    assert set(at[0].values()) == set(at[1].values()) == {100.0}
    assert at[2] == {**at[1], "Running": 300.0, "Succeeded": 300.0}


def test_trouble_blocks_or_ends() -> None:
    waits = status_without(Obstacle("unknown-queue", "there is no Queue 'x'"), "ns.train", NEW, 9.0)
    ends = status_without(Obstacle("invalid-job", "no", final=True), "ns.train", NEW, 9.0)

    assert (waits["state"], waits["cause"], waits["reason"]) == (
        "queued",
        "unknown-queue",
        "there is no Queue 'x'",
    )
    assert [name for name, holds in conditions(waits).items() if holds == "True"] == ["Blocked"]
    assert (ends["state"], ends["view"]["finished_at"]) == ("failed", 9.0)
    assert [name for name, holds in conditions(ends).items() if holds == "True"] == ["Failed"]


def test_trouble_does_not_forget_attempts() -> None:
    """A number that was used once is never used again: its pods may still be there."""
    said = LastStatus({"attempt": 4, "failures": 2, "gpus": 3}, 1, "")
    found = status_without(Obstacle("unknown-queue", "gone"), "ns.train", said, 9.0)

    assert (found["attempt"], found["failures"], found["gpus"]) == (4, 2, 0)


_JSON = st.recursive(
    st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from("abcd"), _JSON), st.dictionaries(st.sampled_from("abcd"), _JSON)
)
def test_a_difference_is_the_patch_from_one_to_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert merged(before, difference(before, after)) == after
    assert difference(after, after) == {}


def test_times_and_words() -> None:
    assert stamp(0.9) == "1970-01-01T00:00:00Z"
    assert moment("1970-01-01T00:01:00Z") == 60.0
    assert moment("soon") is moment(None) is None
    assert word("no-capacity") == "NoCapacity"
