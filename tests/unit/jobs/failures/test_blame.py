"""Bad devices are inferred from what fails on them, and users' errors never count."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from roost.core import JobId, NodeId
from roost.jobs.failures.blame import DeviceKey, Suspect, Suspicions
from roost.jobs.failures.verdicts import KINDS, Blame, Verdict, verdict

NODE = NodeId("n1")
G0, G1 = DeviceKey(NODE, 0), DeviceKey(NODE, 1)
CUDA = verdict("cuda-failure", code=1)
ECC = verdict("gpu-ecc", code=1)


class Ran(NamedTuple):
    """A run that is over."""

    devices: tuple[DeviceKey, ...]
    job: JobId
    user: str
    verdict: Verdict | None
    time: float


def ran(job: str, user: str, found: Verdict | None, *devices: DeviceKey, time: float = 0.0) -> Ran:
    return Ran(devices or (G0,), JobId(job), user, found, time)


def places(found: list[Suspect]) -> list[tuple[int | None, bool]]:
    return [(suspect.gpu, suspect.avoid) for suspect in found]


def test_two_jobs_of_two_users_make_a_device_suspect() -> None:
    held = Suspicions()
    assert held.observe(*ran("a", "ada", CUDA), healthy=8) == []
    (found,) = held.observe(*ran("b", "bob", CUDA), healthy=8)
    assert found == Suspect(
        NODE, 0, "CUDA failure: 2 jobs of 2 users, no success between", avoid=True
    )


def test_two_jobs_of_one_user_need_a_third() -> None:
    held = Suspicions()
    assert held.observe(*ran("a", "ada", CUDA), healthy=8) == []
    assert held.observe(*ran("b", "ada", CUDA), healthy=8) == []
    assert places(held.observe(*ran("c", "ada", CUDA), healthy=8)) == [(0, True)]


def test_one_job_that_fails_again_and_again_proves_nothing() -> None:
    held = Suspicions()
    for time in range(20):
        assert held.observe(*ran("a", "ada", CUDA, time=float(time)), healthy=8) == []


def test_a_success_between_clears() -> None:
    held = Suspicions()
    held.observe(*ran("a", "ada", CUDA, G0, G1), healthy=8)
    held.observe(*ran("c", "cyd", None, G0), healthy=8)
    assert places(held.observe(*ran("b", "bob", CUDA, G0, G1), healthy=8)) == [(1, True)]


def test_old_failures_are_forgotten() -> None:
    held = Suspicions(window_s=100.0)
    held.observe(*ran("a", "ada", CUDA), healthy=8)
    assert held.observe(*ran("b", "bob", CUDA, time=101.0), healthy=8) == []
    assert held.observe(*ran("c", "cyd", CUDA, time=200.0), healthy=8) != []


def test_without_a_count_there_are_devices_enough() -> None:
    held = Suspicions()
    held.observe([("n1", 0)], JobId("a"), "ada", CUDA, 0.0)
    assert places(held.observe([("n1", 0)], JobId("b"), "bob", CUDA, 0.0)) == [(0, True)]


def test_what_the_driver_says_of_one_device_is_enough() -> None:
    assert places(Suspicions().observe(*ran("a", "ada", ECC), healthy=1)) == [(0, True)]


def test_broken_memory_on_one_of_several_devices_needs_another_word() -> None:
    held = Suspicions()
    assert held.observe(*ran("a", "ada", ECC, G0, G1), healthy=8) == []
    assert places(held.observe(*ran("b", "bob", CUDA, G1), healthy=8)) == [(1, True)]


def test_weak_evidence_never_takes_the_last_device() -> None:
    held = Suspicions()
    held.observe(*ran("a", "ada", CUDA), healthy=1)
    assert places(held.observe(*ran("b", "bob", CUDA), healthy=1)) == [(0, False)]
    held = Suspicions()
    held.observe(*ran("a", "ada", CUDA, G0, G1), healthy=2)
    assert places(held.observe(*ran("b", "bob", CUDA, G0, G1), healthy=2)) == [
        (0, True),
        (1, False),
    ]


def test_a_node_on_which_nothing_starts_is_reported_only() -> None:
    held, broken = Suspicions(), verdict("never-started")
    held.observe(*ran("a", "ada", broken, G0), healthy=8)
    (found,) = held.observe(*ran("b", "bob", broken, G1), healthy=8)
    assert (found.node, found.gpu, found.avoid) == (NODE, None, False)
    held.observe(*ran("c", "cyd", None, G1), healthy=8)
    assert held.observe(*ran("d", "dee", broken, G1), healthy=8) == []


def test_a_device_put_back_into_service_starts_anew() -> None:
    held = Suspicions()
    held.observe(*ran("a", "ada", CUDA), healthy=8)
    held.forget(G0)
    assert held.observe(*ran("b", "bob", CUDA), healthy=8) == []


RUNS = st.builds(
    Ran,
    st.lists(st.builds(DeviceKey, st.just(NODE), st.integers(0, 3)), min_size=1, max_size=3).map(
        tuple
    ),
    st.sampled_from([JobId(name) for name in "abcdef"]),
    st.sampled_from(["ada", "bob", "cyd"]),
    st.one_of(st.none(), st.sampled_from([verdict(kind, code=1) for kind in sorted(KINDS)])),
    st.just(0.0),
)
USERS = [kind for kind in sorted(KINDS) if KINDS[kind].whose == "user"]


def test_no_kind_of_the_users_blames_a_device() -> None:
    assert all(KINDS[kind].blame == Blame.NONE for kind in USERS)
    assert {"gpu-out-of-memory", "import-error", "syntax-error"} <= set(USERS)


@given(st.lists(st.tuples(RUNS, st.sampled_from(USERS)), max_size=40))
def test_errors_of_users_alone_never_make_a_suspect(runs: list[tuple[Ran, str]]) -> None:
    held = Suspicions(jobs=1)
    for given_run, kind in runs:
        wrong = Ran(given_run.devices, given_run.job, given_run.user, verdict(kind), 0.0)
        assert held.observe(*wrong, healthy=8) == []
    assert not held._incidents


@given(st.lists(RUNS, max_size=60))
def test_weak_evidence_always_leaves_a_device(runs: list[Ran]) -> None:
    held = Suspicions()
    healthy = {DeviceKey(NODE, gpu) for gpu in range(4)}
    for item in runs:
        left = tuple(device for device in item.devices if device in healthy)
        if not left:
            continue
        run = Ran(left, item.job, item.user, item.verdict, item.time)
        for suspect in held.observe(*run, healthy=len(healthy)):
            if suspect.avoid:
                assert suspect.gpu is not None
                healthy.discard(DeviceKey(suspect.node, suspect.gpu))
        strong = run.verdict is not None and KINDS[run.verdict.kind].blame == Blame.STRONG
        assert healthy or (strong and len(left) == 1)
