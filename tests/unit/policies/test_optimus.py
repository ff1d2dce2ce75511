"""Optimus: sizes follow the gain, changes have to pay, and nobody is stopped for anybody."""

from __future__ import annotations

import numpy as np
import pytest

from roost.core import (
    Core,
    Costs,
    Evict,
    JobSpec,
    Launch,
    Measured,
    NodeJoined,
    Policy,
    Progressed,
    Range,
    Reshape,
    Resize,
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
from roost.policies.bundles import Bundles
from roost.policies.kit.costs import restart_s
from roost.policies.kit.parameter_servers.gains import Demand, Gains, Size
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.probes import DESIGN, untried
from roost.policies.kit.parameter_servers.slots import held, size_of
from roost.policies.optimus import Optimus, pays
from roost.testing.builders import job, node, run, spec
from roost.testing.checks import validate
from roost.testing.conformance import PolicyConformance

WORKER = Resources(gpus=1, cpu_milli=2000)
SERVER = Resources(gpus=0, cpu_milli=2000)
BATCH = 64


class TestConformance(PolicyConformance):
    @pytest.fixture(
        params=[Optimus(), Optimus(placed=True), Bundles(), Bundles(order="tetris")],
        ids=["optimus", "placed", "bundles", "bundles:tetris"],
    )
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        found: Policy = request.param
        return found


def trained(
    most: int = 8, application: str = "net", epochs: float = 0.0, resize_s: float = 20.0
) -> JobSpec:
    return JobSpec(
        workers=Range(1, most),
        resources=WORKER,
        roles=(Role("ps", 1, SERVER, most=most),),
        application=application,
        training=Training(batch=BATCH, epochs=epochs),
        costs=Costs(resize_s=resize_s),
    )


def core_of(policy: Policy, nodes: int = 4, gpus: int = 4) -> Core:
    core = Core(policy, placer("even"))
    core.handle(
        *(NodeJoined(0.0, node(f"n{at}", gpus, cpu_milli=4000 * gpus)) for at in range(nodes))
    )
    return core


def tell(core: Core, name: str, now: float, *, scales: float, epochs: float = 5.0) -> None:
    """Measure a job at many sizes; its time per step falls to ``1 - scales`` of that of one."""
    for p, w in ((1, 1), (1, 4), (4, 4), (2, 8), (8, 8), (4, 2), (2, 2)):
        step_s = scales / w + (1 - scales) + 0.01 * w / p + 0.001 * (w + p)
        core.handle(
            Measured(now, run(name), w, step_s, servers=p, local_batch=BATCH // w, epochs=epochs)
        )


def start(core: Core, now: float, *names: str, of: JobSpec | None = None) -> None:
    actions = core.handle(*(Submitted(now, job(name), of or trained()) for name in names))
    core.handle(*(Started(now, action.run) for action in actions if isinstance(action, Launch)))


def sizes(core: Core) -> dict[str, Size]:
    return {one.job.id: held(one) for one in core.runs.values()}


def test_a_job_that_scales_gets_more_than_one_that_does_not() -> None:
    core = core_of(Optimus(probe_s=0))
    start(core, 1.0, "good", of=trained(application="good", epochs=100))
    start(core, 1.0, "poor", of=trained(application="poor", epochs=100))
    core.handle(Woke(600.0))
    core.handle(*(Started(601.0, one.id) for one in list(core.runs.values())))
    core.handle(*(Resized(601.0, one.id) for one in list(core.runs.values())))
    tell(core, "good", 602.0, scales=0.95)
    tell(core, "poor", 602.0, scales=0.05)
    core.handle(*(Progressed(700.0, run(name), 300.0, 1.0) for name in ("good", "poor")))
    core.handle(Woke(1200.0))
    validate(core)

    found = sizes(core)
    assert found["good"].workers > found["poor"].workers


def test_slots_begin_at_multiples_of_their_length() -> None:
    core = core_of(Optimus(probe_s=0))
    start(core, 1.0, "a")
    assert core.wake_at == 600.0

    assert core.handle(Submitted(100.0, job("b"), trained())) == []
    found = core.explain(job("b"))
    assert found is not None
    assert "in 500 s" in found.reason.text
    assert any(isinstance(action, Launch) for action in core.handle(Woke(600.0)))


def test_all_get_their_least_before_anybody_grows() -> None:
    core = core_of(Optimus(probe_s=0), nodes=1)
    start(core, 1.0, *"abcd")

    assert sizes(core) == dict.fromkeys("abcd", Size(1, 1))
    core.handle(Submitted(2.0, job("e"), trained()))
    core.handle(Woke(600.0))
    assert sizes(core) == dict.fromkeys("abcd", Size(1, 1))


def test_a_job_shrinks_to_let_another_in_and_is_never_stopped() -> None:
    core = core_of(Optimus(probe_s=0), nodes=1)
    start(core, 1.0, "a")
    before = sizes(core)["a"]
    assert before.workers > 1
    core.handle(*(Submitted(2.0, job(name), trained()) for name in "bcd"))
    actions = core.handle(Woke(600.0))

    assert [type(decision) for decision in core.decisions].count(Evict) == 0
    assert isinstance(core.decisions[0], Reshape)
    assert any(isinstance(action, Resize) and action.run == run("a") for action in actions)
    core.handle(Resized(620.0, run("a")))
    validate(core)
    assert len(core.runs) == 4


def test_what_is_gained_must_exceed_a_restart() -> None:
    core = core_of(Optimus(probe_s=0))
    start(core, 1.0, "a")
    one = core.runs[run("a")]
    old = held(one)
    times = [[1.0 / (p + w) for w in range(1, 9)] for p in range(1, 9)]

    def worth(work: float, price: float, size: Size) -> bool:
        gains = Gains(times)
        ask = Demand(Size(1, 1), Size(8, 8), (1000, 2000, 0), (0, 2000, 0), gains, work)
        return pays(one, ask, size, price, (16_000, 64_000, 0))

    larger, smaller = Size(old.servers, old.workers + 1), Size(1, 1)
    assert restart_s(one.job) == 20.0
    assert worth(1e5, 0.0, larger)
    assert not worth(10.0, 0.0, larger)
    assert not worth(1e5, 0.0, smaller)
    assert worth(100.0, 1e6, smaller)
    assert worth(1e9, float("inf"), smaller)


def test_no_job_changes_more_often_than_allowed() -> None:
    core = core_of(Optimus(probe_s=0, per_hour=1), nodes=2)
    start(core, 1.0, "a")
    changes = 0
    for slot in range(1, 7):
        now = 600.0 * slot
        core.handle(Submitted(now - 10, job(f"x{slot}"), trained()))
        for action in core.handle(Woke(now)):
            if isinstance(action, Launch):
                core.handle(Started(now + 1, action.run))
            elif isinstance(action, Resize):
                changes += action.run == run("a")
                core.handle(Resized(now + 1, action.run))
    assert changes <= 1


def test_jobs_without_servers_or_training_are_sized_too() -> None:
    core = core_of(Optimus(), nodes=2)
    start(core, 1.0, "a", of=spec(1, 3000.0, workers=(1, 6)))
    start(core, 1.0, "b", of=spec(1, 3000.0, workers=2))
    core.handle(Woke(600.0))
    core.handle(*(Started(601.0, one.id) for one in list(core.runs.values())))

    assert sizes(core) == {"a": Size(0, 6), "b": Size(0, 2)}


def test_the_first_job_of_an_application_tries_sizes_out_until_they_are_known() -> None:
    core = core_of(Optimus(probe_s=180.0), nodes=8)
    start(core, 1.0, "a")
    tried = []
    now = 600.0
    for _ in range(12):
        one = core.runs[run("a")]
        size = held(one)
        tried.append(size)
        step_s = 1.0 / size.workers + 0.05 * size.workers / size.servers
        core.handle(
            Measured(
                now,
                one.id,
                size.workers,
                step_s,
                servers=size.servers,
                local_batch=max(1, BATCH // size.workers),
            )
        )
        actions = core.handle(Woke(now))
        core.handle(*(Resized(now + 1, action.run) for action in actions))
        now += 200.0
    assert len(set(tried)) >= 5
    assert untried(core.jobs[job("a")])[0] in DESIGN  # it stops before all were tried


def test_errors_that_are_put_in_are_the_same_every_time_and_no_larger_than_said() -> None:
    core = core_of(Optimus(probe_s=0))
    start(core, 1.0, "a", of=trained(epochs=50))
    tell(core, "a", 2.0, scales=0.9)
    core.handle(Progressed(3.0, run("a"), 500.0, 1.0))
    one = core.jobs[job("a")]
    right = Outlook().demand(one, 10.0)
    wrong, again = (
        Outlook(speed_error=0.3, epochs_error=0.5, seed=7).demand(one, 10.0) for _ in "ab"
    )

    off = np.array(right.gains.times) / np.array(wrong.gains.times)
    assert 0.69 <= off.min() < off.max() <= 1.31
    assert 0.5 <= wrong.work / right.work <= 1.5
    assert wrong.work != right.work
    assert wrong.gains.times == again.gains.times
    assert wrong.work == again.work


def test_work_left_comes_from_epochs_then_losses_then_history() -> None:
    core = core_of(Optimus(probe_s=0))
    start(core, 1.0, "known", of=trained(epochs=50))
    tell(core, "known", 2.0, scales=0.9, epochs=10.0)
    core.handle(Progressed(2.0, run("known"), 1000.0, 0.001))
    outlook = Outlook()
    assert outlook.demand(core.jobs[job("known")], 2.0).work == pytest.approx(4000, rel=0.01)

    start(core, 600.0, "curve", of=trained(application="other"))
    core.handle(Started(600.0, run("curve")))
    tell(core, "curve", 601.0, scales=0.9)
    for epoch in range(1, 11):
        loss = 1 / (0.25 * epoch + 1) + 0.1
        core.handle(Measured(602.0, run("curve"), 1, 0.0, epochs=float(epoch), loss=loss))
    core.handle(Progressed(602.0, run("curve"), 1000.0, 0.001))
    left = outlook.demand(core.jobs[job("curve")], 602.0).work
    assert left / 100 == pytest.approx(18, abs=4)


@pytest.mark.parametrize(
    "wrong", [{"slot_s": 0.0}, {"per_hour": -1}, {"threshold": 0.0}, {"speed_error": 2.0}]
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        Optimus(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["drf", "fifo", "tetris"])
def test_bundles_are_dealt_out_in_an_order(order: str) -> None:
    core = core_of(Bundles(order), nodes=2)
    start(core, 1.0, "a", "b", of=trained(most=8, epochs=10))
    found = sizes(core)

    assert all(size.servers == size.workers for size in found.values())
    assert sum(size.workers for size in found.values()) == 8
    expected = {"drf": (4, 4), "fifo": (7, 1), "tetris": (7, 1)}[order]
    assert (found["a"].workers, found["b"].workers) == expected


def test_an_order_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        Bundles("lifo")


def test_sizes_count_one_role_as_servers() -> None:
    core = core_of(Optimus(probe_s=0))
    start(core, 1.0, "a")
    one = core.runs[run("a")]

    assert size_of(one.job, one.allocation) == held(one)
    assert held(one).servers == sum(p.workers for p in one.allocation.parts if p.role == "ps")
