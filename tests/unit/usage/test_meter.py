"""The meter on short stories; long random ones are in ``tests/property/test_usage.py``."""

from __future__ import annotations

from roost.core import (
    Exited,
    GpuFailed,
    Measured,
    NodeCordoned,
    NodeId,
    Outcome,
    Started,
    Submitted,
)
from roost.jobs.history import touched
from roost.policies import policy
from roost.testing.builders import core_with, job, node, run, spec
from roost.testing.engine import FakeEngine
from roost.usage.meter import Meter
from roost.usage.spells import AnySpell, NodeSpell, Spell


class Story:
    """A core of one node with four GPUs, and its meter."""

    def __init__(self) -> None:
        self.engine = FakeEngine(core_with(policy("fifo"), node("n0", 4, kind="A100")))
        self.meter = Meter(lambda name: {"team": f"team of {name}"})
        self.spells: dict[int, AnySpell] = {}

    def tell(self, *events: object) -> None:
        for event in events:
            if isinstance(event, Exited):
                del self.engine.processes[event.run]
        actions = self.engine.tell(*events)  # type: ignore[arg-type]
        core = self.engine.core
        for spell in self.meter.fold(core, events, touched(core, events, actions)):  # type: ignore[arg-type]
            self.spells[spell.n] = spell

    @property
    def of_jobs(self) -> list[Spell]:
        return [spell for spell in self.spells.values() if isinstance(spell, Spell)]


def test_a_run_holds_from_its_launch_until_it_has_left() -> None:
    story = Story()
    story.tell(Submitted(10.0, job("a"), spec(2, 100.0, user="ada")))
    story.tell(Started(12.0, run("a")))
    story.tell(Exited(70.5, run("a"), Outcome.SUCCEEDED, 58.5))
    (spell,) = story.of_jobs
    assert (spell.begin_ms, spell.end_ms, spell.gpu_milli) == (10_000, 70_500, 2000)
    assert (spell.node, spell.kind, spell.user) == ("n0", "A100", "ada")
    assert spell.labels == (("team", "team of a"),)
    assert spell.lost == 0


def test_a_job_that_finds_no_room_waits() -> None:
    story = Story()
    story.tell(Submitted(0.0, job("a"), spec(4)), Submitted(0.0, job("b"), spec(3)))
    story.tell(Started(1.0, run("a")))
    story.tell(Exited(5.0, run("a"), Outcome.SUCCEEDED))
    waits = [spell for spell in story.of_jobs if not spell.node]
    assert [(spell.job, spell.begin_ms, spell.end_ms, spell.gpu_milli) for spell in waits] == [
        ("b", 0, 5000, 3000)
    ]


def test_lost_work_is_blamed() -> None:
    story = Story()
    story.tell(Submitted(0.0, job("a"), spec(4, 1000.0, max_retries=3)))
    story.tell(Started(0.0, run("a")))
    story.tell(Exited(100.0, run("a"), Outcome.FAILED, 60.0))
    story.tell(Started(100.0, run("a", 2)))
    story.tell(GpuFailed(150.0, NodeId("n0"), 1))
    story.tell(Exited(151.0, run("a", 2), Outcome.STOPPED, 60.0))
    lost = {spell.attempt: (spell.lost, spell.blame) for spell in story.of_jobs if spell.lost}
    assert lost[1] == (40 * 4 * 1_000_000, "job")
    assert lost[2][1] == "platform"


def test_devices_are_as_busy_as_was_measured() -> None:
    story = Story()
    story.tell(Submitted(0.0, job("a"), spec(2)))
    story.tell(Started(0.0, run("a")))
    story.tell(Measured(10.0, run("a"), 1, 0.0, busy=0.25))
    story.tell(Measured(30.0, run("a"), 1, 0.0, busy=1.0))
    story.tell(Exited(40.0, run("a"), Outcome.SUCCEEDED))
    (spell,) = story.of_jobs
    assert spell.measured == 30_000 * 2000
    assert spell.busy == 10_000 * 2000 // 4 + 20_000 * 2000


def test_what_is_not_held_on_a_cordoned_node_is_out_of_service() -> None:
    story = Story()
    story.tell(Submitted(0.0, job("a"), spec(3)))
    story.tell(Started(0.0, run("a")))
    story.tell(NodeCordoned(10.0, NodeId("n0")))
    story.tell(Exited(20.0, run("a"), Outcome.SUCCEEDED))
    nodes = [spell for spell in story.spells.values() if isinstance(spell, NodeSpell)]
    assert [(one.begin_ms, one.end_ms, one.out_milli) for one in nodes] == [
        (0, 10_000, 0),
        (10_000, 20_000, 1000),
        (20_000, None, 4000),
    ]
