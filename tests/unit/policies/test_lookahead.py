"""Lookahead: jobs leap over sizes that gain nothing, short ones count more, changes must pay."""

from __future__ import annotations

import math

import pytest

from roost.core import (
    Core,
    Costs,
    JobSpec,
    Launch,
    Measured,
    NodeJoined,
    Policy,
    Progressed,
    Range,
    Resized,
    Resources,
    Role,
    Started,
    Submitted,
    Woke,
)
from roost.core.spec import Training
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.policies.kit.parameter_servers.gains import Gains, LeapGains, Size, within
from roost.policies.kit.parameter_servers.leaps import LogSpeeds, ranks
from roost.policies.kit.parameter_servers.slots import held
from roost.policies.lookahead import Lookahead
from roost.policies.optimus import Optimus
from roost.testing.builders import job, node, run
from roost.testing.checks import validate
from roost.testing.conformance import PolicyConformance

WORKER = Resources(gpus=1, cpu_milli=2000)
SERVER = Resources(gpus=0, cpu_milli=2000)
BATCH = 64


class TestConformance(PolicyConformance):
    @pytest.fixture(params=[Lookahead(), Lookahead(placed=False, power=0)])
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        found: Policy = request.param
        return found


def trained(epochs: float, application: str = "net") -> JobSpec:
    return JobSpec(
        workers=Range(1, 8),
        resources=WORKER,
        roles=(Role("ps", 1, SERVER, most=8),),
        application=application,
        training=Training(batch=BATCH, epochs=epochs),
        costs=Costs(resize_s=20.0),
    )


def crowded(policy: Policy, gpus: int) -> Core:
    """Two jobs of one application on so many GPUs: a short and a long one, their speed measured."""
    core = Core(policy, placer("even"))
    core.handle(NodeJoined(0.0, node("n0", gpus, cpu_milli=4000 * gpus)))
    asked = (Submitted(1.0, job(name), trained(epochs)) for name, epochs in JOBS.items())
    for action in core.handle(*asked):
        assert isinstance(action, Launch)
        core.handle(Started(1.0, action.run))
    for p, w in ((1, 1), (1, 4), (4, 4), (2, 8), (8, 8), (4, 2), (2, 2)):
        step_s = 0.95 / w + 0.05 + 0.01 * w / p + 0.001 * (w + p)
        told = Measured(2.0, run("short"), w, step_s, servers=p, local_batch=BATCH // w, epochs=5.0)
        core.handle(told)
    core.handle(Measured(2.0, run("long"), 1, 1.0, servers=1, local_batch=BATCH, epochs=5.0))
    core.handle(*(Progressed(3.0, run(name), 300.0, 1.0) for name in JOBS))
    for _ in range(2):
        core.handle(Woke(core.wake_at))
        core.handle(*(Resized(core.now, one.id) for one in core.runs.values() if one.target))
    validate(core)
    return core


JOBS = {"short": 20.0, "long": 200.0}


def test_optimus_gives_more_to_the_long_job_and_lookahead_does_not() -> None:
    def workers(policy: Policy) -> dict[str, int]:
        core = crowded(policy, 6)
        return {name: held(core.runs[run(name)]).workers for name in JOBS}

    theirs, ours = workers(Optimus(probe_s=0)), workers(Lookahead(probe_s=0))

    assert theirs["long"] > theirs["short"]
    assert ours["short"] >= ours["long"]


def test_a_leap_goes_over_what_gains_nothing() -> None:
    times = [[1.0, 1.1, 1.2, 0.5]]  # two and three workers are slower than one, four are not
    need = (1000, 2000, 0), (0, 2000, 0), (8000, 32_000, 0)

    assert Gains(times).steps(Size(0, 0), *need) == []
    (leap,) = LeapGains(times).steps(Size(0, 0), *need)
    assert leap.size == Size(0, 3)
    assert leap.takes == (3000, 6000, 0)


def test_of_leaps_only_those_are_kept_of_which_none_is_better_and_smaller() -> None:
    times = [[1.0 / (1 + w) + 0.1 * p for w in range(6)] for p in range(6)]
    need = (1000, 2000, 0), (0, 2000, 0), (8000, 32_000, 0)
    found = LeapGains(times).steps(Size(0, 0), *need)

    assert found == sorted(found, key=lambda one: -one.gain)
    for at, leap in enumerate(found):
        assert not any(within(better.takes, leap.takes) for better in found[:at])


def test_a_leap_is_worth_the_same_to_a_slow_and_to_a_fast_job() -> None:
    need = (1000, 2000, 0), (0, 2000, 0), (8000, 32_000, 0)
    speeds = LogSpeeds()
    fast, slow = (speeds.of(Gains([[x, x / 2]])).gains.steps(Size(0, 0), *need) for x in (1, 60))

    assert fast[0].gain == pytest.approx(slow[0].gain)


def test_the_longest_counts_least() -> None:
    assert ranks([5.0, 50.0, 0.5, 50.0]).tolist() == [0.75, 0.25, 1.0, 0.5]


@pytest.mark.parametrize("wrong", [{"slot_s": 0.0}, {"power": -1.0}, {"power": math.nan}])
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        Lookahead(**wrong)  # type: ignore[arg-type]
