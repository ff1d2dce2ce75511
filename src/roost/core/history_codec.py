"""The part of a snapshot that is history: what jobs told about those to come.

Records are in the order in which the history keeps them, so that what is forgotten first stays so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from roost.core.history import History, Profile, Spending, Spent
from roost.core.observed import Company, Mean, Observed, Setting, Timing


class SuccessRecord(NamedTuple):
    """How many jobs of a user's application succeeded, and the work they took in all."""

    user: str
    application: str
    jobs: int
    work_s: float


class StepRecord(NamedTuple):
    """The mean time of a step with so many workers that hold such a share each."""

    workers: int
    share_milli: int
    samples: int
    mean_s: float


class TimingRecord(NamedTuple):
    """How long a step took in a setting, and its synchronisation; both with how often seen."""

    setting: Setting
    steps: int
    step_s: float
    syncs: int = 0
    sync_s: float = 0.0


class SharedRecord(NamedTuple):
    """How long a step took beside other runs, and how often that was seen."""

    company: Company
    steps: int
    step_s: float


class ObservedRecord(NamedTuple):
    """What was observed of a job or an application; see ``Observed``."""

    timings: tuple[TimingRecord, ...] = ()
    noise: float | None = None
    noises: tuple[tuple[int, float], ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    epochs: float = 0.0
    version: int = 0
    shared: tuple[SharedRecord, ...] = ()


class ProfileRecord(NamedTuple):
    """What was measured of a user's application; see ``Profile``."""

    user: str
    application: str
    steps: tuple[StepRecord, ...]
    memory_mib: int = 0
    noise: float | None = None
    looks: int = 0
    busy: float = 0.0
    observed: ObservedRecord | None = None


class CostRecord(NamedTuple):
    """What was spent so often, and how much on average; see ``Spent``."""

    what: Spending
    samples: int
    mean_s: float


class SpentRecord(NamedTuple):
    """What it took to disturb jobs of a user's application."""

    user: str
    application: str
    costs: tuple[CostRecord, ...]


_NOTHING = ObservedRecord()


def success_records(history: History) -> tuple[SuccessRecord, ...]:
    """How many jobs succeeded, by user and application."""
    succeeded = history._succeeded  # noqa: SLF001 - its own other half
    return tuple(SuccessRecord(*key, jobs, work_s) for key, (jobs, work_s) in succeeded.items())


def profile_records(history: History) -> tuple[ProfileRecord, ...]:
    """What was measured of applications."""
    return tuple(
        ProfileRecord(
            *key,
            tuple(StepRecord(*size, mean.count, mean.mean) for size, mean in profile.steps.items()),
            profile.memory_mib,
            profile.noise,
            profile.busy.count,
            profile.busy.mean,
            encode_observed(profile.observed),
        )
        for key, profile in history.profiles.items()
    )


def encode_observed(observed: Observed | None) -> ObservedRecord | None:
    """What was observed, to be kept."""
    if observed is None or not (observed.version or observed.noises or observed.losses):
        return None
    return ObservedRecord(
        tuple(
            TimingRecord(setting, one.step.count, one.step.mean, one.sync.count, one.sync.mean)
            for setting, one in observed.timings.items()
        ),
        observed.noise,
        tuple(observed.noises.items()),
        tuple(observed.losses.items()),
        observed.epochs,
        observed.version,
        tuple(SharedRecord(at, one.count, one.mean) for at, one in observed.shared.items()),
    )


def decode_observed(watched: ObservedRecord) -> Observed:
    """What was kept, as it was observed."""
    timings = {
        one.setting: Timing(Mean(one.steps, one.step_s), Mean(one.syncs, one.sync_s))
        for one in watched.timings
    }
    noises, losses = dict(watched.noises), dict(watched.losses)
    shared = {one.company: Mean(one.steps, one.step_s) for one in watched.shared}
    told = (watched.noise, noises, losses, watched.epochs, watched.version)
    return Observed(timings, *told, shared)


def spent_records(history: History) -> tuple[SpentRecord, ...]:
    """What it took to disturb jobs."""
    return tuple(SpentRecord(*key, tuple(_costs(spent))) for key, spent in history.costs.items())


def _costs(spent: Spent) -> Iterable[CostRecord]:
    for what in Spending:
        mean: Mean = getattr(spent, what.value)
        if mean.count:
            yield CostRecord(what, mean.count, mean.mean)


def restore(
    history: History,
    past: Iterable[SuccessRecord],
    seen: Iterable[ProfileRecord],
    disturbed: Iterable[SpentRecord],
) -> None:
    """Put what was kept into an empty history."""
    history._succeeded.update(  # noqa: SLF001 - its own other half
        ((one.user, one.application), (one.jobs, one.work_s)) for one in past
    )
    for app in seen:
        steps = {
            (step.workers, step.share_milli): Mean(step.samples, step.mean_s) for step in app.steps
        }
        busy = Mean(app.looks, app.busy)
        profile = Profile(
            steps, app.memory_mib, app.noise, busy, decode_observed(app.observed or _NOTHING)
        )
        history.profiles[app.user, app.application] = profile
    for one in disturbed:
        means = {cost.what.value: Mean(cost.samples, cost.mean_s) for cost in one.costs}
        history.costs[one.user, one.application] = Spent(**means)
