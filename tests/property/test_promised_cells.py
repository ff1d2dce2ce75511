"""Random histories in which no promise of cells is broken, whatever policy decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.effort import examples
from tests.support.plain_core import plain_core

from roost.core import Action, Core, Event
from roost.core.snapshot import dump, load
from roost.core.wire import decode_decision, decode_event, encode_decision, encode_event
from roost.placement import placer
from roost.policies import policy
from roost.testing.checks import validate
from roost.testing.promises import PromiseWalk

POLICIES = ("fifo", "srtf", "priority", "roost", "tiresias", "fair")


@pytest.mark.parametrize("name", POLICIES)
def test_a_queue_has_its_private_cluster_whatever_others_do(name: str) -> None:
    for seed in range(examples(12)):
        walk = PromiseWalk.of(seed, policy(name), placer("pack"))

        assert walk.walk(120) == []
        validate(walk.core)


@plain_core
@pytest.mark.parametrize("name", ["sjf", "srtf"])
def test_the_journal_brings_claims_back(name: str) -> None:
    for seed in range(examples(12)):
        core = Core(policy(name), placer("pack"))
        again = Core(policy(name), placer("pack"))
        handle = core.handle

        def both(
            *events: Event,
            core: Core = core,
            again: Core = again,
            handle: Callable[..., list[Action]] = handle,
        ) -> list[Action]:
            actions = handle(*events)
            told = [decode_event(encode_event(event)) for event in events]
            done = [decode_decision(encode_decision(one)) for one in core.decisions]
            assert again.refold(told, done) == actions
            return actions

        core.handle = both  # type: ignore[method-assign]
        assert PromiseWalk(seed, core, forgets=False).walk(120) == []
        # For which cause jobs waited is what a policy says, and that is not in the journal.
        known, found = dump(core), dump(again)
        assert {**found, "jobs": []} == {**known, "jobs": []}
        assert dump(load(dump(core), policy(name), placer("pack"))) == dump(core)


def test_histories_are_not_idle() -> None:
    walks = [PromiseWalk.of(seed, policy("fifo"), placer("pack")) for seed in range(20)]

    for walk in walks:
        assert walk.walk(150) == []

    assert sum(walk.evictions for walk in walks) > 5
    assert sum(walk.refused for walk in walks) > 5
