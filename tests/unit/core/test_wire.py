"""JSON for events, decisions, actions and specs: there and back, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.core import (
    Action,
    Adopted,
    Allocation,
    CancelRequested,
    Costs,
    Decision,
    Deleted,
    Event,
    Evict,
    Exited,
    GpuFailed,
    GpuRestored,
    JobSpec,
    Launch,
    Level,
    MaintenanceCancelled,
    MaintenancePlanned,
    Measured,
    Migrate,
    MigrateRequested,
    NodeChanged,
    NodeCordoned,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    NodeUncordoned,
    Outcome,
    Part,
    Place,
    PoolChanged,
    Progressed,
    Protected,
    Qos,
    QueueChanged,
    QueueDeleted,
    QueueId,
    Range,
    Reclaim,
    Reshape,
    Resize,
    Resized,
    Resume,
    ResumeRequested,
    Role,
    RunId,
    ScaleRequested,
    SetAside,
    Shrank,
    Started,
    Stop,
    Submitted,
    Suspend,
    Suspended,
    SuspendRequested,
    Training,
    Way,
    Woke,
)
from roost.core.cells.claim import CellClaim
from roost.core.wire import (
    canonical,
    decode,
    decode_decision,
    decode_event,
    encode,
    encode_decision,
    encode_event,
)
from roost.errors import Fatal, InvalidSpec
from roost.testing.builders import held, job, node, queue, role, run, shared, spec
from roost.testing.strategies import nodes, queues, specs

NODE = NodeId("n0")
RICH = spec(
    2,
    500.0,
    workers=(2, 4),
    gpu_memory_mib=1000,
    qos=Qos.BEST_EFFORT,
    way=Way.SPATIAL,
    kinds=("a", "b"),
    cpu_milli=4000,
    memory_mib=100,
    roles=(role("ps", 2, 0.5),),
    queue="red",
    priority=-3,
    user="ada",
    application="vision",
    costs=Costs(checkpoint_every_s=math.inf, restart_s=5.0),
    min_run_s=1.5,
    max_retries=3,
    preemptible=False,
    within=Level.SWITCH,
    pool="new",
)
LEARNS = replace(
    RICH,
    roles=(Role("ps", 1, RICH.resources, 4),),
    training=Training(
        256,
        batch_max=4096,
        epochs=0.5,
        local_min=8,
        local_max=(("A100", 512), ("", 64)),
        alone=(("A100", 812.5),),
        pipeline=2,
        micro=4,
    ),
    rates=(("A100", 3.5), ("T4", 1.0)),
)
EVENTS: tuple[Event, ...] = (
    NodeJoined(0.0, node("n0", 4, kind="a", sockets=2, switch="s")),
    NodeLost(1.0, NODE),
    NodeChanged(1.0, node("n0", 8, kind="b")),
    PoolChanged(1.0, "new", frozenset({NODE, NodeId("n1")})),
    PoolChanged(1.0, "new", frozenset()),
    PoolChanged(1.0, "new", None),
    NodeCordoned(1.0, NODE, "new memory", "ada", drain=True),
    NodeUncordoned(1.0, NODE),
    MaintenancePlanned(1.0, NODE, 5.0, 6.0, "new disks", "ada"),
    MaintenanceCancelled(1.0, NODE, 5.0),
    GpuFailed(1.0, NODE, 3),
    GpuRestored(1.0, NODE, 0),
    QueueChanged(2.0, queue("red", quota_milli=0, limit_milli=8000, weight=2.5)),
    QueueDeleted(2.0, QueueId("red")),
    Submitted(1731668370.123456, job("a"), RICH),
    Submitted(1.0, job("a"), LEARNS),
    Adopted(2.0, job("a"), RICH),
    Adopted(2.0, job("a"), RICH, held=True, not_before=5.0, submitted_at=1.0),
    Adopted(2.0, job("a"), RICH, held("n0", (1,)), running=False, attempts=2, failures=1),
    Adopted(2.0, job("a"), RICH, held("n0", (1,)), attempts=1, done_s=0.5, started_at=1.5),
    Protected(2.0, job("a"), "its budget allows nothing"),
    Protected(2.0, job("a"), ""),
    CancelRequested(3.0, job("a")),
    SuspendRequested(3.0, job("a")),
    ResumeRequested(3.0, job("a")),
    ScaleRequested(3.0, job("a"), Range(1, 4)),
    MigrateRequested(3.0, job("a"), NODE),
    MigrateRequested(3.0, job("a")),
    Deleted(3.0, job("a")),
    Started(4.0, run("a", 2)),
    Started(4.0, run("a", 2), took_s=1.5),
    Progressed(5.0, run("a"), 0.1 + 0.2, 1e-9),
    Measured(5.0, run("a"), 2, 0.25),
    Measured(5.0, run("a"), 2, 0.25, memory_mib=700, noise=1.5e3),
    Measured(5.0, run("a"), 2, 0.0, busy=0.5),
    Measured(
        *(5.0, run("a"), 6, 0.25),
        kind="A100",
        nodes=2,
        servers=3,
        local_batch=64,
        sync_s=0.0,
        epochs=0.5,
        loss=-1.5,
    ),
    Resized(6.0, run("a")),
    Resized(6.0, run("a"), took_s=2.0, pause_s=0.1),
    Shrank(6.5, run("a"), held("n0", (1,)), "worker 0 was killed"),
    Shrank(6.5, run("a"), held("n0", (1,))),
    Suspended(7.0, run("a"), 1.0),
    Suspended(7.0, run("a"), 1.0, took_s=0.0),
    Exited(8.0, run("a"), Outcome.LOST),
    Exited(8.0, run("a"), Outcome.FAILED, 3.0, final=True, delay_s=0.5),
    Woke(9.0),
)
DECISIONS: tuple[Decision, ...] = (
    Place(job("a"), held("n0", range(4), workers=2)),
    Reshape(job("a"), shared("n0", 1, 250, workers=2)),
    Evict(job("a"), "to make room"),
    SetAside(job("a"), "to make room"),
    Reclaim(job("a"), (CellClaim("n0", "node:A100"),)),
)
ACTIONS: tuple[Action, ...] = (
    Launch(run("a"), RICH, held("n0", (0,)), Submitted(1.0, job("a"), RICH)),
    Resume(run("a"), held("n0", ())),
    Resize(run("a"), held("n0", (0,)), Woke(1.0)),
    Migrate(run("a"), held("n0", (0,))),
    Suspend(run("a"), "why"),
    Stop(run("a"), "why"),
)


def there_and_back(data: Any) -> Any:
    return json.loads(canonical(data))


def test_every_kind_of_event_decision_and_action_is_tried_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    assert {type(decision) for decision in DECISIONS} == set(get_args(Decision))
    assert {type(action) for action in ACTIONS} == set(get_args(Action))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_come_back(event: Event) -> None:
    assert decode_event(there_and_back(encode_event(event))) == event
    assert encode_event(event)["type"] == type(event).__name__


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: type(decision).__name__)
def test_decisions_come_back(decision: Decision) -> None:
    assert decode_decision(there_and_back(encode_decision(decision))) == decision


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
def test_actions_come_back_with_their_cause(action: Action) -> None:
    again = decode(Action, there_and_back(encode(action)))

    assert (again, again.cause) == (action, action.cause)


def test_an_event_is_an_object_of_what_is_not_as_usual() -> None:
    assert encode(Exited(8.0, run("a"), Outcome.LOST)) == {
        "type": "Exited",
        "time": 8.0,
        "run": {"job": "a", "attempt": 1},
        "outcome": "lost",
    }
    assert encode(spec(0.5, costs=Costs(checkpoint_every_s=math.inf), within=Level.NODE)) == {
        "resources": {"share_milli": 500},
        "costs": {"checkpoint_every_s": "inf"},
        "within": "node",
    }
    assert encode((RunId(job("a"), 1), 2, None)) == [{"job": "a", "attempt": 1}, 2, None]


@given(st.floats(allow_nan=False))
def test_numbers_come_back_to_the_last_bit(number: float) -> None:
    event = decode_event(
        there_and_back(encode_event(Exited(number, run("a"), Outcome.LOST, number)))
    )

    assert isinstance(event, Exited)
    assert (event.time.hex(), event.saved_s.hex()) == (number.hex(), number.hex())


@given(specs())
def test_specs_come_back(wanted: JobSpec) -> None:
    assert decode(JobSpec, there_and_back(encode(wanted))) == wanted


def test_journals_from_before_pipelines_are_read() -> None:
    assert decode(Training, {"batch": 8, "local_min": 2}) == Training(8, local_min=2)
    assert encode(Training(8)) == {"batch": 8}


@given(nodes("n0"), queues())
def test_nodes_and_queues_come_back(place: NodeSpec, tenant: Any) -> None:
    assert decode(NodeSpec, there_and_back(encode(place))) == place
    assert decode(type(tenant), there_and_back(encode(tenant))) == tenant


def test_whole_numbers_will_do_for_seconds() -> None:
    event = decode_event({"type": "Woke", "time": 5})

    assert event == Woke(5.0)
    assert type(event.time) is float


STARTED = {"type": "Started", "time": 1.0, "run": {"job": "a", "attempt": 1}}
SUBMITTED = {"type": "Submitted", "time": 1.0, "job": "a"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "expected an object with a type, found None"),
        ([], "expected an object with a type, found []"),
        ({"time": 1.0}, "expected an object with a type, found {'time': 1.0}"),
        ({"type": ["Woke"]}, "expected an object with a type, found {'type': ['Woke']}"),
        ({"type": "Start", "time": 1.0}, "unknown type 'Start'; did you mean 'Started'?"),
        ({"type": "Zz", "job": "a"}, "unknown type 'Zz'; one of: "),
        ({"type": "Woke"}, "Woke: 'time' is missing"),
        ({"type": "Woke", "time": True}, "Woke.time: expected a number"),
        ({"type": "Woke", "time": "soon"}, 'Woke.time: expected a number, "inf" or "-inf", found'),
        ({"type": "Woke", "time": math.nan}, "Woke.time: expected a number"),
        ({"type": "Woke", "time": math.inf}, "Woke.time: expected a number"),
        ({"type": "Woke", "time": 10**400}, "Woke.time: expected a number"),
        ({"type": "Woke", "time": None}, "Woke.time: expected a number"),
        (STARTED | {"rum": 1}, "Started: unknown field 'rum'; did you mean 'run'?"),
        (STARTED | {"run": ["a", 1]}, "Started.run: expected an object that tells a RunId"),
        (STARTED | {"run": {"job": "a"}}, "Started.run: 'attempt' is missing"),
        (
            STARTED | {"run": {"job": "a", "attempt": 1, "type": "RunId"}},
            "Started.run: unknown field 'type'; one of: attempt, job",
        ),
        (
            STARTED | {"run": {"job": "a", "attempt": 1.0}},
            "Started.run.attempt: expected a whole number, found 1.0",
        ),
        (
            STARTED | {"run": {"job": 7, "attempt": True}},
            "Started.run.job: expected a text, found 7",
        ),
        (SUBMITTED | {"spec": {"within": 2}}, "Submitted.spec.within: expected one of gpu, socket"),
        (
            SUBMITTED | {"spec": {"resources": {"kinds": ["a", 1]}}},
            "Submitted.spec.resources.kinds[1]: expected a text, found 1",
        ),
        (
            SUBMITTED | {"spec": {"resources": {"kinds": "a"}}},
            "Submitted.spec.resources.kinds: expected a list, found 'a'",
        ),
        (
            SUBMITTED | {"spec": {"resources": {"gpus": -1}}},
            "Submitted.spec.resources: gpus must not be negative, got -1",
        ),
        (
            SUBMITTED | {"spec": {"roles": [{"name": "ps", "workers": 0, "resources": {}}]}},
            "Submitted.spec.roles[0]: role 'ps' needs at least one worker, got 0",
        ),
        (SUBMITTED | {"spec": {"preemptible": 1}}, "Submitted.spec.preemptible: expected true"),
        (SUBMITTED | {"spec": None}, "Submitted.spec: expected an object that tells a JobSpec"),
    ],
)
def test_what_is_wrong_is_named(data: Any, message: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        decode_event(data)

    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_long_values_are_cut_short_in_errors() -> None:
    with pytest.raises(InvalidSpec) as error:
        decode_event({"type": "Woke", "time": "x\n" * 10_000})

    assert len(str(error.value)) < 120


def test_what_is_not_a_number_is_not_written() -> None:
    with pytest.raises(InvalidSpec, match="expected a number, found nan"):
        encode(Woke(math.nan))
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical([math.inf])


def test_a_kind_that_has_no_form_is_our_own_mistake() -> None:
    with pytest.raises(Fatal, match="has no form in JSON"):
        encode({"a": 1})


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": [1.5, "é"]}) == canonical({"a": [1.5, "é"], "b": 1})
    assert canonical({"b": 1, "a": 2}) == '{"a":2,"b":1}'


def test_an_allocation_is_a_list_of_parts() -> None:
    allocation = Allocation((Part(NODE, (0, 1)), Part(NODE, (), 1000, 2, "ps")))

    assert encode(allocation) == {
        "parts": [
            {"node": "n0", "gpus": [0, 1]},
            {"node": "n0", "gpus": [], "workers": 2, "role": "ps"},
        ]
    }
