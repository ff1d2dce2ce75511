"""Why a job is where it is, when it will start, and what would start it now."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from roost.core import (
    CancelRequested,
    Core,
    Exited,
    JobSpec,
    Level,
    NodeLost,
    Outcome,
    Plan,
    PoolChanged,
    QueueChanged,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.core.snapshot import digest
from roost.errors import NotFound
from roost.jobs import allowance
from roost.jobs import explain as explaining
from roost.jobs.backlog import ESTIMATE, NOT_TRIED
from roost.jobs.explain import explain, impossible, plan
from roost.placement import placer
from roost.policies import policy
from roost.testing.builders import core_with, job, node, queue, role, run, spec, started
from roost.testing.policies import Scripted

FIFO = policy("fifo")
FIRST_FIT = placer("first-fit")


def told(core: Core, name: str, now: float | None = None, **more: Any) -> dict[str, Any]:
    """What is explained; the core stays as it is, and JSON can carry it."""
    before = digest(core)
    now = core.now if now is None else now
    found = explain(core, job(name), core.policy, FIRST_FIT, now, **more)
    assert digest(core) == before
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def full(*specs: JobSpec, gpus: int = 4) -> Core:
    """A node that "a" fills for 100 s, and then those that wait: b, c, ..."""
    core = core_with(FIFO, node("n0", gpus))
    core.handle(Submitted(0.0, job("a"), spec(gpus, 100.0, user="ada")))
    core.handle(Started(0.0, run("a")))
    for name, wanted in zip("bcdefgh", specs, strict=False):
        core.handle(Submitted(10.0, job(name), wanted))
    return core


# -- waiting ---------------------------------------------------------------------------------------


def test_a_job_waits_for_those_ahead_of_it() -> None:
    core = full(spec(4, 50.0, user="ada"), spec(2, 50.0, user="bob"))

    found = told(core, "c", now=20.0)

    assert found["cause"] == "no-capacity"
    assert found["reason"] == "fewer than 2 GPUs are free"
    assert found["ahead"] == [{"job": "b", "gpus": 4.0, "user": "ada"}]
    assert (found["ahead_count"], found["state"], found["since"]) == (1, "queued", 10.0)
    assert (found["starts_at"], found["ends_at"]) == (150.0, 200.0)
    early, late = found["starts_between"]
    assert early == pytest.approx(20.0 + 80 * 0.7 + 50 * 0.7)
    assert late == pytest.approx(20.0 + 80 * 1.5 + 50 * 1.5)
    assert found["assumptions"] == ["no new jobs come, and nothing fails"]


def test_what_the_policy_said_goes_before_what_a_copy_knows() -> None:
    core = full(spec(1, 50.0))
    said = core.explain(job("b"))
    core.waiting.line_of(core.jobs[job("b")]).said = "something else"

    assert told(core, "b", said=said)["reason"] == "no GPU is free"
    assert told(core, "b")["reason"] == "something else"


def test_an_answer_that_would_cost_too_much_is_an_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = full(spec(4, 50.0, user="ada"), spec(2, 50.0, user="bob"))
    monkeypatch.setattr(allowance, "FEW", 0)
    monkeypatch.setattr(allowance, "ALLOWED_S", -1.0)

    found = told(core, "c", now=20.0)

    assert found["ahead"] == [{"job": "b", "gpus": 4.0, "user": "ada"}]
    assert (found["starts_at"], found["ends_at"]) == (150.0, 200.0)
    assert found["assumptions"][0] == ESTIMATE
    assert found["remedies"] == []
    asked = plan(core, spec(2, 50.0), FIFO, FIRST_FIT, 20.0)
    assert (asked["fits"], asked["assumptions"][0]) == (False, ESTIMATE)
    # Few jobs are simulated whatever that costs.
    monkeypatch.setattr(allowance, "FEW", 3)
    assert told(core, "c", now=20.0)["assumptions"] == ["no new jobs come, and nothing fails"]


def test_what_is_left_of_the_cost_goes_to_what_would_start_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = full(spec(4, 50.0, user="ada"))
    whole = told(core, "b", now=20.0)
    assert whole["remedies"]

    answers = iter([False])  # once the job's own start and end are known
    simulated = explaining._forecast
    monkeypatch.setattr(
        explaining, "_forecast", lambda *given, **how: simulated(*given, **{**how, "spent": bool})
    )
    monkeypatch.setattr(explaining, "allowance", lambda _core: lambda: next(answers, True))
    cut = told(core, "b", now=20.0)

    assert (cut["starts_at"], cut["ends_at"]) == (whole["starts_at"], whole["ends_at"])
    assert (cut["starts_between"], cut["remedies"]) == (None, [])
    assert cut["assumptions"] == [*whole["assumptions"], NOT_TRIED]


def test_a_job_that_never_starts_says_so() -> None:
    core = full(spec(8, 50.0))

    found = told(core, "b")

    assert (found["starts_at"], found["starts_between"]) == (None, [None, None])


def test_a_job_over_its_queues_limit_says_so() -> None:
    core = core_with(FIFO, node("n0", 4))
    core.handle(QueueChanged(0.0, queue("red", limit_milli=1000)))
    core.handle(QueueChanged(0.0, queue("blue")))
    core.handle(*(Submitted(0.0, job(name), spec(1, 50.0, queue="red")) for name in "ab"))
    core.handle(Started(0.0, run("a")))

    found = told(core, "b")

    assert found["cause"] == "over-quota"
    assert found["starts_at"] == 50.0
    assert found["remedies"] == [
        {
            "kind": "queue",
            "value": "blue",
            "change": "in queue blue instead of red",
            "starts": "now",
        }
    ]


# -- held by ---------------------------------------------------------------------------------------


def holders(found: dict[str, Any]) -> list[tuple[str, float | None]]:
    return [(holder["job"], holder["ends_at"]) for holder in found["held_by"]]


def test_the_first_in_line_is_told_who_holds_what_it_needs() -> None:
    core = core_with(policy("backfill"), node("n0", 2))
    core.handle(Submitted(0.0, job("long"), spec(1, 300.0, user="ada")))
    core.handle(Submitted(0.0, job("short"), spec(1, 100.0, user="bob")))
    core.handle(Started(0.0, run("long")), Started(0.0, run("short")))
    core.handle(Submitted(1.0, job("wants2"), spec(1, 50.0, workers=2, user="ada")))

    found = told(core, "wants2", now=20.0)

    assert (found["ahead"], found["starts_at"]) == ([], 300.0)
    assert found["held_by"] == [
        {"job": "short", "user": "bob", "gpus": 1.0, "ends_at": 100.0},
        {"job": "long", "user": "ada", "gpus": 1.0, "ends_at": 300.0},
    ]


def test_who_ends_later_than_anyone_looked_comes_last() -> None:
    core = core_with(policy("backfill"), node("n0", 7))
    for number in range(7):
        length = 1000.0 if number == 0 else 100.0 + number
        core.handle(Submitted(0.0, job(f"a{number}"), spec(1, length)))
        core.handle(Started(0.0, run(f"a{number}")))
    core.handle(Submitted(1.0, job("b"), spec(1, 10.0, workers=3)))

    ends = holders(told(core, "b"))
    assert ends == [(f"a{n}", 100.0 + n) for n in range(1, 6)]
    core.handle(*(Exited(2.0, run(f"a{n}"), Outcome.SUCCEEDED) for n in (3, 4, 5, 6)))
    assert core.jobs[job("b")].run is not None
    assert told(core, "b")["held_by"] == [], "it does not wait any more"


def test_only_who_holds_what_would_do_is_named() -> None:
    core = core_with(FIFO, node("n0", 1, kind="old"), node("n1", 1, kind="new"))
    core.handle(QueueChanged(0.0, queue("red", limit_milli=1000)))
    core.handle(Submitted(0.0, job("a"), spec(1, 100.0, kinds=("old",))))
    core.handle(Submitted(0.0, job("b"), spec(1, 100.0, kinds=("new",), queue="red")))
    core.handle(Started(0.0, run("a")), Started(0.0, run("b")))
    core.handle(Submitted(1.0, job("quota"), spec(1, 10.0, queue="red")))
    core.handle(Submitted(1.0, job("new"), spec(1, 10.0, kinds=("new",))))
    core.handle(Submitted(1.0, job("any"), spec(1, 10.0)))

    assert holders(told(core, "quota")) == [("b", 100.0)]
    assert holders(told(core, "new")) == [("b", 100.0)]
    assert [name for name, _ in holders(told(core, "any"))] == ["a", "b"]


def test_nobody_holds_what_is_free() -> None:
    core = free(3, spec(4))
    core.handle(Submitted(2.0, job("c"), spec(1)))

    assert holders(told(core, "b")) == [("a", 100.0)]
    assert told(core, "c")["cause"] == "not-its-turn"
    assert told(core, "c")["held_by"] == []


# -- remedies --------------------------------------------------------------------------------------


def changes(core: Core, name: str) -> list[str]:
    return [remedy["change"] for remedy in told(core, name)["remedies"]]


def free(gpus: int, wanted: JobSpec, **more: Any) -> Core:
    """A node of 8 GPUs with so many free, and a job "b" that waits."""
    core = core_with(FIFO, node("n0", 8, **more))
    if gpus < 8:
        core.handle(Submitted(0.0, job("a"), spec(8 - gpus, 100.0, user="ada")))
        core.handle(Started(0.0, run("a")))
    core.handle(Submitted(1.0, job("b"), wanted))
    return core


def test_fewer_workers_or_fewer_gpus_would_do() -> None:
    assert changes(free(3, spec(1, workers=4)), "b") == [
        "with 3 instead of 4 workers",
        "with 0.5 instead of 1 GPU per worker",
    ]
    assert changes(free(3, spec(4)), "b") == ["with 3 instead of 4 GPUs per worker"]
    assert changes(free(3, spec(2, workers=2)), "b") == [
        "with 1 instead of 2 workers",
        "with 1 instead of 2 GPUs per worker",
    ]


def test_the_smallest_change_comes_first() -> None:
    core = free(3, spec(4, user="ada", workers=1))

    assert changes(core, "b") == [
        "with 3 instead of 4 GPUs per worker",
        "after cancelling your job a, which holds 5 GPUs",
    ]


def test_an_elastic_run_is_to_be_scaled_before_it_is_cancelled() -> None:
    core = core_with(policy("alnair"), node("n0", 4))
    elastic = spec(1, workers=(1, 4), user="ada", preemptible=False)
    started(core, core.handle(Submitted(0.0, job("el"), elastic)), at=1.0)
    core.handle(Woke(1000.0))
    core.policy = FIFO
    core.handle(Submitted(1001.0, job("b"), spec(2, user="ada")))

    assert told(core, "b")["remedies"][0] == {
        "kind": "scale",
        "value": ["el", "2"],
        "change": "after: roost scale el 2 (it runs with 4 workers)",
        "starts": "now",
    }


@pytest.mark.parametrize(
    ("name", "limit", "other", "expected"),
    [
        ("roost", None, 3, "runs with 1 worker of at most 4: there is no room for one more"),
        ("roost", 1000, 0, "runs with 1 worker of at most 4: its queue team is at its limit"),
        ("fifo", None, 0, "you can: roost scale el 4"),
        ("roost", None, 0, "runs with 4 workers"),
    ],
)
def test_an_elastic_run_is_told_why_it_has_no_more(
    name: str, limit: int | None, other: int, expected: str
) -> None:
    core = core_with(policy(name), node("n0", 4))
    core.handle(QueueChanged(0.0, queue("team", limit_milli=limit)))
    if other:
        started(core, core.handle(Submitted(0.0, job("b"), spec(other))), at=0.0)
    elastic = spec(1, workers=(1, 4), queue="team")
    started(core, core.handle(Submitted(1.0, job("el"), elastic)), at=1.0)

    assert told(core, "el")["reason"].endswith(expected)


def test_nobody_is_told_to_cancel_the_jobs_of_others() -> None:
    assert changes(free(0, spec(1, user="bob")), "b") == []
    assert changes(free(0, spec(1)), "b") == []
    assert changes(free(0, spec(1, user="ada")), "b") == [
        "after cancelling your job a, which holds 8 GPUs"
    ]


def own(*gpus: float, wanted: JobSpec) -> Core:
    """A full node of which ada's jobs a0, a1, ... hold so much; her job "b" waits."""
    core = core_with(FIFO, node("n0", int(sum(gpus))))
    for number, held in enumerate(gpus):
        core.handle(Submitted(0.0, job(f"a{number}"), spec(held, 100.0, user="ada")))
        core.handle(Started(0.0, run(f"a{number}")))
    core.handle(Submitted(1.0, job("b"), wanted))
    return core


def test_several_jobs_of_the_own_may_be_in_the_way() -> None:
    pair = own(1, 1, wanted=spec(1, workers=2, user="ada"))
    assert told(pair, "b")["remedies"] == [
        {
            "kind": "cancel",
            "value": ["a0", "a1"],
            "change": "after cancelling your jobs a0 and a1, which hold 2 GPUs together",
            "starts": "now",
        }
    ]
    assert changes(own(1, 2, 1, wanted=spec(2, user="ada")), "b") == [
        "after cancelling your job a1, which holds 2 GPUs"
    ]
    assert changes(own(1, 2, 1, wanted=spec(3, user="ada")), "b") == [
        "after cancelling your jobs a0 and a1, which hold 3 GPUs together"
    ]
    assert changes(own(*(1,) * 6, wanted=spec(5, user="ada")), "b") == [
        "after cancelling your jobs a1, a2, a3, a4 and a5, which hold 5 GPUs together"
    ]
    assert changes(own(1, wanted=spec(1, user="ada")), "b") == [
        "after cancelling your job a0, which holds 1 GPU"
    ]
    assert changes(own(*(1,) * 6, wanted=spec(5, user="bob")), "b") == []


def test_who_would_take_the_place_has_to_go_as_well() -> None:
    # Nobody knows when a0 and a1 end, so nothing is reserved: c and d go before b if one leaves.
    for user, expected in (
        (
            "ada",
            (
                "after cancelling your jobs a0 and a1, which hold 2 GPUs together; "
                "and first c and d, which would go before it"
            ),
        ),
        ("bob", None),
    ):
        core = core_with(policy("backfill"), node("n0", 2))
        core.handle(*(Submitted(0.0, job(name), spec(1, user="ada")) for name in ("a0", "a1")))
        core.handle(*(Started(0.0, run(name)) for name in ("a0", "a1")))
        core.handle(Submitted(1.0, job("b"), spec(2, user="ada")))
        core.handle(Submitted(2.0, job("c"), spec(0.5, user="ada")))
        core.handle(Submitted(2.0, job("d"), spec(1, user=user)))

        found = told(core, "b")["remedies"]

        told_to_cancel = [remedy for remedy in found if remedy["kind"] == "cancel"]
        if expected is None:
            assert told_to_cancel == [], "jobs of others would go first"
        else:
            assert [remedy["change"] for remedy in told_to_cancel] == [expected]
            for name in told_to_cancel[0]["value"]:
                core.handle(CancelRequested(3.0, job(name)))
            core.handle(*(Exited(4.0, run(name), Outcome.STOPPED) for name in ("a0", "a1")))
            assert core.jobs[job("b")].run is not None


def test_a_smaller_share_would_do() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(0.6, 100.0)))
    core.handle(Started(0.0, run("a")))
    core.handle(Submitted(1.0, job("b"), spec(0.5)))
    core.handle(Submitted(1.0, job("c"), spec(1)))

    assert changes(core, "b") == ["with 0.25 instead of 0.5 GPU per worker"]
    assert changes(core, "c") == [], "b goes first"


def test_another_kind_or_any_place_would_do() -> None:
    core = core_with(FIFO, node("n0", 2, kind="old"), node("n1", 1, kind="new"))
    core.handle(Submitted(0.0, job("a"), spec(1, kinds=("new",))))
    core.handle(Submitted(1.0, job("b"), spec(1, kinds=("new", "newest"))))

    assert changes(core, "b") == ["on GPUs of kind old instead of new|newest"]


def test_a_gang_need_not_stay_together() -> None:
    core = core_with(FIFO, node("n0", 2, sockets=2))
    core.handle(Submitted(1.0, job("b"), spec(1, workers=2, within=Level.SOCKET)))

    assert changes(core, "b")[0] == "without asking for all workers within one socket"


def test_less_memory_or_fewer_cpus_would_do() -> None:
    small = node("n0", 8, cpu_milli=8000, memory_mib=1000)
    for wanted, change in (
        (spec(1, memory_mib=600), "with 300 MiB instead of 600 MiB of memory per worker"),
        (spec(1, cpu_milli=6000), "with 3 instead of 6 CPUs per worker"),
    ):
        core = core_with(FIFO, small)
        core.handle(Submitted(0.0, job("a"), spec(1, cpu_milli=4500, memory_mib=600)))
        core.handle(Submitted(1.0, job("b"), wanted))

        assert changes(core, "b") == [change]


def test_room_does_not_help_a_job_whose_turn_it_is_not() -> None:
    core = free(3, spec(4))
    core.handle(Submitted(2.0, job("c"), spec(1)))

    found = told(core, "c")

    assert found["cause"] == "not-its-turn"
    assert found["remedies"] == []


def test_every_remedy_really_starts_the_job() -> None:
    core = free(3, spec(2, workers=2))
    core.handle(CancelRequested(2.0, job("b")))

    for remedy in told(free(3, spec(2, workers=2)), "b")["remedies"]:
        wanted = (
            spec(2, workers=remedy["value"])
            if remedy["kind"] == "workers"
            else spec(remedy["value"], workers=2)
        )
        core.handle(Submitted(3.0, job(f"as {remedy['kind']}"), wanted))
        assert core.jobs[job(f"as {remedy['kind']}")].run is not None
        core.handle(CancelRequested(3.0, job(f"as {remedy['kind']}")))
        core.handle(Exited(3.0, run(f"as {remedy['kind']}"), Outcome.STOPPED))


def test_a_large_gang_is_made_smaller_in_larger_steps() -> None:
    core = core_with(FIFO, node("n0", 24))
    core.handle(Submitted(1.0, job("b"), spec(1, workers=64)))

    assert changes(core, "b")[0] == "with 16 instead of 64 workers"


# -- not waiting -----------------------------------------------------------------------------------


def test_a_running_job_says_since_when() -> None:
    core = full()

    found = told(core, "a", now=30.0)

    assert (found["cause"], found["reason"], found["since"]) == (
        "running",
        "runs with 1 worker",
        0.0,
    )
    assert (found["starts_at"], found["ends_at"]) == (0.0, 100.0)
    assert found["starts_between"] is None
    assert found["remedies"] == []


def test_a_starting_job_says_so() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 100.0)))

    found = told(core, "a", now=5.0)

    assert (found["cause"], found["reason"]) == ("starting", "its workers are being started")
    assert found["starts_at"] == 5.0


def _do(*steps: Callable[[Plan], object]) -> Core:
    """a and b run; then the policy takes these steps."""
    script = Scripted()
    core = core_with(script, node("n0", 2))
    core.handle(
        Submitted(0.0, job("a"), spec(1, 100.0, workers=(1, 2))),
        Submitted(0.0, job("b"), spec(1, 100.0)),
        Submitted(0.0, job("c"), spec(1, 100.0)),
    )
    begun = script.at(
        core,
        0.0,
        lambda plan: plan.place(plan.jobs[job("a")]),
        lambda plan: plan.place(plan.jobs[job("b")]),
    )
    started(core, begun, 1.0)
    script.at(core, 2.0, *steps)
    return core


def test_a_job_with_a_reserved_place_says_for_whom_it_waits() -> None:
    core = _do(
        lambda plan: plan.evict(plan.runs[run("b")], "makes room for c"),
        lambda plan: plan.place(plan.jobs[job("c")]),
    )

    reserved, leaving = told(core, "c"), told(core, "b")

    assert reserved["cause"] == "starting"
    assert reserved["reason"] == "a place is reserved for it, as soon as 1 other job left"
    assert reserved["ahead"] == [{"job": "b", "gpus": 1.0, "user": ""}]
    assert leaving["cause"] == "leaving"
    assert leaving["reason"] == "its run is being stopped: makes room for c"


def test_a_job_that_changes_its_size_says_so() -> None:
    core = _do(
        lambda plan: plan.evict(plan.runs[run("b")], "makes room"),
        lambda plan: plan.resize(plan.runs[run("a")], 2),
    )

    found = told(core, "a")

    assert found["cause"] == "running"
    assert found["reason"] == "runs, and is being changed from 1 to 2 workers"


def test_a_held_job_says_how_it_goes_on() -> None:
    core = full()
    core.handle(SuspendRequested(5.0, job("a")))
    assert told(core, "a")["cause"] == "leaving"
    core.handle(Suspended(6.0, run("a"), 5.0))

    found = told(core, "a")

    assert (found["cause"], found["state"]) == ("held", "suspended")
    assert found["reason"].endswith("roost resume a")
    assert found["starts_at"] is None


def test_a_job_that_backs_off_says_when_it_tries_again() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(0.0, job("a"), spec(1, 50.0, max_retries=3)))
    core.handle(Started(0.0, run("a")))
    core.handle(Exited(10.0, run("a"), Outcome.FAILED, delay_s=30.0))

    found = told(core, "a", now=20.0)

    assert (found["cause"], found["state"]) == ("back-off", "queued")
    assert found["reason"] == "its last run failed (1 of 4 tries); the next one comes in 20 s"
    assert (found["not_before"], found["starts_at"], found["ends_at"]) == (40.0, 40.0, 90.0)


def test_a_job_that_is_over_says_how() -> None:
    core = full(spec(1))
    core.handle(CancelRequested(20.0, job("b")))
    core.handle(Exited(30.0, run("a"), Outcome.SUCCEEDED))

    assert told(core, "a")["reason"] == "succeeded after 1 run"
    assert told(core, "b")["reason"] == "cancelled before it ran"
    assert [told(core, name)["cause"] for name in "ab"] == ["over", "over"]
    assert told(core, "a")["since"] == 30.0


def test_a_cancelled_job_is_leaving() -> None:
    core = full()
    core.handle(CancelRequested(20.0, job("a")))

    assert told(core, "a")["cause"] == "leaving"
    assert told(core, "a")["reason"] == "its run is being stopped: cancelled"


def test_nobody_knows_a_job_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="no job 'z'"):
        told(full(), "z")


# -- plans -----------------------------------------------------------------------------------------


def planned(core: Core, wanted: JobSpec, now: float | None = None) -> dict[str, Any]:
    before = digest(core)
    found = plan(core, wanted, core.policy, FIRST_FIT, core.now if now is None else now)
    assert digest(core) == before
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_a_job_that_fits_would_start_at_once() -> None:
    found = planned(free(3, spec(1, 10.0)), spec(2, 60.0), now=5.0)

    assert found == {
        "fits": True,
        "never": False,
        "reason": "there is room for it now",
        "starts_at": 5.0,
        "ends_at": 65.0,
        "placement": [{"node": "n0", "gpus": [6, 7], "share": 1.0, "workers": 1, "role": "worker"}],
        "assumptions": ["no new jobs come, and nothing fails"],
        "notes": [],
    }


def test_a_job_that_has_to_wait_is_told_why_until_when_and_where() -> None:
    found = planned(full(), spec(4, 60.0), now=20.0)

    assert (found["fits"], found["never"]) == (False, False)
    assert found["reason"] == "fewer than 4 GPUs are free"
    assert (found["starts_at"], found["ends_at"]) == (100.0, 160.0)
    assert found["placement"][0]["gpus"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (
            spec(8),
            (
                "it asks for 8 GPUs; there is no such place, even if nothing else ran: "
                "n0 has 4 GPUs (gpu)"
            ),
        ),
        (spec(1, workers=5), "it asks for 5 workers with 1 GPU each; there is no such place"),
        (spec(0.5, workers=9), "it asks for 9 workers with 0.5 GPU each; there is no such place"),
        (
            spec(1, kinds=("A100",)),
            "it asks for 1 GPU of kind A100; there is no A100 here, only gpu",
        ),
        (
            spec(1, kinds=("A100", "H100")),
            "it asks for 1 GPU of kind A100|H100; there is no A100 or H100 here, only gpu",
        ),
        (
            spec(1, memory_mib=476838),
            (
                "it asks for 1 GPU and 466 GiB of memory; there is no such place, even if "
                "nothing else ran: n0 has 4 GPUs (gpu) and 24 GiB of memory"
            ),
        ),
        (
            spec(0, cpu_milli=64000, memory_mib=512),
            (
                "it asks for 64 CPUs and 512 MiB of memory; there is no such place, even if "
                "nothing else ran: n0 has 4 GPUs (gpu), 8 CPUs and 24 GiB of memory"
            ),
        ),
        (
            spec(1, roles=(role("ps", 1, 4),)),
            "it asks for 1 GPU, and for 1 ps with 4 GPUs; there is no such place",
        ),
        (
            spec(1, roles=(role("ps", 2, 2),)),
            "it asks for 1 GPU, and for 2 x ps with 2 GPUs each; there is no such place",
        ),
        (
            spec(2, workers=2, within=Level.SOCKET),
            "it asks for 2 workers with 2 GPUs each, within one socket; there is no such place",
        ),
        (spec(2, queue="red"), "it asks for 2 GPUs, its queue 'red' is limited to 1"),
    ],
)
def test_a_job_that_can_never_run_is_told_so(wanted: JobSpec, reason: str) -> None:
    core = core_with(FIFO, node("n0", 4, sockets=2, cpu_milli=8000, memory_mib=24 * 1024))
    core.handle(QueueChanged(0.0, queue("red", limit_milli=1000)))

    found = planned(core, wanted)

    assert (found["fits"], found["never"], found["starts_at"]) == (False, True, None)
    assert found["reason"].startswith(reason)
    assert found["reason"] == impossible(core, wanted, FIRST_FIT)


def test_of_several_nodes_the_largest_counts() -> None:
    nodes = [node("n0", 4, kind="old", cpu_milli=8000), node("n1", 2, kind="new", cpu_milli=16000)]
    core = core_with(FIFO, *nodes)

    assert planned(core, spec(1, cpu_milli=32000))["reason"] == (
        "it asks for 1 GPU and 32 CPUs; there is no such place, even if nothing else ran: "
        "2 nodes have 6 GPUs (new, old), each at most 4 GPUs and 16 CPUs"
    )
    assert planned(core, spec(1, kinds=("newest",)))["reason"].endswith(
        "there is no newest here, only new and old"
    )


def test_only_the_nodes_that_match_count() -> None:
    core = core_with(FIFO, node("n0", 4), node("n1", 8), node("n2", 8))
    core.handle(PoolChanged(0.0, "old", frozenset({node("n0").id})))
    core.handle(PoolChanged(0.0, "none", frozenset()))

    assert planned(core, spec(8, pool="old"))["reason"] == (
        "it asks for 8 GPUs; there is no such place, even if nothing else ran: "
        "n0 has 4 GPUs (gpu); 2 other nodes do not match what it asks for"
    )
    assert planned(core, spec(8, pool="none"))["reason"] == (
        "it asks for 8 GPUs; no node matches what it asks for"
    )


def test_what_is_broken_or_gone_may_come_back() -> None:
    core = core_with(FIFO, node("n0", 4))
    core.handle(NodeLost(1.0, node("n0").id))

    found = planned(core, spec(4))

    assert (found["fits"], found["never"], found["starts_at"]) == (False, False, None)
    assert found["assumptions"][1:] == [
        "1 node out of service: taken to stay so",
        "no new jobs come, and nothing fails",
    ]


def test_an_empty_cluster_runs_nothing() -> None:
    core = Core(FIFO, FIRST_FIT)
    core.handle(Woke(0.0))

    assert planned(core, spec(1))["reason"] == "the cluster has no nodes"


def test_that_all_is_taken_does_not_make_a_job_impossible() -> None:
    assert impossible(full(), spec(4), FIRST_FIT) is None
