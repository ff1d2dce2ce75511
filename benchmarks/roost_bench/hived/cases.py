"""HiveD's cases as data: events for a core, and what must follow from them.

A file has a cluster, the promises to its queues, and suites of steps. Each suite begins with a
cluster of its own, under a policy that lets jobs pass each other. A step is an event, and may have
a case: then what is expected is compared with what the core says. All goes through ``Core.handle``,
and what the core asks for is reported back at once, but for stops: a run leaves when a step says
that it ``exits``, or when it is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from roost.core import (
    CancelRequested,
    Core,
    Event,
    Evict,
    Exited,
    Job,
    JobId,
    JobSpec,
    Launch,
    NodeChanged,
    NodeCordoned,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    NodeUncordoned,
    Outcome,
    PoolChanged,
    QueueChanged,
    QueueId,
    QueueSpec,
    Range,
    Resources,
    Role,
    RunPhase,
    Started,
    Stop,
    Submitted,
)
from roost.core.cells import parse_promises
from roost.core.cells.site import CellSite, InnerLevel, OuterCell
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.placement import placer
from roost.policies import policy
from roost.testing.promises import broken_promises

BUILTIN = Path(__file__).with_name("builtin.yaml")


class CaseResult(NamedTuple):
    """A case, what it must give, what it gave."""

    case: str
    expected: str
    got: str
    passed: bool


def run_cases(folder: Path | None) -> list[CaseResult]:
    """Run all cases of the files in a folder; None: those that come along."""
    files = [BUILTIN] if folder is None else sorted(folder.glob("*.yaml"))
    if not files:
        raise InvalidSpec(f"{folder} has no files *.yaml with cases")
    return [result for file in files for result in _run_file(file)]


def _run_file(file: Path) -> Iterator[CaseResult]:
    try:
        told = yaml.safe_load(file.read_text())
        suites = told["suites"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise InvalidSpec(f"{file} has no suites of cases: {error}") from error
    for suite in suites:
        world = _World(Core(policy("sjf"), placer("cells")))
        world.build(told, {**told["queues"], **suite.get("queues", {})})
        for step in suite["steps"]:
            yield from world.take(step)


@dataclass(slots=True)
class _World:
    """A core, and a world that does what it asks for."""

    core: Core
    now: float = 0.0
    refused: str = ""
    victims: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    nodes: dict[str, NodeSpec] = field(default_factory=dict)
    inner: dict[str, Any] = field(default_factory=dict)

    def build(self, told: dict[str, Any], queues: dict[str, str]) -> None:
        for group in told["cluster"]:
            for spec in _nodes(group, told["inner"]):
                self.nodes[spec.id] = spec
                self._tell(NodeJoined(0.0, spec))
        self.inner = told["inner"]
        for name, cells in queues.items():
            self._promise(name, cells)

    def take(self, step: dict[str, Any]) -> Iterator[CaseResult]:
        self.now += 1.0
        self.refused, self.victims, self.withdrawn = "", set(), set()
        try:
            self._do(step)
        except (Conflict, NotFound) as error:
            self.refused = str(error)
        if "case" not in step:
            return
        checks = [self._check(what, step, wanted) for what, wanted in step["expect"].items()]
        wrong = broken_promises(self.core, fits=False)
        if self.refused and "refused" not in step["expect"]:
            wrong.append(f"refused: {self.refused}")
        yield CaseResult(
            str(step["case"]),
            "; ".join(f"{what} {wanted}" for what, wanted, _, _ in checks),
            "; ".join([f"{what} {got}" for what, _, got, _ in checks] + wrong),
            all(passed for *_, passed in checks) and not wrong,
        )

    # -- what happens ------------------------------------------------------------------------------

    def _do(self, step: dict[str, Any]) -> None:
        for name in step.get("cancel", ()):
            self._cancel(JobId(name))
        self._rebuild(step.get("rebuild", ()))
        for name, cells in step.get("promise", {}).items():
            self._promise(name, cells)
        kinds: dict[str, Callable[[NodeId], Event]] = {
            "lose": lambda node: NodeLost(self.now, node),
            "join": lambda node: NodeJoined(self.now, self.nodes[node]),
            "cordon": lambda node: NodeCordoned(self.now, node),
            "uncordon": lambda node: NodeUncordoned(self.now, node),
        }
        for word, event in kinds.items():
            if word in step:
                self._tell(event(NodeId(step[word])))
        if "submit" in step:
            self._submit(step)
        if "exits" in step:
            self._exit(JobId(step["exits"]))

    def _promise(self, name: str, cells: str) -> None:
        spec = QueueSpec(QueueId(name), cells=parse_promises(cells), overflows=False)
        self._tell(QueueChanged(self.now, spec))

    def _rebuild(self, groups: Iterable[dict[str, Any]]) -> None:
        """Say of nodes, all at once, where they stand now; new ones join."""
        specs = [spec for group in groups for spec in _nodes(group, self.inner)]
        events: list[Event] = [
            NodeChanged(self.now, spec) if spec.id in self.nodes else NodeJoined(self.now, spec)
            for spec in specs
        ]
        self.nodes.update({spec.id: spec for spec in specs})
        if events:
            self._tell(*events)

    def _submit(self, step: dict[str, Any]) -> None:
        name, pool = step["submit"], ""
        if "pool" in step:
            pool = f"for {name}"
            self._tell(PoolChanged(self.now, pool, frozenset(map(NodeId, step["pool"]))))
        kinds = (step["kind"],) if "kind" in step else ()
        roles: tuple[Role, ...] = ()
        if "beside" in step:
            roles = (Role("other", 1, Resources(gpus=step["beside"], kinds=kinds, pool=pool)),)
        workers = step.get("workers", 1)
        spec = JobSpec(
            Range(workers, workers),
            Resources(gpus=step["gpus"], kinds=kinds, pool=pool),
            roles,
            queue=QueueId(step["queue"]),
            priority=step["priority"],
            cell=step.get("cell", ""),
        )
        self._tell(Submitted(self.now, JobId(name), spec))

    def _cancel(self, name: JobId) -> None:
        self._tell(CancelRequested(self.now, name))
        run = self.core.jobs[name].run
        if run is not None:
            self._tell(Exited(self.now, run.id, Outcome.CANCELLED))

    def _exit(self, name: JobId) -> None:
        run = self.core.jobs[name].run
        if run is not None:
            self._tell(Exited(self.now, run.id, Outcome.STOPPED))

    def _tell(self, *events: Event) -> None:
        """Tell the core, and do what it asks for; stops take their time."""
        todo = [events]
        while todo:
            actions = self.core.handle(*todo.pop(0))
            self.withdrawn |= set(self.core.withdrawn)
            gone = {one.job for one in self.core.decisions if isinstance(one, Evict)}
            self.victims |= {
                action.run.job
                for action in actions
                if isinstance(action, Stop) and action.run.job in gone
            }
            todo += [(Started(self.now, a.run),) for a in actions if isinstance(a, Launch)]

    # -- what is expected --------------------------------------------------------------------------

    def _check(self, what: str, step: dict[str, Any], wanted: Any) -> tuple[str, Any, Any, bool]:
        """What is expected, what is so, and whether that is the same."""
        match what:
            case "at":
                place = self._place(step, str(wanted))
                return what, wanted, place, _gpus(str(wanted)) == _gpus(place)
            case "refused":
                return what, wanted, self.refused, str(wanted) in self.refused
            case "waits":
                runs = self._runs(wanted)
                return what, wanted, "runs" if runs else "waits", not runs
            case "empty":
                empty = not any(run.booked for run in self.core.runs.values())
                empty = empty and not self._claimed() and self.core.waiting.count == 0
                return what, wanted, empty, empty == wanted
            case "broken":
                found: dict[str, int] = {}
                for due, count in self._books().dues.broken():
                    found[due.queue] = found.get(due.queue, 0) + count
                return what, wanted, found, found == wanted
            case "apart":
                nodes = [set(self._nodes_of(name)) for name in wanted]
                return what, wanted, nodes, nodes[0].isdisjoint(nodes[1])
            case _:
                got = sorted(self._names(what, wanted))
                exact = what == "victims"
                return (
                    what,
                    wanted,
                    got,
                    (got == sorted(wanted) if exact else set(wanted) <= set(got)),
                )

    def _names(self, what: str, wanted: Iterable[str]) -> set[str]:
        jobs = self.core.jobs
        match what:
            case "victims":
                return self.victims
            case "withdrawn":
                return self.withdrawn & set(wanted)
            case "claims":
                return self._claimed()
            case "guests":
                return {str(name) for name in jobs if self._runs(name)} - self._claimed()
            case "runs":
                return {str(name) for name in jobs if self._runs(name)}
            case "reserved":
                return {str(name) for name, job in jobs.items() if _is_reserved(job)}
            case "free":
                nodes = self.core.ledger.nodes
                return {name for name in wanted if not nodes[NodeId(name)].taken}
            case _:
                raise InvalidSpec(f"nothing is known of what is expected as {what!r}")

    def _books(self) -> Any:
        return self.core.ledger.cells

    def _claimed(self) -> set[str]:
        return {str(job) for job in self._books().holdings.claims}

    def _runs(self, name: str) -> bool:
        run = self.core.jobs[JobId(name)].run
        return run is not None and run.phase is RunPhase.RUNNING

    def _nodes_of(self, name: str) -> Iterator[str]:
        run = self.core.jobs[JobId(name)].run
        yield from (part.node for part in run.allocation.parts) if run is not None else ()

    def _place(self, step: dict[str, Any], wanted: str) -> str:
        """Where the job of a step runs; without one, that which is on the nodes named."""
        name = step.get("submit")
        nodes = {one.partition(":")[0] for one in wanted.split()}
        for job in self.core.jobs.values():
            run = job.run
            if run is None or run.phase is not RunPhase.RUNNING:
                continue
            mine = job.id == name if name else nodes <= {part.node for part in run.allocation.parts}
            if mine:
                parts = sorted(run.allocation.parts, key=lambda part: part.node)
                return " ".join(f"{part.node}:{','.join(map(str, part.gpus))}" for part in parts)
        return "nowhere"


def _is_reserved(job: Job) -> bool:
    return job.run is not None and job.run.phase is RunPhase.RESERVED


def _gpus(text: str) -> set[tuple[str, int]]:
    """The devices that a text names: 0.0.1.0:0-3,7."""
    found: set[tuple[str, int]] = set()
    for one in text.split():
        node, _, numbers = one.partition(":")
        for part in numbers.split(",") if numbers else ():
            low, _, high = part.partition("-")
            found |= {(node, gpu) for gpu in range(int(low), int(high or low) + 1)}
    return found


def _nodes(group: dict[str, Any], inner: dict[str, Any]) -> Iterator[NodeSpec]:
    """The nodes of a group, each with its site."""
    levels = []
    gpus = 0
    for told in inner[group["inner"]]:
        for level, cells in told.items():
            if level == "gpus":
                gpus = cells
                continue
            levels.append(InnerLevel(level, tuple(map(tuple, cells))))
            gpus = sum(map(len, cells))
    above = tuple(OuterCell(level, name) for level, name in group.get("above", {}).items())
    for name in group["nodes"]:
        site = CellSite(group["tree"], tuple(levels), above)
        yield NodeSpec(NodeId(name), gpus=gpus, kind=group["kind"], site=site)
