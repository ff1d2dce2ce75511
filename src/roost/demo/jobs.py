"""Training jobs that run twice: first in the simulator, then as real processes.

The simulator is told what the server is told: when jobs are submitted, the run times that were
declared for them, the policy, the placer and the slots. Run times are declared from what the
trainer was measured to take on this machine, and so is how much faster two workers are than one.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from roost.errors import Fatal

if TYPE_CHECKING:
    from roost.client import Client, JobView
    from roost.demo.server import ScratchServer
    from roost.traces.workload import TraceJob


_MOST_SLOTS = 4
#: How often to look at jobs on a terminal, and elsewhere: looking costs CPU, too.
_LOOK_S, _GLANCE_S = 0.25, 1.0
_SAMPLE_S = 1.0
_PATIENCE_S = 60.0
_STEPS = re.compile(r"done: (\d+) steps")


@dataclass(frozen=True, slots=True)
class Trainer:
    """A program that trains: what to call it, its command, and how often it saves itself."""

    title: str
    command: tuple[str, ...]
    saves_every_s: float


NUMPY = Trainer("NumPy", ("roost.train.example",), 0.3)
#: Steps long enough that two workers are faster than one.
TORCH = Trainer(
    "PyTorch",
    ("roost.train.example_torch", "--size", "256", "--depth", "3", "--batch", "2048"),
    1.0,
)


def trainer() -> Trainer:
    """The one for this machine: PyTorch's where it is installed."""
    return TORCH if importlib.util.find_spec("torch") else NUMPY


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job: when it is submitted, how long it trains, with how many workers.

    ``killed_at`` is how far it has come when one of its workers is killed; None: none is killed.
    """

    name: str
    at_s: float
    seconds: float
    workers: tuple[int, int] = (1, 1)
    killed_at: float | None = None


class TrainerPace(NamedTuple):
    """What the trainer takes here: seconds beside the steps, and steps in a second."""

    start_s: float
    steps_per_s: float


#: The pace of the trainer by its number of workers.
Paces: TypeAlias = Mapping[int, TrainerPace]


def slots() -> int:
    """How many CPU slots to offer on this machine: enough for a gang, and not too many."""
    return max(2, min(_MOST_SLOTS, len(os.sched_getaffinity(0))))


def document(lesson: TrainingJob, paces: Paces, by: Trainer = NUMPY) -> dict[str, Any]:
    """The job file of a training job, with the run time that is to be expected."""
    low, high = lesson.workers
    start_s, steps_per_s = paces[low]
    steps = max(1, round(lesson.seconds * steps_per_s))
    return {
        **_training(by, lesson.name, f"{low}..{high}", "--steps", str(steps)),
        "run_time": round(start_s + steps / steps_per_s, 3),
        "retry": {"max": 3, "delay": 0},
        "checkpoint": {"every": by.saves_every_s, "restart": round(start_s, 3), "grace": 5},
    }


def _training(by: Trainer, name: str, workers: str, *amount: str) -> dict[str, Any]:
    saves = ("--save-every", f"{by.saves_every_s:g}")
    return {
        "name": name,
        "python": sys.executable,
        "command": ["python", "-m", *by.command, *amount, *saves],
        "workers": workers,
    }


def measure(client: Client, sample_s: float = _SAMPLE_S, by: Trainer = NUMPY) -> Paces:
    """Measure what the trainer takes on this machine, with all slots in use as they will be."""
    return {
        workers: _sample(client, by, slots() // workers, workers, sample_s) for workers in (1, 2)
    }


def _sample(client: Client, by: Trainer, gangs: int, workers: int, sample_s: float) -> TrainerPace:
    """Train a little, so many gangs at once: what it took on average, as they say themselves."""
    sample = _training(by, "sample", str(workers), "--seconds", f"{sample_s:g}")
    handles = [client.submit(sample) for _ in range(gangs)]
    starts_s, steps_s = [], []
    for handle in handles:
        view = handle.wait(_PATIENCE_S)
        check(view)
        found = _STEPS.search("\n".join(handle.logs(tail=5)))
        if found is None or not view.step_s:
            raise Fatal(
                f"job {view.id} does not say how many steps it took, and how long one takes"
            )
        took_s = (view.finished_at or 0.0) - view.submitted_at
        starts_s.append(max(0.0, took_s - int(found[1]) * view.step_s))
        steps_s.append(view.step_s)
    return TrainerPace(statistics.mean(starts_s), 1 / statistics.mean(steps_s))


def check(view: JobView) -> None:
    """Raise Fatal if a job did not succeed."""
    if view.state != "succeeded":
        why = f"{view.verdict.phrase}: {view.verdict.evidence}" if view.verdict else view.reason
        raise Fatal(f"job {view.id} {view.state}: {why}")


def mixed(count: int, mean_s: float) -> list[TrainingJob]:
    """Lessons of many lengths and sizes that come one after the other, as fast as they can run."""
    chance = Random(20)  # noqa: S311 - not for secrets
    gap_s = 1.25 * mean_s / slots()
    return [
        TrainingJob(
            f"mixed-{number}",
            number * gap_s,
            mean_s * chance.choice((0.5, 0.75, 1.0, 1.75)),
            chance.choice(((1, 1), (1, 1), (1, 1), (2, 2))),
        )
        for number in range(count)
    ]


def predict(
    lessons: Sequence[TrainingJob],
    server: ScratchServer,
    nodes: Sequence[Mapping[str, Any]],
    paces: Paces,
    by: Trainer = NUMPY,
) -> dict[str, float]:
    """The completion time of each lesson, by its name, as the simulator sees it."""
    from roost.core.spec import NodeId, NodeSpec
    from roost.perf.speed import Speed
    from roost.placement import placer
    from roost.policies import policy
    from roost.sim.simulation import Setup, Simulation
    from roost.traces.workload import Workload

    machines = [
        NodeSpec(NodeId(n["id"]), n["gpus"], n["kind"], cpu_milli=round(1000 * n["cpus"]))
        for n in nodes
    ]
    setup = Setup(
        Workload("rehearsal", [_recorded(lesson, paces, by) for lesson in lessons]),
        machines,
        policy(server.policy),
        placer(server.placer),
        speed=Speed(scaling=_scaling(paces)),
    )
    rows = Simulation(setup).run().jobs
    return {row.id: row.finished_at - row.submitted_at for row in rows if row.finished_at}


def _scaling(paces: Paces) -> float:
    """The exponent of speed in the number of workers, from what one and two were measured to do."""
    return max(0.0, math.log2(paces[2].steps_per_s / paces[1].steps_per_s))


def _recorded(lesson: TrainingJob, paces: Paces, by: Trainer) -> TraceJob:
    """A lesson as if it had been recorded, with the failure that is planned for it."""
    from roost.core.spec import JobId
    from roost.jobfile import JobFile
    from roost.traces.workload import TraceJob

    spec = JobFile.from_document(document(lesson, paces, by)).spec("")
    work_s, fails_at_s = spec.run_time_s or 0.0, tuple[float, ...]()
    if lesson.killed_at is not None:
        start_s = paces[lesson.workers[0]].start_s
        fails_at_s = (start_s + lesson.killed_at * (work_s - start_s),)
        work_s += by.saves_every_s / 2  # lost since the last checkpoint
    return TraceJob(JobId(lesson.name), lesson.at_s, spec, work_s, fails_at_s=fails_at_s)


def perform(
    lessons: Sequence[TrainingJob],
    client: Client,
    paces: Paces,
    look: Callable[[Mapping[str, JobView]], None] | None = None,
    by: Trainer = NUMPY,
) -> dict[str, JobView]:
    """Submit lessons when their time comes, and wait until all are over; ``look`` sees them."""
    began, every_s = time.monotonic(), _GLANCE_S if look is None else _LOOK_S
    left = sorted(lessons, key=lambda lesson: lesson.at_s)
    names: dict[str, str] = {}
    while True:
        while left and left[0].at_s <= time.monotonic() - began:
            lesson = left.pop(0)
            names[client.submit(document(lesson, paces, by)).id] = lesson.name
        views = {view.id: view for view in client.jobs()}
        found = {name: views[job] for job, name in names.items()}
        if look is not None:
            look(found)
        if not left and all(view.over for view in found.values()):
            return found
        due_s = began + left[0].at_s - time.monotonic() if left else every_s
        time.sleep(max(0.0, min(every_s, due_s)))
