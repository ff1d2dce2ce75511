"""Conformance suites: what every policy and every placer must do, theirs and yours.

Subclass a suite in a test module and give it a fixture; pytest does the rest:

    class TestMine(PolicyConformance):
        @pytest.fixture
        def policy(self) -> Policy:
            return MyPolicy()

A policy may be poor, but under it no device is over-committed, gangs are whole, every job that can
run ends, runs have their minimum time, decisions can be repeated and explained, and a restart that
loses its notes does no harm.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from roost.core import (
    Action,
    Core,
    Decision,
    Event,
    Ledger,
    Level,
    NodeJoined,
    NodeLost,
    Part,
    Placer,
    Policy,
    Shape,
    Submitted,
    Woke,
)
from roost.placement import placer as placer_named
from roost.sim.results import Results
from roost.sim.simulation import Simulation
from roost.testing.builders import core_with, job, node, part, role, spec, worker
from roost.testing.checks import rough_decisions, validate
from roost.testing.engine import JournalBatch
from roost.testing.gang_checks import gang_problems, strangers
from roost.testing.journal import check_journal
from roost.testing.random_history import RandomHistory
from roost.testing.replay import digest, digest_elsewhere
from roost.testing.situations import (
    Situation,
    breakdowns,
    cpus,
    elastic,
    gangs,
    kinds,
    mixture,
    servers,
    shares,
    tenants,
)

__all__ = ["PlacerConformance", "PolicyConformance", "UnaskedWakes", "Watch", "Watcher"]

#: More virtual time and more decisions than any situation needs.
_HORIZON_S = 1e7
_MOST_BATCHES = 20_000

#: How long a cluster is looked at in which nothing happens any more.
_DAY_S = 86_400.0
#: Parts of the time until the next event after which a policy is woken unasked.
_WOKEN_AT = (0.5, 0.999)

Watch = Callable[[Core], None]


class PolicyConformance:
    """What every policy must do. Needs a fixture ``policy``; ``placer`` may be another one."""

    placer: str = "first-fit"

    def test_every_gang_ends(self, policy: Policy) -> None:
        """Gangs, cells, minimum run times, and jobs that must not be disturbed."""
        self.play(policy, gangs())

    def test_every_share_ends(self, policy: Policy) -> None:
        """Parts of GPUs with memory limits."""
        self.play(policy, shares())

    def test_every_kind_ends(self, policy: Policy) -> None:
        """Several kinds of GPU."""
        self.play(policy, kinds())

    def test_every_job_that_needs_cpus_ends(self, policy: Policy) -> None:
        """CPUs and memory that run out first, and jobs without GPUs."""
        self.play(policy, cpus())

    def test_every_job_with_parameter_servers_ends(self, policy: Policy) -> None:
        """Roles beside the main workers."""
        self.play(policy, servers())

    def test_every_elastic_job_ends(self, policy: Policy) -> None:
        """Jobs that can grow and shrink."""
        self.play(policy, elastic())

    def test_every_tenant_is_served(self, policy: Policy) -> None:
        """Quotas, limits, weights and priorities."""
        self.play(policy, tenants())

    def test_every_job_of_a_mixture_ends(self, policy: Policy) -> None:
        """A little of everything."""
        self.play(policy, mixture())

    def test_every_job_ends_though_machines_fail(self, policy: Policy) -> None:
        """Nodes and GPUs that break and are repaired."""
        self.play(policy, breakdowns())

    def test_every_waiting_job_can_say_why(self, policy: Policy) -> None:
        """A reason in words, and those ahead: all waiting, each once, not the job itself."""

        def explained(core: Core) -> None:
            waiting = {job.id for job in core.waiting}
            for name in waiting:
                found = core.explain(name)
                _require(found is not None and bool(found.reason.text), f"{name} cannot say why")
                ahead = found.ahead if found is not None else ()
                fine = len(set(ahead)) == len(ahead) and set(ahead) <= waiting - {name}
                _require(fine, f"{name} says that {ahead} are ahead of it")

        self.play(policy, tenants(), explained)

    def test_it_decides_the_same_again(self, policy: Policy) -> None:
        """Bit for bit, in this process and in one where strings hash to other numbers."""
        here = digest(policy, self.placer, mixture())
        _require(digest(policy, self.placer, mixture()) == here, "it decided otherwise")
        elsewhere = digest_elsewhere(policy, self.placer, mixture(), hash_seed=1 + len(here))
        _require(elsewhere == here, "it decided otherwise in another process")

    def test_a_restart_does_no_harm(self, policy: Policy) -> None:
        """The journal folds to the same state; without its notes the policy still serves all."""
        situation = tenants()
        simulation = situation.simulation(policy, self.placer)
        journal: list[JournalBatch] = []
        simulation.run(until=4000.0, observer=lambda *batch: journal.append(_batch(*batch)))
        check_journal(journal, simulation.core)
        again = Core(policy, placer_named(self.placer))
        for batch in journal:
            again.refold(batch.events, batch.decisions)
        simulation.core = again
        results = simulation.run(until=_HORIZON_S, observer=Watcher(simulation.core))
        _require(simulation.over, f"never over: {_unfinished(results)}")

    def test_it_asks_to_be_woken(self, policy: Policy) -> None:
        """It asks with ``plan.wake`` for the moments at which it would act though nothing happens.

        A policy that asked for nothing is woken all the same, shortly before the next event.
        """
        for situation in (gangs(), elastic(), tenants()):
            simulation = situation.simulation(policy, self.placer)
            simulation.run(until=_HORIZON_S, observer=UnaskedWakes(simulation, situation))

    def test_it_survives_random_histories(self, policy: Policy) -> None:
        """Users, machines and reports at their worst; afterwards no job is lost."""
        for seed in (1, 2):
            RandomHistory(policy, self.placer, seed).run(150).clear_up()

    def test_nothing_to_do_is_fine(self, policy: Policy) -> None:
        """No nodes, no jobs, nodes that are lost, or a job that can never run."""
        core = core_with(policy, placer=self.placer)
        _require(core.handle(Woke(1.0)) == [], "something from nothing")
        _require(core.handle(Submitted(2.0, job("a"), spec(2, 9.0))) == [], "started nowhere")
        core.handle(NodeJoined(3.0, node("n0", 1)))
        core.handle(NodeLost(4.0, node("n0").id))
        core.handle(Woke(5.0))
        _require(core.explain(job("a")) is not None, "a cannot say why it waits")
        validate(core)

    def play(self, policy: Policy, situation: Situation, watch: Watch = validate) -> Results:
        """Simulate a situation, check after every batch, and see that every job succeeds."""
        simulation = situation.simulation(policy, self.placer)
        watcher = Watcher(simulation.core, watch)
        results = simulation.run(until=_HORIZON_S, observer=watcher)
        _require(simulation.over, f"never over: {_unfinished(results)}")
        outcomes = {row.outcome for row in results.jobs}
        _require(outcomes == {"succeeded"}, f"jobs ended as {outcomes}")
        _require(not simulation.core.runs and not simulation.world.runs, "something still runs")
        check_journal(watcher.journal, simulation.core)
        return results


class Watcher:
    """Looks at a core after every batch: sound, awake in time, and gentle with its runs."""

    def __init__(self, core: Core, watch: Watch = validate) -> None:
        self.core = core
        self.watch = watch
        self.journal: list[JournalBatch] = []

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """Note a batch and check what came of it."""
        core = self.core
        self.journal.append(_batch(events, decisions, actions))
        _require(
            len(self.journal) < _MOST_BATCHES, "so many decisions: it must be running in circles"
        )
        _require(core.wake_at > core.now, "it wakes itself for this very moment")
        rough = rough_decisions(core)
        _require(not rough, "; ".join(rough))
        self.watch(core)


class UnaskedWakes:
    """Wakes a policy that asked for nothing, and sees that it then does nothing."""

    def __init__(self, simulation: Simulation, situation: Situation) -> None:
        self.simulation = simulation
        self.arrivals = sorted(job.submitted_at for job in situation.jobs)

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """Look at the time until the next event; nothing of the batch itself is needed."""
        del events, decisions, actions
        simulation, core = self.simulation, self.simulation.core
        index = bisect_right(self.arrivals, simulation.now)
        arrival = self.arrivals[index] if index < len(self.arrivals) else math.inf
        until = min(arrival, simulation.world.next_time, simulation.now + _DAY_S)
        for fraction in _WOKEN_AT:
            moment = simulation.now + fraction * (until - simulation.now)
            if core.wake_at < math.inf or not core.now < moment < until:
                return
            core.handle(Woke(moment))
            _require(
                not core.decisions,
                f"at {moment:g} s it decides {core.decisions}, but at {simulation.now:g} s it did "
                "not ask to be woken for that: see plan.wake",
            )


class PlacerConformance:
    """What every placer must do. Needs a fixture ``placer``."""

    def test_what_it_chooses_is_a_whole_gang_and_free(self, placer: Placer) -> None:
        """All workers and roles, on devices that can really be taken, in the cell asked for."""
        placed = 0
        for ledger, shape in _questions():
            parts = placer(ledger, shape)
            if parts is not None:
                placed += 1
                problems = gang_problems(ledger, shape, parts) + strangers(ledger, shape, parts)
                _require(not problems, f"{shape}: {problems}")
                _take_and_release(ledger, shape, parts)
        _require(placed > 0, "it never finds room")

    def test_it_leaves_the_ledger_as_it_was(self, placer: Placer) -> None:
        """Asking costs nothing: the books, the masks, and what was refused before stay."""
        for ledger, shape in _questions():
            before = _books(ledger)
            placer(ledger, shape)
            _require(_books(ledger) == before, f"the ledger changed for {shape}")

    def test_it_chooses_the_same_again(self, placer: Placer) -> None:
        """Equal questions get equal answers."""
        first = [placer(ledger, shape) for ledger, shape in _questions()]
        again = [placer(ledger, shape) for ledger, shape in _questions()]
        _require(first == again, "it chose otherwise")

    def test_one_worker_is_placed_if_any_node_has_room(self, placer: Placer) -> None:
        """No rule keeps a single worker from a node that has room for it."""
        for ledger, shape in _questions():
            alone = Shape(1, shape.resources)
            room = any(
                ledger.room(node, shape.resources)
                for node in ledger.order
                if ledger.suits(node, shape.resources)
            )
            found = placer(ledger, alone)
            _require((found is not None) == room, f"{alone}: found {found}, room: {room}")

    def test_an_empty_cluster_has_no_room(self, placer: Placer) -> None:
        """No nodes, or only lost ones."""
        ledger = Ledger()
        _require(placer(ledger, Shape(1, worker(1))) is None, "room without nodes")
        ledger.join(node("n0", 2))
        ledger.lose(node("n0").id)
        for gpus in (0, 0.5, 1):
            _require(placer(ledger, Shape(1, worker(gpus))) is None, "room on a lost node")

    def test_a_gang_that_fits_an_empty_cluster_is_placed(self, placer: Placer) -> None:
        """Whatever the rule: on an empty uniform cluster there is room up to the last GPU."""
        for workers, gpus in ((1, 1), (4, 1), (8, 1), (12, 1), (16, 1), (4, 4), (2, 4), (32, 0.5)):
            ledger = Ledger()
            for index in range(4):
                ledger.join(node(f"n{index}", 4))
            parts = placer(ledger, Shape(workers, worker(gpus)))
            _require(parts is not None, f"no room for {workers} x {gpus}")


def _questions() -> Iterator[tuple[Ledger, Shape]]:
    """Ledgers in all sorts of states, and gangs to place there; always the same ones."""
    chance = random.Random(7)  # noqa: S311 - not for secrets
    for _ in range(40):
        ledger = _ledger(chance)
        for _ in range(8):
            yield ledger, _shape(chance)


def _ledger(chance: random.Random) -> Ledger:
    ledger = Ledger()
    for index in range(chance.randint(1, 5)):
        ledger.join(
            node(
                f"n{index}",
                chance.choice((0, 2, 4, 8)),
                kind=chance.choice("ab"),
                gpu_memory_mib=chance.choice((0, 1000)),
                cpu_milli=chance.choice((0, 4000)),
                memory_mib=chance.choice((0, 400)),
                sockets=chance.choice((1, 2)),
                switch=chance.choice("xy"),
                extras=chance.choice(((), (("nic", 2), ("port/*", 1)))),
                mixed=chance.choice((True, True, False)),
            )
        )
    for place in ledger.order:
        for gpu in range(place.spec.gpus):
            match chance.randrange(5):
                case 0:
                    ledger.take(part(place.id, (gpu,)), worker(1))
                case 1:
                    ledger.take(part(place.id, (gpu,), share_milli=300), worker(0.3))
                case 2:
                    ledger.set_health(place.id, gpu, healthy=chance.random() > 0.5)  # noqa: PLR2004
    if chance.randrange(3) == 0:
        ledger.lose(chance.choice(ledger.order).id)
    some = [place.id for place in ledger.order if chance.randrange(2)]
    best = len(some) // 2
    preferred = chance.choice(((), (frozenset(some[:1]), frozenset(some[1:best]))))
    ledger.set_pool("some", frozenset(some), preferred)
    return ledger


def _shape(chance: random.Random) -> Shape:
    need = worker(
        chance.choice((0, 0.3, 0.5, 1, 1, 2)),
        gpu_memory_mib=chance.choice((0, 0, 500)),
        kinds=chance.choice(((), (), ("a",), ("a", "b"), ("c",))),
        cpu_milli=chance.choice((0, 1000)),
        memory_mib=chance.choice((0, 100)),
        pool=chance.choice(("", "", "some", "none")),
        extras=chance.choice(((), (), (("nic", 1),), (("nic", 2), ("port/80", 1)))),
    )
    servers, gpus = chance.randint(1, 2), chance.choice((0, 0.5, 1))
    extra = role("ps", servers, gpus, cpu_milli=500, pool=chance.choice(("", "some")))
    return Shape(
        chance.choice((1, 1, 2, 3, 5)),
        need,
        (extra,) if chance.randrange(4) == 0 else (),
        chance.choice((None, None, *Level)),
    )


def _take_and_release(ledger: Ledger, shape: Shape, parts: Sequence[Part]) -> None:
    """Book the parts for real: the ledger raises if they are not free."""
    needs = {role.name: role.resources for role in shape.roles}
    taken = [(chosen, needs.get(chosen.role, shape.resources)) for chosen in parts]
    for chosen, need in taken:
        ledger.take(chosen, need)
    for chosen, need in reversed(taken):
        ledger.release(chosen, need)


def _books(ledger: Ledger) -> object:
    nodes = [
        (n.taken, n.healthy, n.free, n.shown, n.shown_milli, n.cpu_left, n.memory_left)
        for n in ledger.order
    ]
    shared = [
        {gpu: (d.left_milli, d.left_mib, d.way) for gpu, d in n.shared.items()}
        for n in ledger.order
    ]
    workers = [(n.workers_left, dict(n.extras_used)) for n in ledger.order]
    masks = (list(ledger.at_least), ledger.full, ledger.sharing, ledger.up, ledger.free_milli)
    return nodes, workers, shared, masks, ledger.releases


def _batch(
    events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
) -> JournalBatch:
    return JournalBatch(tuple(events), tuple(decisions), tuple(actions))


def _unfinished(results: Results) -> list[str]:
    return [row.id for row in results.jobs if row.finished_at is None]


def _require(fine: bool, otherwise: str) -> None:  # noqa: FBT001
    if not fine:
        raise AssertionError(otherwise)
