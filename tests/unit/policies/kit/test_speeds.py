"""What is known of a job's speed on each kind of GPU: profiled, seen, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from roost.core import JobSpec, Plan, Progressed, Started, Submitted, Woke
from roost.core.spec import Level
from roost.perf.arrays import Reals
from roost.policies.fifo import fifo
from roost.policies.kit.speeds import Kinds, claimants, left_of, rates_by_kind
from roost.testing.builders import core_with, job, node, run, spec


class Looking:
    """First come, first served, with an eye on the plan."""

    def __init__(self, look: Callable[[Plan], Reals]) -> None:
        self.look = look
        self.seen: Reals = np.zeros((0, 0))

    def __call__(self, plan: Plan) -> None:
        self.seen = self.look(plan)
        fifo(plan)


def rates(*, aware: bool = True) -> Looking:
    return Looking(lambda plan: rates_by_kind(plan, claimants(plan), Kinds.of(plan), aware=aware))


NODES = (node("n0", 1, kind="new"), node("n1", 2, kind="old"))


def test_all_kinds_are_equal_while_nobody_knows() -> None:
    policy = rates()
    core_with(policy, *NODES).handle(Submitted(1.0, job("a"), spec(1)))
    assert policy.seen.tolist() == [[1.0, 1.0]]


def test_what_was_profiled_counts_and_the_mean_of_it_elsewhere() -> None:
    policy = rates()
    core = core_with(policy, *NODES, node("n2", 1, kind="other"))
    known = replace(spec(1), rates=(("new", 4.0), ("old", 2.0)))
    core.handle(Submitted(1.0, job("a"), known))
    assert policy.seen.tolist() == [[4.0, 2.0, 3.0]]


def test_what_an_application_was_seen_to_do_tells_of_its_next_job() -> None:
    policy = rates()
    core = core_with(policy, *NODES)
    named = spec(1, application="x")
    core.handle(Submitted(1.0, job("a"), named))
    core.handle(Started(1.0, run("a")), Progressed(2.0, run("a"), 3.0, 5.0))
    core.handle(Submitted(3.0, job("b"), named), Submitted(3.0, job("c"), spec(1)))
    assert policy.seen.tolist() == [[5.0, 5.0], [5.0, 5.0], [1.0, 1.0]]


def test_the_unaware_see_no_difference() -> None:
    policy = rates(aware=False)
    core = core_with(policy, *NODES)
    core.handle(Submitted(1.0, job("a"), replace(spec(1), rates=(("new", 4.0), ("old", 2.0)))))
    assert policy.seen.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("wanted", "able"),
    [
        (spec(1, kinds=("old",)), [False, True]),
        (spec(1, workers=2), [False, True]),
        (spec(1, workers=3), [False, False]),
        (spec(1, cpu_milli=9000), [True, True]),
        (spec(1, workers=2, within=Level.NODE), [False, True]),
        (spec(2, within=Level.GPU), [False, False]),
        (spec(1, within=Level.SOCKET), [True, True]),
    ],
)
def test_where_a_job_cannot_run_its_rate_is_nothing(wanted: JobSpec, able: list[bool]) -> None:
    policy = rates()
    core_with(policy, *NODES).handle(Submitted(1.0, job("a"), wanted))
    assert (policy.seen > 0).tolist() == [able]


@pytest.mark.parametrize(
    ("within", "able"),
    [
        (None, True),
        (Level.CLUSTER, True),
        (Level.SWITCH, True),
        (Level.NODE, False),
        (Level.SOCKET, False),
    ],
)
def test_a_gang_has_to_fit_in_a_cell_of_its_level(within: Level | None, able: bool) -> None:  # noqa: FBT001
    policy = rates()
    core = core_with(
        policy, *(node(f"n{at}", 4, sockets=2, switch=s) for at, s in enumerate("xxy"))
    )
    core.handle(Submitted(1.0, job("a"), spec(1, workers=6, within=within)))
    assert (policy.seen > 0).tolist() == [[able]]


def test_of_an_unknown_run_time_as_much_is_left_as_was_done() -> None:
    policy = Looking(lambda plan: left_of(plan, claimants(plan), 100.0))
    core = core_with(policy, node("n0", 3))
    core.handle(
        Submitted(0.0, job("a"), spec(1)),
        Submitted(0.0, job("b"), spec(1, 500.0)),
        Submitted(0.0, job("c"), spec(1, 50.0)),
    )
    core.handle(*(Started(0.0, run(name)) for name in "abc"))
    core.handle(Woke(300.0))
    assert policy.seen.tolist() == [300.0, 200.0, 0.0]
    core.handle(Submitted(300.0, job("d"), spec(1)), Woke(300.0))
    assert policy.seen.tolist()[-1] == 100.0
