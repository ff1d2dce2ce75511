"""Whole assignments: who moves, who stays, what fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.core import (
    Core,
    Costs,
    Exited,
    GpuFailed,
    JobId,
    Level,
    Migrate,
    NodeId,
    NodeSpec,
    Outcome,
    Plan,
    Resize,
    Submitted,
    Suspend,
    Woke,
)
from roost.core.actions import Action
from roost.core.events import QueueChanged
from roost.policies.kit.assignment import arrange, assign
from roost.policies.kit.moves import Wish, capacity, carry_on, standing
from roost.policies.kit.packing import fits
from roost.policies.kit.rounds import round_begins
from roost.testing.builders import core_with, job, node, queue, role, run, spec
from roost.testing.checks import impossible_decisions, rough_decisions, validate
from roost.testing.engine import FakeEngine

Wishes = Mapping[JobId, Wish | None]


@dataclass
class Wishing:
    """Assigns what a test wishes, once, and otherwise carries on."""

    wishes: list[Wishes] = field(default_factory=list)
    seats: list[Mapping[JobId, Mapping[NodeId, int] | None]] = field(default_factory=list)

    def __call__(self, plan: Plan) -> None:
        carry_on(plan)
        while self.wishes:
            assign(plan, self.wishes.pop(0))
        while self.seats:
            arrange(plan, self.seats.pop(0))


@dataclass
class Trial:
    """A core whose every action is answered in the same instant."""

    core: Core
    policy: Wishing
    engine: FakeEngine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = FakeEngine(self.core)

    def wish(self, at: float, **wishes: Wish | None) -> list[Action]:
        """Assign, let everything settle, and say what was asked of the world."""
        self.policy.wishes = [{JobId(name): wish for name, wish in wishes.items()}]
        before = len(self.engine.journal)
        self.engine.now = at
        self.engine.tell(Woke(at))
        self.settle()
        return [action for batch in self.engine.journal[before:] for action in batch.actions]

    def settle(self) -> None:
        while self.engine.unanswered:
            validate(self.core)
            assert not impossible_decisions(self.core)
            assert not rough_decisions(self.core)
            for run_id in self.engine.unanswered:
                self.engine.answer(run_id)
        validate(self.core)

    def where(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Each running job's kind and its workers on each node."""
        found = {}
        for held in self.core.runs.values():
            parts = held.allocation.parts
            if not held.parked and parts:
                kind = self.core.ledger.nodes[parts[0].node].spec.kind
                found[str(held.job.id)] = kind, tuple(part.workers for part in parts)
        return found


def cluster(*nodes: NodeSpec) -> Trial:
    policy = Wishing()
    return Trial(core_with(policy, *nodes), policy)


def submit(trial: Trial, *names: str, most: int = 64, **more: object) -> None:
    for name in names:
        size = spec(1, workers=(1, most), **more)  # type: ignore[arg-type]
        trial.engine.tell(Submitted(trial.engine.now, job(name), size))


def two_of_eight() -> Trial:
    return cluster(node("n0", kind="a"), node("n1", kind="a"))


def test_jobs_start_as_wished_on_whole_nodes_and_one_remainder() -> None:
    trial = cluster(*(node(f"n{index}", 4, kind="a") for index in range(4)), node("m", kind="b"))
    submit(trial, "x", "y", "z")
    trial.wish(1.0, x=Wish("a", 10), y=Wish("b", 3), z=Wish("a", 2))
    assert trial.where() == {"x": ("a", (4, 4, 2)), "y": ("b", (3,)), "z": ("a", (2,))}


def test_who_keeps_kind_and_size_is_not_touched() -> None:
    trial = two_of_eight()
    submit(trial, "x", "y")
    trial.wish(1.0, x=Wish("a", 3), y=Wish("a", 3))
    actions = trial.wish(2.0, x=Wish("a", 3), y=Wish("a", 8))
    assert [action.run for action in actions] == [run("y")]
    assert trial.where() == {"x": ("a", (3,)), "y": ("a", (8,))}


def test_a_job_grows_where_it_is() -> None:
    trial = two_of_eight()
    submit(trial, "x")
    trial.wish(1.0, x=Wish("a", 3))
    (action,) = trial.wish(2.0, x=Wish("a", 6))
    assert isinstance(action, Resize)
    assert set(action.allocation.parts[0].gpus) >= {0, 1, 2}


def test_as_few_as_can_be_are_moved_for_one_that_does_not_fit() -> None:
    trial = two_of_eight()
    submit(trial, "p", "q", "r")
    trial.wish(1.0, p=Wish("a", 5), q=Wish("a", 5))
    trial.wish(2.0, p=Wish("a", 5), q=Wish("a", 5), r=Wish("a", 2))
    trial.wish(3.0, p=Wish("a", 2), q=Wish("a", 4), r=Wish("a", 2))
    submit(trial, "s")
    actions = trial.wish(4.0, p=Wish("a", 2), q=Wish("a", 4), r=Wish("a", 2), s=Wish("a", 8))
    assert trial.where()["s"] == ("a", (8,))
    moved = {action.run.job for action in actions} - {"s"}
    assert moved in ({"q"}, {"p", "r"}, {"p"}, {"r"})


def test_two_runs_change_places() -> None:
    trial = cluster(node("n0", kind="a"), node("m0", kind="b"))
    submit(trial, "x", "y")
    trial.wish(1.0, x=Wish("a", 8), y=Wish("b", 8))
    trial.wish(2.0, x=Wish("b", 8), y=Wish("a", 8))
    assert trial.where() == {"x": ("b", (8,)), "y": ("a", (8,))}
    assert trial.core.jobs[job("x")].attempts == 1  # suspended and resumed, not begun anew


def test_none_stands_aside_and_comes_back() -> None:
    trial = two_of_eight()
    submit(trial, "x")
    trial.wish(1.0, x=Wish("a", 8))
    (action,) = trial.wish(2.0, x=None)
    assert isinstance(action, Suspend)
    trial.wish(3.0, x=Wish("a", 4))
    assert trial.where() == {"x": ("a", (4,))}


def test_a_change_that_costs_a_restart_frees_its_devices_at_once() -> None:
    costs = Costs(restart_s=50.0, resize_s=50.0)
    trial = cluster(node("n0", kind="a"), node("m0", kind="b"))
    submit(trial, "x", costs=costs)
    trial.wish(1.0, x=Wish("a", 8))
    actions = trial.wish(2.0, x=Wish("b", 8))
    assert isinstance(actions[0], Suspend)
    submit(trial, "y", costs=Costs(restart_s=50.0, resize_s=5.0))
    trial.wish(3.0, y=Wish("a", 8))
    trial.wish(4.0, x=None)
    (action,) = trial.wish(5.0, y=Wish("b", 8))
    assert isinstance(action, Migrate)


def test_what_does_not_fit_waits_and_says_why() -> None:
    trial = two_of_eight()
    submit(trial, "x", "y")
    trial.wish(1.0, x=Wish("a", 12), y=Wish("a", 5))
    assert trial.where() == {"x": ("a", (8, 4))}
    found = trial.core.explain(job("y"))
    assert found is not None
    assert "5 workers on a" in found.reason.text


def test_a_run_whose_wish_does_not_fit_keeps_its_place() -> None:
    trial = two_of_eight()
    submit(trial, "x", "y")
    trial.wish(1.0, x=Wish("a", 8), y=Wish("a", 8))
    assert trial.wish(2.0, x=Wish("a", 8), y=Wish("a", 16)) == []
    assert trial.wish(3.0, x=Wish("nowhere", 8)) == []


def test_who_must_not_be_disturbed_is_only_resized_where_it_is() -> None:
    trial = cluster(node("n0", kind="a"), node("n1", kind="a"), node("m0", kind="b"))
    submit(trial, "x", preemptible=False)
    submit(trial, "y", min_run_s=100.0)
    trial.wish(1.0, x=Wish("a", 3), y=Wish("a", 3))
    assert trial.wish(2.0, x=Wish("b", 3), y=Wish("b", 3)) == []
    assert trial.wish(3.0, x=None, y=None) == []
    trial.wish(4.0, x=Wish("a", 5), y=Wish("a", 2))
    assert trial.where() == {"x": ("a", (5,)), "y": ("a", (2,))}
    submit(trial, "z")
    trial.wish(5.0, z=Wish("a", 16))  # nobody is moved for it
    assert "z" not in trial.where()
    assert isinstance(trial.wish(200.0, y=None)[0], Suspend)


def test_limits_of_queues_hold() -> None:
    trial = two_of_eight()
    trial.engine.tell(QueueChanged(0.0, queue("red", limit_milli=6000)))
    submit(trial, "x", "y", queue="red")
    trial.wish(1.0, x=Wish("a", 4), y=Wish("a", 4))
    assert trial.where() == {"x": ("a", (4,)), "y": ("a", (2,))}
    trial.wish(2.0, x=Wish("a", 2), y=Wish("a", 4))
    assert trial.where() == {"x": ("a", (2,)), "y": ("a", (4,))}
    assert trial.wish(3.0, x=Wish("a", 3)) == []


def test_jobs_of_other_shapes_go_where_the_placer_says() -> None:
    trial = cluster(
        node("n0", 4, kind="a", cpu_milli=4000),
        node("n1", 4, kind="b", cpu_milli=4000),
        node("c", 0, kind="c", cpu_milli=4000),
    )
    add = trial.engine.tell
    add(Submitted(0.0, job("share"), spec(0.5)))
    add(Submitted(0.0, job("ps"), spec(1, workers=2, roles=(role("ps", 1, cpu_milli=2000),))))
    add(Submitted(0.0, job("near"), spec(1, workers=(2, 4), within=Level.NODE)))
    add(Submitted(0.0, job("cpu"), spec(0, cpu_milli=1000)))
    wishes = {"ps": Wish("b", 2), "near": Wish("a", 2), "share": Wish("b", 1), "cpu": Wish("", 1)}
    trial.wish(1.0, **wishes)
    where = trial.where()
    assert where["share"][0] == "b"
    assert where["ps"][0] == "b"
    assert where["near"] == ("a", (2,))
    assert "cpu" in where
    trial.wish(2.0, near=Wish("a", 4), share=Wish("a", 1))
    assert trial.where()["near"][0] == "a"
    assert trial.where()["share"] == ("b", (1,))  # there is no room on a


def test_workers_with_more_than_one_gpu_and_broken_devices() -> None:
    trial = cluster(*(node(f"n{index}", 4, kind="a") for index in range(3)))
    trial.engine.tell(GpuFailed(0.0, trial.core.ledger.order[0].id, 2))
    trial.engine.tell(Submitted(0.0, job("x"), spec(2, workers=(1, 8))))
    trial.wish(1.0, x=Wish("a", 5))
    assert trial.where() == {"x": ("a", (2, 2, 1))}
    assert capacity(trial.core._plan)["a"] == [1, 0, 0]
    assert capacity(trial.core._plan, [job("x")])["a"] == [3, 4, 4]
    assert standing(trial.core._plan) == {job("x"): Wish("a", 5)}


def test_what_was_promised_is_kept_while_a_run_leaves() -> None:
    trial = cluster(node("n0", kind="a"), node("m0", kind="b"))
    submit(trial, "x", "y", costs=Costs(restart_s=5.0, resize_s=5.0))
    trial.wish(1.0, x=Wish("a", 8))
    trial.policy.wishes = [{job("x"): Wish("b", 8)}]
    trial.engine.tell(Woke(2.0))  # x is asked to step aside, and takes its time
    trial.policy.wishes = [{job("y"): Wish("b", 4)}]
    trial.engine.tell(Woke(3.0))
    assert standing(trial.core._plan) == {job("x"): Wish("b", 8)}
    assert capacity(trial.core._plan)["b"] == [0]
    trial.settle()
    assert trial.where() == {"x": ("b", (8,))}


def test_who_ends_while_it_steps_aside_is_forgotten() -> None:
    trial = cluster(node("n0", kind="a"), node("m0", kind="b"))
    submit(trial, "x", costs=Costs(restart_s=5.0, resize_s=5.0))
    trial.wish(1.0, x=Wish("a", 8))
    trial.policy.wishes = [{job("x"): Wish("b", 8)}]
    trial.engine.tell(Woke(2.0))
    trial.core.handle(Exited(2.0, run("x"), Outcome.SUCCEEDED))
    trial.core.handle(Woke(3.0))
    assert standing(trial.core._plan) == {}
    assert capacity(trial.core._plan) == {"a": [8], "b": [8]}


def test_rounds_begin_at_multiples_and_only_while_there_are_jobs() -> None:
    asked: list[tuple[float, bool]] = []

    def policy(plan: Plan) -> None:
        asked.append((plan.now, round_begins(plan, 60.0)))

    core = core_with(policy, node("n0"))
    assert core.wake_at == float("inf")
    core.handle(Submitted(130.0, job("x"), spec(1)))
    assert core.wake_at == 180.0
    core.handle(Woke(180.0))
    core.handle(Woke(180.0))
    core.handle(Woke(240.5))  # a little late
    assert core.wake_at == 300.0
    assert asked[1:] == [(130.0, False), (180.0, True), (180.0, False), (240.5, True)]


@pytest.mark.parametrize(
    ("sizes", "nodes", "fit"),
    [
        ([8, 4, 4], [8, 8], True),
        ([6, 5, 5], [8, 8], False),
        ([12, 4], [8, 8], True),
        ([12, 5], [8, 8], False),
        ([10], [4, 4, 4], True),
        ([15], [8, 7], True),
        ([20, 4], [8, 8, 8], True),
        ([], [], True),
        ([1], [], False),
    ],
)
def test_what_fits(sizes: list[int], nodes: list[int], fit: object) -> None:
    assert fits(sizes, nodes) is fit


sizes_of_nodes = st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, max_size=4)
KINDS = ("a", "b")


@st.composite
def stories(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[dict[str, Wish | None]]]:
    """A cluster of two kinds, and a few assignments one after the other."""
    nodes = {kind: draw(sizes_of_nodes) for kind in KINDS}
    wish = st.builds(Wish, st.sampled_from(KINDS), st.sampled_from((1, 1, 2, 3, 4, 5, 8, 12)))
    names = st.sampled_from([f"j{index}" for index in range(8)])
    steps = draw(st.lists(st.dictionaries(names, st.none() | wish), min_size=1, max_size=4))
    return nodes, steps


@given(stories())
@settings(max_examples=examples(150))
def test_what_fits_is_placed_and_who_keeps_its_size_is_not_restarted(
    story: tuple[dict[str, list[int]], list[dict[str, Wish | None]]],
) -> None:
    nodes, steps = story
    trial = cluster(
        *(node(f"{k}{i}", gpus, kind=k) for k in KINDS for i, gpus in enumerate(nodes[k]))
    )
    for index in range(8):
        costs = Costs(restart_s=9.0, resize_s=9.0 if index % 2 else 1.0)
        submit(trial, f"j{index}", costs=costs)
    for at, step in enumerate(steps):
        everybody = {f"j{index}": step.get(f"j{index}") for index in range(8)}
        before = trial.where()
        actions = trial.wish(float(at + 1), **everybody)
        after = trial.where()
        for kind in KINDS:
            wished = {n: w for n, w in everybody.items() if w is not None and w.kind == kind}
            if fits([wish.workers for wish in wished.values()], nodes[kind]) and all(
                fits([w.workers for w in everybody.values() if w and w.kind == k], nodes[k])
                for k in KINDS
            ):
                assert all(sum(after[n][1]) == wish.workers for n, wish in wished.items())
                assert all(after[n][0] == kind for n in wished)
        kept = [n for n, w in everybody.items() if w and n in before and _is(before[n], w)]
        assert all(_is(after[name], everybody[name]) for name in kept)
        if len(kept) == len(before):  # all who ran stay as they are: at most they move
            stopped = {action.run.job for action in actions if isinstance(action, Resize)}
            assert not stopped


def _is(found: tuple[str, tuple[int, ...]], wish: Wish | None) -> bool:
    return wish is not None and found[0] == wish.kind and sum(found[1]) == wish.workers


def test_a_policy_may_choose_the_nodes_itself() -> None:
    trial = cluster(*(node(f"n{index}", 4, kind="a") for index in range(3)))
    submit(trial, "x", "y")
    names = [one.id for one in trial.core.ledger.order]

    def place(at: float, x: list[int], y: list[int]) -> dict[str, tuple[int, ...]]:
        seats = {"x": x, "y": y}
        told = {
            job(name): {node: n for node, n in zip(names, counts, strict=True) if n}
            for name, counts in seats.items()
        }
        trial.policy.seats = [told]
        trial.engine.tell(Woke(at))
        trial.settle()
        return {name: counts for name, (_, counts) in trial.where().items()}

    assert place(1.0, [2, 2, 0], [0, 0, 4]) == {"x": (2, 2), "y": (4,)}
    assert place(2.0, [2, 2, 0], [2, 0, 2]) == {"x": (2, 2), "y": (2, 2)}
    assert place(3.0, [0, 4, 0], [4, 0, 0]) == {"x": (4,), "y": (4,)}
    assert place(4.0, [0, 4, 0], [0, 0, 4]) == {"x": (4,), "y": (4,)}
    assert trial.core.jobs[job("y")].run is not None
    assert place(5.0, [0, 0, 0], [4, 4, 4]) == {"y": (4, 4, 4)}


def test_a_whole_node_whose_cpus_are_taken_is_none() -> None:
    trial = cluster(*(node(f"n{index}", 4, kind="a", cpu_milli=4000) for index in range(3)))
    trial.engine.tell(Submitted(0.0, job("cpus"), spec(0, cpu_milli=4000)))
    trial.wish(1.0, cpus=Wish("", 1))
    for name, workers in (("large", 10), ("small", 8)):
        trial.engine.tell(Submitted(1.0, job(name), spec(1, workers=workers, cpu_milli=1000)))
    trial.wish(2.0, large=Wish("a", 10), small=Wish("a", 8))
    assert trial.where() == {"cpus": ("a", (1,)), "small": ("a", (4, 4))}
