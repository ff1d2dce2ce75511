"""An engine under the control of a test: it answers the core when the test says so.

``FakeEngine`` drives a core as any driver does, keeps the journal, and remembers what the processes
it was asked to start really use. It refuses (``AssertionError``) an action that would put two runs
on one device, so every test that goes through it also tests that no device is over-committed *now*,
not only in the books.

    engine = FakeEngine(core_with(srtf, node("n0")))
    engine.tell(Submitted(1.0, job("a"), spec(8, 900.0)))
    engine.answer(run("a"))                      # Started
    engine.end(run("a"), Outcome.SUCCEEDED)      # Exited
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from roost.core import (
    Action,
    Core,
    Decision,
    Event,
    Exited,
    Launch,
    Migrate,
    Outcome,
    Resize,
    Resized,
    Resume,
    RunId,
    Started,
    Stop,
    Suspend,
    Suspended,
)
from roost.core.transitions import RunPhase
from roost.testing.usage import DeviceUsage, used, worst

__all__ = ["FakeEngine", "JournalBatch", "RunProcess", "overuse"]


class JournalBatch(NamedTuple):
    """What a journal keeps of one call of ``Core.handle``, and the actions that followed."""

    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]
    actions: tuple[Action, ...]


@dataclass(slots=True)
class RunProcess:
    """A run as its world sees it: what it uses, and what it was asked to do and has not done."""

    uses: DeviceUsage
    asked: list[Action] = field(default_factory=list)
    saved_s: float = 0.0
    parked: bool = False


class FakeEngine:
    """Feeds a core, performs its actions in memory, and reports when told."""

    def __init__(self, core: Core, *, now: float = 0.0) -> None:
        self.core = core
        self.now = max(now, core.now)
        self.journal: list[JournalBatch] = []
        self.processes: dict[RunId, RunProcess] = {}
        #: What reports say that it took to do what was asked.
        self.took_s: float | None = None

    @property
    def unanswered(self) -> list[RunId]:
        """Runs that were asked for something and have not done it yet, longest first."""
        return [run_id for run_id, process in self.processes.items() if process.asked]

    @property
    def working(self) -> list[RunId]:
        """Runs that are up, with nothing left to do for the core."""
        return [r for r, process in self.processes.items() if not (process.asked or process.parked)]

    def tell(self, *events: Event) -> list[Action]:
        """Hand a batch to the core, note it in the journal, and begin what it asks for."""
        actions = self.core.handle(*events)
        self.now = self.core.now
        self.journal.append(JournalBatch(events, tuple(self.core.decisions), tuple(actions)))
        for action in actions:
            self._begin(action)
        return actions

    def answer(self, run_id: RunId, *, after_s: float = 0.0) -> list[Action]:
        """Do what a run was asked first and not done yet, and report it."""
        self.now += after_s
        return self.tell(self._do(run_id))

    def answer_each(self) -> list[Action]:
        """Do what every run was asked first and not done yet, and report it in one batch."""
        return self.tell(*(self._do(run_id) for run_id in self.unanswered))

    def answer_all(self, *, rounds: int = 1000) -> None:
        """Do everything that was asked, and what the core asks then, until nothing is left."""
        for _ in range(rounds):
            if not self.unanswered:
                return
            self.answer_each()
        msg = f"after {rounds} rounds the core still asks for something: {self.unanswered}"
        raise AssertionError(msg)

    def end(
        self,
        run_id: RunId,
        outcome: Outcome,
        saved_s: float | None = None,
        *,
        final: bool = False,
        delay_s: float = 0.0,
    ) -> list[Action]:
        """Let a run be over, whatever it was asked."""
        process = self.processes.pop(run_id)
        saved_s = process.saved_s if saved_s is None else saved_s
        return self.tell(Exited(self.now, run_id, outcome, saved_s, final, delay_s))

    # -- what it does --------------------------------------------------------------------------

    def _begin(self, action: Action) -> None:
        match action:
            case Launch():
                if action.run in self.processes:
                    msg = f"{action.run} is launched twice"
                    raise AssertionError(msg)
                running = [r for r in self.processes if r.job == action.run.job]
                if running:
                    msg = f"{action.run} is launched while {running} of the same job lives"
                    raise AssertionError(msg)
                uses = used(action.spec, action.allocation)
                saved_s = self.core.jobs[action.run.job].saved_s
                self.processes[action.run] = RunProcess(uses, [action], saved_s)
            case Resume():
                process = self.processes[action.run]
                process.uses = used(self.core.jobs[action.run.job].spec, action.allocation)
                process.parked = False
                process.asked.append(action)
            case Resize() | Migrate():
                process = self.processes[action.run]
                new = used(self.core.jobs[action.run.job].spec, action.allocation)
                process.uses = worst(process.uses, new)
                process.asked.append(action)
            case Suspend() | Stop():
                # A run that is over already has nothing to stop; its report is on its way.
                if action.run in self.processes:
                    self.processes[action.run].asked.append(action)
                return
            case _:
                assert_never(action)
        self._check(action)

    def _do(self, run_id: RunId) -> Event:
        process = self.processes[run_id]
        action = process.asked.pop(0)
        match action:
            case Launch() | Resume():
                return Started(self.now, run_id, self.took_s)
            case Resize() | Migrate():
                spec = self.core.jobs[run_id.job].spec
                process.uses = used(spec, action.allocation)
                return Resized(self.now, run_id, self.took_s, self.took_s)
            case Suspend():
                run = self.core.runs.get(run_id)
                process.parked = True
                if run is None or run.activity is not RunPhase.FREEZING:
                    process.uses = DeviceUsage()
                process.saved_s = run.done(self.now) if run is not None else 0.0
                return Suspended(self.now, run_id, process.saved_s, self.took_s)
            case Stop():
                del self.processes[run_id]
                return Exited(self.now, run_id, Outcome.STOPPED, process.saved_s)
            case _:
                assert_never(action)

    def _check(self, action: Action) -> None:
        problems = overuse(self.core, (process.uses for process in self.processes.values()))
        if problems:
            msg = f"{action} over-commits: {'; '.join(problems)}"
            raise AssertionError(msg)


def overuse(core: Core, usages: Iterable[DeviceUsage]) -> list[str]:
    """What several uses together take beyond what nodes have."""
    total = DeviceUsage()
    for usage in usages:
        total.add(usage)
    return total.beyond({name: node.spec for name, node in core.ledger.nodes.items()})
