"""Jobs with servers under roost: they start at once, the nearly done count more, changes pay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roost.core import (
    Core,
    Costs,
    Evict,
    JobSpec,
    Launch,
    Measured,
    NodeJoined,
    Plan,
    Policy,
    Progressed,
    Range,
    Resize,
    Resized,
    Resources,
    Role,
    Started,
    Submitted,
    Woke,
)
from roost.core.spec import Training
from roost.placement import placer
from roost.policies.fifo import fifo
from roost.policies.kit.parameter_servers import sizing
from roost.policies.kit.parameter_servers.gains import Size
from roost.policies.kit.parameter_servers.sizing import ParameterServerSizing, servers_vary
from roost.policies.kit.parameter_servers.slots import held
from roost.testing.builders import job, node, run, spec
from roost.testing.checks import validate
from roost.testing.conformance import PolicyConformance

WORKER = Resources(gpus=1, cpu_milli=2000)
SERVER = Resources(gpus=0, cpu_milli=2000)
BATCH = 64


class TestConformance(PolicyConformance):
    @pytest.fixture
    def policy(self) -> Policy:
        return ParameterServerSizing()


def trained(most: int = 8, application: str = "net", resize_s: float = 20.0) -> JobSpec:
    return JobSpec(
        workers=Range(1, most),
        resources=WORKER,
        roles=(Role("ps", 1, SERVER, most=most),),
        application=application,
        training=Training(batch=BATCH, epochs=100.0),
        costs=Costs(resize_s=resize_s),
    )


def core_of(policy: Policy, nodes: int = 4) -> Core:
    core = Core(policy, placer("even"))
    core.handle(*(NodeJoined(0.0, node(f"n{at}", 4, cpu_milli=16_000)) for at in range(nodes)))
    return core


def start(core: Core, now: float, *names: str, of: JobSpec | None = None) -> None:
    actions = core.handle(*(Submitted(now, job(name), of or trained()) for name in names))
    core.handle(*(Started(now, action.run) for action in actions if isinstance(action, Launch)))


def settle(core: Core, now: float) -> None:
    """Whatever is under way is done."""
    for one in list(core.runs.values()):
        core.handle(Started(now, one.id), Resized(now, one.id))


def tell(core: Core, name: str, now: float, *, scales: float, epochs: float) -> None:
    """Measure a job at many sizes, ``epochs`` of its hundred being done."""
    for p, w in ((1, 1), (1, 4), (4, 4), (2, 8), (8, 8), (4, 2), (2, 2)):
        step_s = scales / w + (1 - scales) + 0.01 * w / p + 0.001 * (w + p)
        core.handle(
            Measured(now, run(name), w, step_s, servers=p, local_batch=BATCH // w, epochs=epochs)
        )
    core.handle(Progressed(now, run(name), 1000.0 * epochs, 1.0))


def sizes(core: Core) -> dict[str, Size]:
    return {one.job.id: held(one) for one in core.runs.values()}


def test_a_job_starts_at_once_where_there_is_room() -> None:
    core = core_of(ParameterServerSizing(probe_s=0))
    start(core, 1.0, "a")
    start(core, 17.0, "b")

    assert set(sizes(core)) == {"a", "b"}


def test_others_shrink_at_once_for_one_that_comes_and_nobody_is_stopped() -> None:
    core = core_of(ParameterServerSizing(probe_s=0), nodes=1)
    start(core, 1.0, "a")
    assert sizes(core)["a"].workers > 1

    actions = core.handle(*(Submitted(2.0, job(name), trained()) for name in "bcd"))

    assert any(isinstance(action, Resize) and action.run == run("a") for action in actions)
    assert not any(isinstance(decision, Evict) for decision in core.decisions)
    core.handle(Resized(22.0, run("a")))
    validate(core)
    assert set(sizes(core)) == set("abcd")


def race(policy: Policy) -> dict[str, Size]:
    """The sizes of two jobs that are alike, but for what is left of them."""
    core = core_of(policy, nodes=1)
    start(core, 1.0, "short", "long")
    tell(core, "long", 2.0, scales=0.97, epochs=2.0)
    tell(core, "short", 2.0, scales=0.97, epochs=60.0)
    now = 61.0
    for _ in range(6):
        settle(core, now)
        core.handle(Woke(now))
        now += 60.0
    validate(core)
    return sizes(core)


def test_of_two_alike_the_one_with_less_left_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "_RANK_POWER", 1.0)
    found = race(ParameterServerSizing(probe_s=0))
    assert found["short"].workers > found["long"].workers


def test_without_ranks_they_get_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "_RANK_POWER", 0.0)
    found = race(ParameterServerSizing(probe_s=0))
    assert abs(found["short"].workers - found["long"].workers) <= 1


def grown(resize_s: float) -> tuple[Core, Size, Size]:
    """A job that turns out to scale well, before and after that is known."""
    core = core_of(ParameterServerSizing(probe_s=0))
    start(core, 1.0, "a", of=trained(most=8, resize_s=resize_s))
    before = sizes(core)["a"]
    tell(core, "a", 2.0, scales=0.99, epochs=2.0)
    core.handle(Woke(61.0))
    return core, before, sizes(core)["a"]


def test_a_change_has_to_pay_for_its_restart_within_the_horizon() -> None:
    _, before, after = grown(resize_s=10.0)
    assert after.workers > before.workers

    _, before, after = grown(resize_s=3000.0)
    assert after == before


def test_who_waits_is_told_what_for() -> None:
    core = core_of(ParameterServerSizing(probe_s=0), nodes=1)
    start(core, 1.0, *"abcd")
    core.handle(Submitted(2.0, job("e"), trained()))

    found = core.explain(job("e"))

    assert found is not None
    assert "no room yet for 1 servers and 1 workers" in found.reason.text


def test_the_first_of_an_application_tries_sizes_out() -> None:
    core = core_of(ParameterServerSizing(probe_s=60.0), nodes=8)
    start(core, 1.0, "a")
    tried = set()
    for now in range(62, 1000, 62):
        one = core.runs[run("a")]
        size = held(one)
        tried.add(size)
        step_s = 1.0 / size.workers + 0.05 * size.workers / size.servers
        local = max(1, BATCH // size.workers)
        core.handle(
            Measured(now, one.id, size.workers, step_s, servers=size.servers, local_batch=local)
        )
        core.handle(Woke(now))
        settle(core, now + 1.0)
    assert len(tried) >= 5


def mixed() -> Callable[[Plan], None]:
    """Fifo for others, ours for those with servers."""

    def policy(plan: Plan) -> None:
        jobs = [one for one in plan.jobs.values() if not one.state.over]
        ParameterServerSizing().decide(plan, [one for one in jobs if servers_vary(one)])
        for one in plan.pending:
            if not servers_vary(one):
                plan.place(one)

    return policy


def test_only_jobs_with_elastic_servers_are_ours() -> None:
    core = core_of(fifo)
    core.handle(Submitted(1.0, job("a"), trained()), Submitted(1.0, job("b"), spec(1)))

    assert servers_vary(core.jobs[job("a")])
    assert not servers_vary(core.jobs[job("b")])


def test_others_keep_what_they_hold() -> None:
    core = core_of(mixed(), nodes=2)
    start(core, 1.0, "other", of=spec(3))
    start(core, 2.0, "a", "b")
    for now in (70.0, 140.0, 210.0):
        settle(core, now)
        core.handle(Woke(now))
    validate(core)

    found = sizes(core)
    assert found["other"] == Size(0, 1)
    assert set(found) == {"other", "a", "b"}
    assert found["a"].workers + found["b"].workers <= 5


def test_room_is_left_for_others_who_wait() -> None:
    core = core_of(mixed(), nodes=1)
    start(core, 1.0, "a")
    tell(core, "a", 2.0, scales=0.99, epochs=2.0)
    core.handle(Woke(61.0))
    settle(core, 82.0)
    assert sizes(core)["a"].workers == 4
    core.handle(Submitted(90.0, job("other"), spec(2)))
    now = 150.0
    for _ in range(4):
        core.handle(Woke(now))
        settle(core, now + 20)
        now += 60.0
    validate(core)

    found = sizes(core)
    assert "other" in found
    assert found["a"].workers <= 2
