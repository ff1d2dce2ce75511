"""Every policy still makes the schedule it made, to the last bit and in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.golden.schedules import Golden, differences, measure, stored
from tests.support.effort import thorough_only

from roost.policies import names

REGENERATE = Path(__file__).with_name("regenerate.py")


#: Pollux takes half a minute: its search is made of many generations.
_LONG = ("pollux",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=thorough_only if name in _LONG else ()) for name in names()],
)
def test_the_schedule_is_the_stored_one(name: str) -> None:
    expected = stored()
    assert name in expected, f"no golden schedule for {name}: run python {REGENERATE}"

    changes = differences(expected[name], measure(name))
    if changes:
        pytest.fail(
            "\n  ".join([f"the schedule of {name} has changed:", *changes])
            + f"\nif that is meant to be: python {os.path.relpath(REGENERATE)}, and say why"
        )


def test_nothing_is_stored_for_policies_that_are_gone() -> None:
    assert sorted(stored()) == names()


def test_policies_differ() -> None:
    assert len({golden["mean_jct"] for golden in stored().values()}) >= len(names()) - 1


@pytest.mark.parametrize("name", ["tiresias", "fair"])
def test_the_hash_seed_of_a_process_does_not_matter(name: str) -> None:
    def digest(hash_seed: str) -> str:
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(REGENERATE), "--show", name],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    assert digest("1") == digest("2") == stored()[name]["digest"]


def test_differences_name_what_moved() -> None:
    before = Golden(
        mean_jct="1.5",
        finished=2,
        preemptions=0,
        resizes=0,
        runs=2,
        events=9,
        digest="ab",
        jobs="aaaabbbb",
    )
    after = Golden(**{**before, "mean_jct": "1.25", "jobs": "aaaabbbc"})

    assert differences(before, before) == []
    assert differences(before, after) == [
        "mean_jct: 1.5 before, 1.25 now",
        "1 jobs differ, the first of them is job-2",
    ]
