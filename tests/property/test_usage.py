"""What the meter says is held is what processes really use, and no time is counted twice.

Long random histories: jobs, requests, broken machines, late answers, restarts. The witness is the
engine, which knows what the processes use that it was asked to start; it shares no code with the
meter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.support.effort import examples, quick

from roost.core import WHOLE, Action, Core, Event, JobId, NodeId, RunId, Stop
from roost.jobs.history import touched
from roost.testing.faulty_engine import FaultyEngine
from roost.testing.random_history import RandomHistory
from roost.usage.meter import Meter
from roost.usage.spells import AnySpell, NodeSpell, Spell, to_ms


class MeteredEngine:
    """Meters a random history, and adds up beside it what processes use and what nodes have."""

    def __init__(self, history: RandomHistory) -> None:
        self.engine: FaultyEngine = history.engine
        self.meter, self.spells = Meter(), dict[int, AnySpell]()
        self.used, self.capacity, self.out = Counter[NodeId](), Counter[NodeId](), Counter[NodeId]()
        self.at_ms = to_ms(self.engine.now)
        self._was: dict[NodeId, tuple[int, int, int]] = {}
        self._uses: dict[RunId, Counter[tuple[NodeId, int]]] = {}
        self._tell = self.engine.tell
        first = self.engine.journal[0]
        self.take(self.engine.core, first.events, list(first.actions))
        self.look()
        self.engine.tell = self.tell  # type: ignore[method-assign]

    def tell(self, *events: Event) -> list[Action]:
        actions = self._tell(*events)
        self.pass_time(to_ms(self.engine.core.now))
        self.take(self.engine.core, events, actions)
        self.look()
        return actions

    def take(self, core: Core, events: tuple[Event, ...], actions: list[Action]) -> None:
        jobs: list[JobId] = list(touched(core, events, actions))
        for spell in self.meter.fold(core, events, jobs):
            self.spells[spell.n] = spell

    def pass_time(self, now_ms: int) -> None:
        for name, (used, capacity, out) in self._was.items():
            self.used[name] += used * (now_ms - self.at_ms)
            self.capacity[name] += capacity * (now_ms - self.at_ms)
            self.out[name] += out * (now_ms - self.at_ms)
        self.at_ms = now_ms

    def look(self) -> None:
        """What is used now, by the processes; what the meter says must be the same."""
        ledger, used = self.engine.core.ledger, Counter[NodeId]()
        for run_id, process in self.engine.processes.items():
            # One that was told to stop may still finish a change; what it gives up by that is
            # nobody's before it has gone.
            stops = any(isinstance(action, Stop) for action in process.asked)
            if not stops or run_id not in self._uses:
                self._uses[run_id] = Counter(process.uses.milli)
            for (name, gpu), milli in self._uses[run_id].items():
                node = ledger.nodes[name]
                if node.here and node.healthy >> gpu & 1:
                    used[name] += milli
        for name, node in ledger.nodes.items():
            capacity = node.spec.gpus * WHOLE
            healthy = node.healthy.bit_count() * WHOLE if node.here else 0
            out = capacity - (used[name] if node.cordon and node.here else healthy)
            self._was[name] = used[name], capacity, out
        told = Counter[NodeId]()
        for spell in self.meter.open:
            if isinstance(spell, Spell) and spell.node:
                told[NodeId(spell.node)] += spell.gpu_milli
        assert +told == +used

    def restart(self) -> None:
        """The meter goes on from what was kept, as after the death of the server."""
        kept = [replace(spell) for spell in self.spells.values() if spell.end_ms is None]
        self.meter, n = Meter(), self.meter.n
        self.meter.restore(kept, self.engine.core, n)
        self.spells |= {spell.n: spell for spell in kept}


@pytest.mark.parametrize("seed", range(examples(48)))
def test_usage_idle_and_out_of_service_are_the_capacity(seed: int) -> None:
    policy = ("roost", "srtf", "las", "sia", "fair", "timeslice")[seed % 6]
    history = RandomHistory(quick(policy), "consolidate", seed)
    metered = MeteredEngine(history)
    for _ in range(4):
        history.run(60)
        if seed % 2:
            metered.restart()
    until = metered.at_ms
    used, capacity, out = Counter[NodeId](), Counter[NodeId](), Counter[NodeId]()
    for spell in metered.spells.values():
        lasts = spell.clipped_ms(0, until)
        if isinstance(spell, NodeSpell):
            capacity[NodeId(spell.node)] += lasts * spell.gpu_milli
            out[NodeId(spell.node)] += lasts * spell.out_milli
        elif spell.node:
            used[NodeId(spell.node)] += lasts * spell.gpu_milli
            assert 0 <= spell.busy <= spell.measured <= lasts * spell.gpu_milli
    assert +used == +metered.used
    assert +capacity == +metered.capacity
    assert +out == +metered.out
    idle = {name: capacity[name] - used[name] - out[name] for name in capacity}
    assert all(amount >= 0 for amount in idle.values())


def test_folding_the_journal_gives_the_same_spells() -> None:
    history = RandomHistory(quick("roost"), "consolidate", 7)
    metered = MeteredEngine(history)
    history.run(400)
    engine, again, spells = metered.engine, Meter(), dict[int, AnySpell]()
    core = Core(engine.policy, engine.placer)
    for batch in engine.journal:
        core.refold(batch.events, batch.decisions)
        jobs = {
            *touched(core, batch.events, batch.actions),
            *(decision.job for decision in batch.decisions),
        }
        for spell in again.fold(core, batch.events, sorted(jobs)):
            spells[spell.n] = spell

    def told(found: dict[int, AnySpell]) -> list[str]:
        return sorted(str(replace(spell, n=0)) for spell in found.values())

    assert told(spells) == told(metered.spells)
