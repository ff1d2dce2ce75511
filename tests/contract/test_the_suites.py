"""The suites themselves: what breaks a promise is found out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roost.core import Core, Ledger, Part, Plan, Shape
from roost.placement import placer
from roost.policies import policy
from roost.policies.fifo import fifo
from roost.policies.kit.order import displace
from roost.testing.conformance import PlacerConformance, PolicyConformance
from roost.testing.situations import SITUATIONS, Situation, gangs, tenants

SUITE = PolicyConformance()


def first_fit(ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
    return placer("first-fit")(ledger, shape)


def starving(plan: Plan) -> None:
    """Never starts the eleventh job."""
    for job in plan.pending:
        if job.seq != 10:
            plan.place(job)


def impatient(plan: Plan) -> None:
    """Stops whoever has just started."""
    fifo(plan)
    for run in list(plan.running):
        if run.settled and not run.job.preemptions:
            plan.evict(run, "no patience")
    plan.wake(plan.now + 1.0)


def oversleeping(plan: Plan) -> None:
    """Leaves runs alone for a minute, and does not ask to be woken when that is over."""
    fifo(plan)
    old = [run for run in plan.running if run.settled and plan.now >= (run.started_at or 0) + 60.0]
    for job in plan.pending if old else ():
        if displace(plan, job, [run for run in old if run.job.preemptible]):
            return


def sleepless(plan: Plan) -> None:
    """Wakes itself for this very moment."""
    fifo(plan)
    plan.wake(plan.now)


class Moody:
    """Decides by what it has seen before, in this life or another."""

    def __init__(self) -> None:
        self.plans = 0

    def __call__(self, plan: Plan) -> None:
        self.plans += 1
        jobs = plan.pending
        for job in jobs if self.plans % 3 else reversed(jobs):
            plan.place(job)


def by_hash(plan: Plan) -> None:
    """Decides by how names hash."""
    for name in {job.id for job in plan.pending}:
        plan.place(plan.jobs[name])


def test_a_job_that_starves_is_found() -> None:
    with pytest.raises(AssertionError, match=r"never over: .*j10"):
        SUITE.test_every_gang_ends(starving)


def test_a_run_that_is_stopped_too_soon_is_found() -> None:
    with pytest.raises(AssertionError, match=r"must not be disturbed|ran only"):
        SUITE.test_every_gang_ends(impatient)


def test_a_policy_that_never_sleeps_is_found() -> None:
    with pytest.raises(AssertionError, match="this very moment"):
        SUITE.test_every_gang_ends(sleepless)


def test_a_policy_that_oversleeps_is_found() -> None:
    with pytest.raises(AssertionError, match="did not ask to be woken"):
        SUITE.test_it_asks_to_be_woken(oversleeping)


def test_a_policy_that_changes_its_mind_is_found() -> None:
    with pytest.raises(AssertionError, match="decided otherwise"):
        SUITE.test_it_decides_the_same_again(Moody())


def test_a_policy_that_depends_on_hashes_is_found() -> None:
    with pytest.raises(AssertionError, match="in another process"):
        SUITE.test_it_decides_the_same_again(by_hash)


def test_a_job_that_cannot_say_why_it_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Core, "explain", lambda *_: None)

    with pytest.raises(AssertionError, match="cannot say why"):
        SUITE.test_every_waiting_job_can_say_why(fifo)


def halved(ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
    """Leaves out one worker of every gang."""
    parts = first_fit(ledger, shape)
    return parts[:-1] if parts is not None and len(parts) > 1 else parts


def greedy(ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
    """Gives out devices that others hold."""
    if shape.resources.gpus != 1 or shape.workers != 1 or shape.roles:
        return first_fit(ledger, shape)
    taken = [node for node in ledger.order if node.taken]
    return (Part(taken[0].id, (0,), shape.resources.share_milli),) if taken else None


def untidy(ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
    """Leaves its fingerprints in the ledger."""
    ledger.releases += 1
    return first_fit(ledger, shape)


def lazy(ledger: Ledger, shape: Shape) -> tuple[Part, ...] | None:
    """Never looks beyond the first node."""
    parts = first_fit(ledger, shape)
    return parts if parts and parts[0].node == ledger.order[0].id else None


def test_half_a_gang_is_found() -> None:
    with pytest.raises(AssertionError, match="asked for"):
        PlacerConformance().test_what_it_chooses_is_a_whole_gang_and_free(halved)


def test_devices_of_others_are_found() -> None:
    with pytest.raises(Exception, match=r"idle|left|kind|asked"):
        PlacerConformance().test_what_it_chooses_is_a_whole_gang_and_free(greedy)


def test_fingerprints_are_found() -> None:
    with pytest.raises(AssertionError, match="the ledger changed"):
        PlacerConformance().test_it_leaves_the_ledger_as_it_was(untidy)


def test_room_that_is_not_seen_is_found() -> None:
    with pytest.raises(AssertionError, match="room: True"):
        PlacerConformance().test_one_worker_is_placed_if_any_node_has_room(lazy)
    with pytest.raises(AssertionError, match="no room"):
        PlacerConformance().test_a_gang_that_fits_an_empty_cluster_is_placed(
            lambda ledger, shape: None if shape.workers > 4 else lazy(ledger, shape)
        )


@pytest.mark.parametrize("make", SITUATIONS)
def test_situations_are_crowded(make: Callable[[], Situation]) -> None:
    """Someone has to wait in each of them, or a policy has nothing to decide."""
    results = make().simulation(fifo).run(until=1e7)

    assert max(results.series.queued) > 3
    assert all(row.outcome == "succeeded" for row in results.jobs)


def test_situations_make_preempting_policies_preempt() -> None:
    for name in ("srtf", "srsf", "las", "tiresias", "gittins"):
        assert gangs().simulation(policy(name)).run(until=1e7).preemptions > 3, name
    for name in ("fair", "priority"):
        assert tenants().simulation(policy(name)).run(until=1e7).preemptions > 0, name
