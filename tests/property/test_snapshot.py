"""A snapshot brings back everything, whenever it is taken: it goes on as a folded journal does."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.effort import examples, quick
from tests.support.plain_core import plain_core

from roost import policies
from roost.core import Action, Core, Event, Policy
from roost.core.snapshot import digest, dump, load
from roost.core.wire import canonical
from roost.errors import RoostError
from roost.jobs.history import touched
from roost.live.state_text import StateText, packed, state_pieces, unpacked
from roost.placement import PLACERS
from roost.testing.checks import validate
from roost.testing.faulty_engine import FaultyEngine
from roost.testing.journal import differ, snapshot
from roost.testing.policies import Restless
from roost.testing.random_history import RandomHistory


def unlisted(core: Core) -> dict[str, Any]:
    """What else decides how a core goes on: who leaves, who waits for that, who tries again."""
    runs = core.runs
    return {
        "leaving": {name: node.leaving for name, node in core.ledger.nodes.items()},
        "listed": {name: [r.id for r in node.runs] for name, node in core.ledger.nodes.items()},
        "waiters": {
            run_id: [run.id for run in waiters if runs.get(run.id) is run]
            for run_id, waiters in core.occupancy._leaving.items()
        },
        "order": [list(core.jobs), list(core.runs), list(core.queues), list(core.ledger.nodes)],
        "switches": core.ledger.switches,
        "again": sorted(
            (job.not_before, job.seq)
            for at, _, job in set(core.backing_off)
            if at == job.not_before and job.state == "queued" and not job.waiting
        ),
        "waits": {job.id: core.waiting.waits(job, core.now) for job in core.jobs.values()},
        "succeeded": core.history._succeeded,
        "submitted": core.submitted,
    }


def reloaded(core: Core, policy: Policy) -> Core:
    """The core from its snapshot, by way of text."""
    text = canonical(dump(core))
    again = load(json.loads(text), policy, core._plan.placer)
    assert canonical(dump(again)) == text
    return again


def refolded(engine: FaultyEngine, policy: Policy) -> Core:
    again = Core(policy, engine.placer)
    for batch in engine.journal:
        again.refold(batch.events, batch.decisions)
    return again


class Twin:
    """Tells another core everything that a history's core is told, and compares the answers."""

    def __init__(self, engine: FaultyEngine, other: Core) -> None:
        self.other = other
        self.first = engine.core.handle
        engine.core.handle = self.handle  # type: ignore[method-assign]

    def handle(self, *events: Event) -> list[Action]:
        try:
            actions = self.first(*events)
        except RoostError as error:
            with pytest.raises(type(error)):
                self.other.handle(*events)
            raise
        assert self.other.handle(*events) == actions
        return actions


def go_on(history: RandomHistory, policy: Policy, steps: int) -> None:
    """Let the snapshot and the folded journal live through the same engine."""
    engine = history.engine
    other = refolded(engine, deepcopy(policy))
    engine.core = reloaded(engine.core, policy)
    # A policy of the tests draws its lots by that count, which means nothing between cores.
    engine.core.ledger.changed_before += other.ledger.stamp - engine.core.ledger.stamp
    twin = Twin(engine, other)
    history.run(steps)
    assert not differ(snapshot(engine.core), snapshot(twin.other))
    assert digest(engine.core) == digest(twin.other)


def check(history: RandomHistory, policy: Policy) -> None:
    core = history.engine.core
    again = reloaded(core, policy)

    assert not differ(snapshot(core), snapshot(again))
    assert not differ(unlisted(core), unlisted(again))
    assert digest(core) == digest(again) == digest(refolded(history.engine, policy))
    validate(again, limits=False)


class Follower:
    """Keeps the text of a history's core up to date as a driver does: by the jobs of each batch."""

    def __init__(self, engine: FaultyEngine) -> None:
        self.engine, self.text = engine, StateText(engine.core)
        self.first = engine.core.handle
        engine.core.handle = self.handle  # type: ignore[method-assign]

    def handle(self, *events: Event) -> list[Action]:
        try:
            actions = self.first(*events)
        except RoostError:  # those before the one that cannot be stand; a driver ends then
            self.text = StateText(self.engine.core)
            raise
        self.text.touch(touched(self.engine.core, events, actions))
        return actions

    def check(self) -> None:
        core = self.engine.core
        lines = self.text.lines()
        again, text = unpacked(packed(lines), core.policy, core._plan.placer)

        assert text.lines() == lines
        assert json.loads("".join(state_pieces(lines, {"seq": 1})))["digest"] == digest(core)
        assert digest(again) == digest(core)
        assert list(again.jobs) == list(core.jobs)
        assert not differ(without_waits(unlisted(core)), without_waits(unlisted(again)))
        validate(again, limits=False)


def without_waits(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != "waits"}


@plain_core
@given(
    policy=st.one_of(
        st.sampled_from(policies.names()).map(quick), st.integers(0, 10_000).map(Restless)
    ),
    where=st.sampled_from(sorted(PLACERS)),
    seed=st.integers(0, 10_000),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=4),
)
@settings(max_examples=examples(80))
def test_lines_that_are_kept_are_those_that_would_be_written(
    policy: Policy, where: str, seed: int, steps: list[int]
) -> None:
    history = RandomHistory(policy, where, seed)
    history.engine.gentle = False
    history.run(seed % 5)
    follower = Follower(history.engine)
    for some in steps:
        history.run(some)
        follower.check()


@plain_core
@given(
    name=st.sampled_from(policies.names()),
    where=st.sampled_from(sorted(PLACERS)),
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 120),
)
@settings(max_examples=examples(60))
def test_every_policy_goes_on_from_a_snapshot(name: str, where: str, seed: int, steps: int) -> None:
    policy = quick(name)
    history = RandomHistory(policy, where, seed)
    history.run(steps)

    check(history, policy)
    go_on(history, policy, 30)


@plain_core
@given(
    where=st.sampled_from(sorted(PLACERS)), seed=st.integers(0, 10_000), steps=st.integers(1, 120)
)
@example(where="pack", seed=108, steps=79)  # a run that waits for the same one twice
@settings(max_examples=examples(60))
def test_a_snapshot_in_the_middle_of_everything(where: str, seed: int, steps: int) -> None:
    policy = Restless(seed)
    history = RandomHistory(policy, where, seed)
    history.engine.gentle = False
    history.run(steps)

    check(history, policy)
    go_on(history, policy, 30)
