"""Profile tables of Sia's benchmark (SOSP'23): how long a step takes, and what a batch is worth.

A folder ``profiles/<application>/`` holds three kinds of tables for each application.
``placements-<machine>.csv`` has the measured step and synchronisation time by placement (a digit
per node: its GPUs) and samples per GPU; ``scalability-<machine>.csv`` the same by nodes and
replicas, for what is too large to try every placement of; ``validation-<batch>.csv`` the progress
and the gradient's squared norm and variance after each epoch at that batch size. Progress counts
in steps at the smallest of these batch sizes, the one for which the application was tuned.

What no table says, the cost of a restart and the calibration of speed, is from the simulator that
comes with the tables. Here is the truth of that benchmark: only a simulated world may read it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from roost.errors import Fatal, InvalidSpec, NotFound
from roost.traces.rows import Reading, TableRow

if TYPE_CHECKING:
    from scipy.interpolate import LinearNDInterpolator

#: GPUs on each node that a job touches, in order.
Counts: TypeAlias = tuple[int, ...]

#: The machines in the names of the files, by the kind of their GPUs.
MACHINES = {"T4": "aws", "RTX2080Ti": "rtx", "A100": "dgx-ext"}
#: GPUs of one machine.
PER_NODE = {"T4": 4, "RTX2080Ti": 8, "A100": 8}

#: Tables end at so many nodes; more are taken for as many.
_MOST_NODES = 16
_HOUR_S = 3600.0
#: Numbers in tables of gradients may be as large.
_HUGE = 1e30
#: In some epochs no norm was left beside the noise: a gain as large as the batch, but no infinity.
_NOISIEST = 1e9
#: Among how many totals the best batch size is sought.
_TOTALS = 40
#: What rounding errors may add to a whole number.
_HAIR = 1e-9


class Constants(NamedTuple):
    """What the tables do not say of an application.

    ``penalty_s`` is how long its GPUs stand still at every start and restart, ``slowdown`` the
    factor by which steps of a real cluster were longer than the profiled ones.
    """

    penalty_s: float = 30.0
    slowdown: float = 1.0


CONSTANTS = {
    "cifar10": Constants(50.0, 1.8),
    "deepspeech2": Constants(25.0, 1.2),
    "bert": Constants(120.0, 1.2),
    "yolov3": Constants(80.0, 1.2),
    "imagenet": Constants(250.0, 1.2),
}
#: Samples per GPU at most where the table goes further than memory does.
_LOCAL_MAX = {("deepspeech2", "RTX2080Ti"): 57}


class ProfiledStep(NamedTuple):
    """Seconds of one step, and of its part that synchronises the gradients."""

    step_s: float
    sync_s: float

    def accumulated(self, accumulation: int) -> float:
        """Seconds of a step that adds up so many more micro-batches before it synchronises."""
        return self.step_s + accumulation * (self.step_s - self.sync_s)


class Choice(NamedTuple):
    """A batch size: samples per GPU at once, and how often more before a step is taken."""

    local: int
    accumulation: int

    def total(self, workers: int) -> int:
        """Samples of a step with so many workers."""
        return workers * self.local * (self.accumulation + 1)


class StepLookup(Protocol):
    """Step times of an application on GPUs of one kind, and the samples that a GPU takes."""

    @property
    def local_min(self) -> int:
        """The fewest samples per GPU."""

    @property
    def local_max(self) -> int:
        """The most samples per GPU, wherever it is."""

    def time(self, counts: Counts, local: int) -> ProfiledStep:
        """The time of a step on nodes with so many GPUs each, at so many samples per GPU."""

    def most_local(self, counts: Counts) -> int:
        """The most samples per GPU on nodes with so many GPUs each."""

    def alone(self) -> float:
        """Samples per second of one GPU."""


@dataclass(slots=True)
class StepTable:
    """Step times of an application on GPUs of one kind."""

    name: str
    kind: str
    local_min: int
    local_max: int
    _lines: dict[Counts, tuple[list[int], list[ProfiledStep]]]
    _points: dict[tuple[int, int, int], list[ProfiledStep]]
    _grid: list[tuple[int, int, int, ProfiledStep]]
    _largest: dict[int, int] = field(default_factory=dict)
    _memo: dict[tuple[Counts, int], ProfiledStep] = field(default_factory=dict)
    _between: dict[tuple[int, int], int] = field(default_factory=dict)
    _field: LinearNDInterpolator | None = None

    def time(self, counts: Counts, local: int) -> ProfiledStep:
        """The time of a step on nodes with so many GPUs each, at so many samples per GPU."""
        found = self._memo.get((counts, local))
        if found is None:
            found = self._memo[counts, local] = self._look_up(counts, local)
        return found

    def most_local(self, counts: Counts) -> int:
        """The most samples per GPU that were profiled for this placement, or for its size.

        Between sizes of which one was profiled further than the other, it is in between as well.
        """
        known = self._lines.get(_rotated(counts))
        if known is not None:
            return min(known[0][-1], self.local_max)
        nodes, workers = len(counts), sum(counts)
        found = self._between.get((nodes, workers))
        if found is None:
            found = min(self._largest_at(workers), self.local_max)
            while found > self.local_min and self._interpolate(nodes, workers, found) is None:
                found -= 1
            self._between[nodes, workers] = found
        return found

    def alone(self) -> float:
        """Samples per second of one GPU: the largest profiled batch by its longest step."""
        locals_, times = self._lines[1,]
        return locals_[-1] / max(time.step_s for time in times)

    def _look_up(self, counts: Counts, local: int) -> ProfiledStep:
        known = self._lines.get(_rotated(counts))
        if known is not None:
            found = _between(*known, local)
        else:
            found = self._interpolate(len(counts), sum(counts), local)
        if found is None:
            raise Fatal(
                f"no step time of {self.name} on {self.kind} for GPUs {counts} per node and "
                f"{local} samples per GPU: that is beyond what was profiled"
            )
        return found

    def _interpolate(self, nodes: int, workers: int, local: int) -> ProfiledStep | None:
        if self._field is None:
            self._field = self._make_field()
        step, sync = self._field((min(nodes, _MOST_NODES), workers, local))
        return ProfiledStep(float(step), float(sync)) if step == step else None  # noqa: PLR0124 - NaN

    def _make_field(self) -> LinearNDInterpolator:
        from scipy.interpolate import LinearNDInterpolator  # noqa: PLC0415 - slow to import

        rows = [(*key, _mean(times)) for key, times in self._points.items()]
        rows += self._grid
        return LinearNDInterpolator([row[:3] for row in rows], [row[3] for row in rows])

    def _largest_at(self, workers: int) -> int:
        """The most samples profiled for that size or, if it was not, for its neighbours."""
        if not self._largest:
            for _, size, local in [*self._points, *(row[:3] for row in self._grid)]:
                self._largest[size] = max(local, self._largest.get(size, 0))
        found = self._largest.get(workers)
        if found is not None:
            return found
        sizes = sorted(self._largest)
        at = bisect_left(sizes, workers)
        return min(self._largest[size] for size in sizes[max(at - 1, 0) : at + 1])


@dataclass(slots=True)
class Application:
    """Everything that is true of an application.

    ``progress`` is the work at the end of each epoch, the last of them all its work; ``batch`` the
    batch size at which it was tuned, ``batch_max`` the largest it may use.
    """

    name: str
    batch: int
    batch_max: int
    penalty_s: float
    slowdown: float
    progress: list[float]
    steps: Mapping[str, StepLookup]
    _batches: list[int]
    _gradients: list[list[tuple[float, float]]]
    _memo: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def epochs(self) -> int:
        """Passes over the data in all."""
        return len(self.progress)

    @property
    def work(self) -> float:
        """All its work, in steps at ``batch``."""
        return self.progress[-1]

    def gradient(self, total: int, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient in an epoch, at a batch size."""
        found = self._memo.get((total, epoch))
        if found is None:
            found = self._memo[total, epoch] = self._gradient(total, epoch)
        return found

    def _gradient(self, total: int, epoch: int) -> tuple[float, float]:
        batches = self._batches
        at = min(max(bisect_right(batches, total), 1), len(batches) - 1)
        low, high = batches[at - 1], batches[at]
        share = min(max((total - low) / (high - low), 0.0), 1.0)
        first, second = self._gradients[at - 1][epoch], self._gradients[at][epoch]
        return (
            first[0] + share * (second[0] - first[0]),
            first[1] + share * (second[1] - first[1]),
        )

    def gain(self, total: int, epoch: int) -> float:
        """Work that one step of that batch size does, in steps at ``batch``."""
        norm, variance = self.gradient(total, epoch)
        if not variance:
            return 1.0
        return (variance + norm) / (variance * self.batch / total + norm)

    def noise(self, total: int, epoch: int) -> float:
        """The gradient noise scale in samples, as a run at that batch size would see it."""
        norm, variance = self.gradient(total, epoch)
        return self.batch * min(variance / norm if norm else math.inf, _NOISIEST)

    def rate(self, kind: str, counts: Counts, choice: Choice, epoch: int) -> float:
        """Work per second, in steps at ``batch``."""
        step_s = self.steps[kind].time(counts, choice.local).accumulated(choice.accumulation)
        return self.gain(choice.total(sum(counts)), epoch) / step_s / self.slowdown


class Tables:
    """The applications of a folder of profiles."""

    def __init__(self, applications: Mapping[str, Application]) -> None:
        self.applications = dict(applications)

    def __getitem__(self, name: str) -> Application:
        found = self.applications.get(name)
        if found is None:
            known = ", ".join(self.applications)
            raise NotFound(f"no profiles of application {name!r}; there are those of {known}")
        return found

    def isolated_hours(self, name: str, kind: str, gpus: int) -> float:
        """Hours that a job takes alone on so many GPUs, with the best batch in every epoch.

        The best is sought among 40 totals at geometric steps from the least to the largest: with
        so many the published reference values come out to a part in a thousand, while a finer
        search finds up to 5 % more where a profile is jagged.
        """
        application = self[name]
        counts = contiguous(kind, gpus)
        done, hours = 0.0, 0.0
        choices = _choices(application, kind, counts)
        for epoch, reached in enumerate(application.progress):
            best = max(application.rate(kind, counts, choice, epoch) for choice in choices)
            hours += (reached - done) / best / _HOUR_S
            done = reached
        return hours


def read_profiles(folder: str | Path, names: Iterable[str] = CONSTANTS) -> Tables:
    """Read the profiles of applications; raises NotFound or InvalidSpec and names the file."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFound(f"no folder of profiles: {folder}")
    return Tables({name: _application(folder / name, name) for name in names})


def contiguous(kind: str, gpus: int) -> Counts:
    """So many GPUs of a kind on as few nodes as can be: full ones, and a rest."""
    whole, rest = divmod(gpus, PER_NODE[kind])
    return (*[PER_NODE[kind]] * whole, *([rest] if rest else []))


# -- reading -----------------------------------------------------------------------------------


def _application(folder: Path, name: str) -> Application:
    if not folder.is_dir():
        raise NotFound(f"no profiles of application {name!r}: there is no folder {folder}")
    batches = sorted(_batch_size(path) for path in folder.glob("validation-*.csv"))
    if len(batches) < 2:  # noqa: PLR2004 - nothing to interpolate between
        raise InvalidSpec(f"{folder}: expected at least two tables validation-<batch>.csv")
    tables = [_validation(folder / f"validation-{batch}.csv") for batch in batches]
    epochs = len(tables[0])
    for batch, table in zip(batches, tables, strict=True):
        if len(table) != epochs:
            raise InvalidSpec(
                f"{folder / f'validation-{batch}.csv'}: expected {epochs} epochs as in "
                f"validation-{batches[0]}.csv, found {len(table)}"
            )
    constants = CONSTANTS.get(name, Constants())
    return Application(
        name=name,
        batch=batches[0],
        batch_max=batches[-1],
        penalty_s=constants.penalty_s,
        slowdown=constants.slowdown,
        progress=[min(table[epoch][0] for table in tables) for epoch in range(epochs)],
        steps={kind: _steps(folder, name, kind) for kind in MACHINES},
        _batches=batches,
        _gradients=[[row[1:] for row in table] for table in tables],
    )


def _batch_size(path: Path) -> int:
    text = path.stem.removeprefix("validation-")
    if not text.isdecimal():
        raise InvalidSpec(f"{path}: expected a batch size in the name, found {text!r}")
    return int(text)


def _validation(path: Path) -> list[tuple[float, float, float]]:
    rows = Reading(path).rows("progress", "grad_sqr", "grad_var")
    table: list[tuple[float, float, float]] = []
    for row in rows:
        progress = row.number("progress")
        if table and progress <= table[-1][0]:
            raise row.bad("progress", "more than in the line above", row.cell("progress"))
        gradient = row.number("grad_sqr", high=_HUGE), row.number("grad_var", high=_HUGE)
        table.append((progress, *gradient))
    if not table:
        raise InvalidSpec(f"{path}: the table has no rows")
    return table


def _steps(folder: Path, name: str, kind: str) -> StepTable:
    machine = MACHINES[kind]
    placements: dict[Counts, dict[int, ProfiledStep]] = {}
    points: dict[tuple[int, int, int], list[ProfiledStep]] = {}
    path = folder / f"placements-{machine}.csv"
    for row in Reading(path).rows("placement", "local_bsz", "step_time", "sync_time"):
        digits = row.text("placement")
        if not digits.isdecimal() or "0" in digits:
            raise row.bad("placement", "a digit from 1 to 9 for each node", digits)
        counts, local, time = tuple(map(int, digits)), row.whole("local_bsz", low=1), _time(row)
        placements.setdefault(counts, {})[local] = time
        points.setdefault((len(counts), sum(counts), local), []).append(time)
    if (1,) not in placements:
        raise InvalidSpec(f"{path}: column 'placement' has no rows of one GPU (placement 1)")
    locals_ = [local for line in placements.values() for local in line]
    return StepTable(
        name=name,
        kind=kind,
        local_min=min(locals_),
        local_max=min(max(locals_), _LOCAL_MAX.get((name, kind), max(locals_))),
        _lines={counts: _sorted(line) for counts, line in placements.items()},
        _points=points,
        _grid=_grid(folder / f"scalability-{machine}.csv"),
    )


def _grid(path: Path) -> list[tuple[int, int, int, ProfiledStep]]:
    sizes = ("num_nodes", "num_replicas", "local_bsz")
    grid = []
    for row in Reading(path).rows(*sizes, "step_time", "sync_time"):
        nodes, workers, local = (row.whole(size, low=1) for size in sizes)
        grid.append((nodes, workers, local, _time(row)))
    return grid


def _time(row: TableRow) -> ProfiledStep:
    step_s = row.number("step_time")
    if not step_s:
        raise row.bad("step_time", "a number above 0", row.cell("step_time"))
    return ProfiledStep(step_s, row.number("sync_time", high=step_s))


def _sorted(line: Mapping[int, ProfiledStep]) -> tuple[list[int], list[ProfiledStep]]:
    locals_ = sorted(line)
    return locals_, [line[local] for local in locals_]


# -- arithmetic --------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _rotated(counts: Counts) -> Counts:
    """The smallest of the rotations of a placement: how the tables name it."""
    return min(counts[at:] + counts[:at] for at in range(len(counts)))


def _between(
    locals_: Sequence[int], times: Sequence[ProfiledStep], local: int
) -> ProfiledStep | None:
    """Step times interpolated over samples per GPU; None outside what was profiled."""
    if not locals_[0] <= local <= locals_[-1]:
        return None
    at = bisect_left(locals_, local)
    if locals_[at] == local:
        return times[at]
    low, high = times[at - 1], times[at]
    share = (local - locals_[at - 1]) / (locals_[at] - locals_[at - 1])
    return ProfiledStep(
        low.step_s + share * (high.step_s - low.step_s),
        low.sync_s + share * (high.sync_s - low.sync_s),
    )


def _mean(times: Sequence[ProfiledStep]) -> ProfiledStep:
    return ProfiledStep(
        sum(time.step_s for time in times) / len(times),
        sum(time.sync_s for time in times) / len(times),
    )


def _choices(application: Application, kind: str, counts: Counts) -> set[Choice]:
    """Batch sizes at geometric steps that a job may use there, in as few micro-batches as fit."""
    steps, workers = application.steps[kind], sum(counts)
    most = steps.most_local(counts)
    low = max(application.batch, steps.local_min * workers)
    ratio = (application.batch_max / low) ** (1 / (_TOTALS - 1))
    found = set()
    for number in range(_TOTALS):
        share = low * ratio**number / workers
        accumulation = math.ceil(share / most - _HAIR) - 1
        if workers == 1 and number:
            # The noise of a gradient cannot be told from one micro-batch alone.
            accumulation = max(accumulation, 1)
        choice = Choice(math.ceil(share / (accumulation + 1) - _HAIR), accumulation)
        if choice.local >= steps.local_min and choice.total(workers) <= application.batch_max:
            found.add(choice)
    return found
