"""What a change costs a job: as measured of its application, else as declared."""

from __future__ import annotations

from roost.core import Costs, Submitted
from roost.core.history import Spending
from roost.policies.fifo import fifo
from roost.policies.kit.costs import RestartCounts, restart_s, switch_s
from roost.testing.builders import core_with, job, node, spec

DECLARED = Costs(restart_s=60.0, resize_s=30.0, suspend_s=5.0)


def test_what_was_measured_counts_before_what_was_declared() -> None:
    core = core_with(fifo, node("n0", 8))
    wanted = spec(1, costs=DECLARED, application="net")
    core.handle(Submitted(0.0, job("a"), wanted))
    one = core.jobs[job("a")]

    def measured(what: Spending, seconds: float) -> float:
        core.history.spend(wanted, what, seconds)
        core.handle(Submitted(core.now + 1.0, job(f"later-{what}"), wanted))
        return restart_s(core.jobs[job(f"later-{what}")])

    assert restart_s(one) == 60.0
    assert switch_s(one) == 65.0
    assert measured(Spending.START, 12.0) == 12.0
    assert measured(Spending.RESUME, 8.0) == 8.0
    assert measured(Spending.RESIZE, 2.0) == 2.0
    assert switch_s(core.jobs[job("later-resize")]) == 13.0


def test_restarts_of_the_past_make_another_one_worth_less() -> None:
    core = core_with(fifo, node("n0", 8))
    core.handle(Submitted(0.0, job("a"), spec(1)))
    one, counts = core.jobs[job("a")], RestartCounts(counts={job("a"): 2})

    assert counts.factor(one, 5.0, 10.0) == 1.0  # younger than a restart takes
    assert counts.factor(one, 90.0, 10.0) == (90.0 - 2 * 10.0) / (90.0 + 10.0)
