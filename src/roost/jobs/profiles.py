"""What was learned of applications, shown, and held against jobs that cannot fit.

The core folds what engines measure into a profile for each user's application
(``core.history``). A share of a GPU with less memory than that application was seen to need is
refused before it fails; users that know better give the job another
``application``. The models that policies plan with (``roost.perf``) predict a step at other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from roost.api.profiles import (
    ChangeCostView,
    PredictionView,
    ProfileView,
    SizeView,
    SpeedModelView,
)
from roost.api.schema import encode
from roost.core import WHOLE, Core, JobSpec
from roost.core.history import Profile, Spent
from roost.core.observed import Observed, Setting
from roost.core.spec import CPU_SLOT
from roost.jobs.amounts import counted, together

if TYPE_CHECKING:
    from roost.perf.kinds import Estimates, Fit

_GIB = 1024
#: Shares are told in hundredths.
_STEP = 10
#: To fit a model takes milliseconds, in which nothing else is served: so many at once at most.
_MODELS = 20
#: Sizes are foretold up to so many times the largest that was seen.
_BEYOND = 4


def profile_views(core: Core, user: str | None, application: str = "") -> list[dict[str, Any]]:
    """Profiles by user and application, for JSON."""
    history, specs = core.history, _specs(core)
    found = [
        (owner, name)
        for owner, name in sorted(history.profiles.keys() | history.costs.keys())
        if user in (None, owner) and application in ("", name)
    ]
    views = []
    for key in found:
        profile = history.profiles.get(key) or Profile()
        many = len(found) > _MODELS
        views.append(
            ProfileView(
                user=key[0],
                application=key[1],
                memory_mib=profile.memory_mib,
                noise=profile.noise,
                busy=profile.busy.mean if profile.busy.count else None,
                sizes=_sizes_seen(profile),
                models=() if many else _models(core, profile.observed, specs.get(key)),
                costs=_costs(history.costs.get(key) or Spent()),
            )
        )
    return [encode(view) for view in views]


def _sizes_seen(profile: Profile) -> tuple[SizeView, ...]:
    return tuple(
        SizeView(
            workers=workers,
            share=share / WHOLE,
            step_s=steps.mean,
            count=steps.count,
            speed=profile.rate(workers, share),
        )
        for (workers, share), steps in sorted(profile.steps.items())
    )


def _specs(core: Core) -> dict[tuple[str, str], JobSpec]:
    """The last job of each application that says how it learns."""
    specs = (job.spec for job in core.jobs.values())
    return {(spec.user, spec.application): spec for spec in specs if spec.training is not None}


def _models(core: Core, observed: Observed, last: JobSpec | None) -> tuple[SpeedModelView, ...]:
    """What a step is expected to take by kind and size, beside what it was seen to take.

    The batch of all workers is the one that was seen most often on that kind. ``error`` is relative
    and one standard deviation. Nothing is foretold of kinds of which no batch is known. Whether
    there is a pipeline is told by the ``last`` job of the application.
    """
    if not observed.timings:
        return ()
    from roost.perf.kinds import shape_of  # noqa: PLC0415 - as below

    split = None if last is None else shape_of(last.training, last.resources.gpus)
    fits = _estimates().fits(observed, shape=split)
    return tuple(_model(core, observed, kind, fit) for kind, fit in sorted(fits.items()))


@cache
def _estimates() -> Estimates:
    from roost.perf.kinds import Estimates  # noqa: PLC0415 - numpy: not before it is needed

    return Estimates(_MODELS)


def _model(core: Core, observed: Observed, kind: str, fit: Fit) -> SpeedModelView:
    import numpy as np  # noqa: PLC0415 - as above

    from roost.perf.uncertainty import believe  # noqa: PLC0415 - as above

    seen = {at: one for at, one in observed.timings.items() if at.kind == kind and not at.servers}
    usual = max((at for at in seen if at.local_batch), key=lambda at: seen[at].step.count)
    batch = usual.workers * usual.local_batch
    gpus = 1 if fit.shape is None else fit.shape.gpus
    nodes, workers = np.array(_sizes(core, kind, seen, gpus)).T
    local, belief = -(-batch // workers), believe(fit)
    steps, errors = belief.pace.step_s(nodes, workers, local), belief.error(nodes, workers, local)
    rows = []
    for spread, size, each, step_s, error in np.column_stack(
        [nodes, workers, local, steps, errors]
    ).tolist():
        setting = Setting(kind, int(spread), int(size), int(each))
        timing = seen.get(setting)
        rows.append(
            PredictionView(
                nodes=setting.nodes,
                workers=setting.workers,
                local_batch=setting.local_batch,
                step_s=step_s,
                error=error,
                samples_per_s=batch / step_s,
                measured_s=None if timing is None else timing.step.mean,
                count=0 if timing is None else timing.step.count,
            )
        )
    return SpeedModelView(kind, batch, tuple(rows))


def _sizes(
    core: Core, kind: str, seen: Mapping[Setting, object], each: int
) -> list[tuple[int, int]]:
    """Nodes and workers of ``each`` GPUs: those seen, and powers of two that there is room for."""
    known = {(at.nodes, at.workers) for at in seen}
    whole, _, _ = kind.partition(":")
    room = [node.spec.gpus // each for node in core.ledger.order if node.spec.kind == whole]
    most = min(sum(room), _BEYOND * max(workers for _, workers in known))
    here = max(room, default=1) or 1
    sizes = {workers for _, workers in known}
    more = [1 << power for power in range(most.bit_length())]
    return sorted(known | {(-(-size // here), size) for size in more if size not in sizes})


def _costs(spent: Spent) -> dict[str, ChangeCostView]:
    means = {one.name: getattr(spent, one.name) for one in fields(spent)}
    return {
        name: ChangeCostView(mean.mean, mean.count) for name, mean in means.items() if mean.count
    }


def known(core: Core, spec: JobSpec) -> str:
    """What was measured of a job's application, in a sentence; empty if nothing was."""
    profile = core.history.profiles.get((spec.user, spec.application))
    if profile is None:
        return ""
    share = spec.resources.share_milli
    steps = [
        f"{mean.mean:.3g} s with {counted(workers, 'worker')}"
        for (workers, own), mean in sorted(profile.steps.items())
        if own == share and spec.workers.min <= workers <= spec.workers.max
    ]
    told = [f"a step takes {together(steps)}"] if steps else []
    if profile.memory_mib:
        told.append(f"a worker uses up to {_gib(profile.memory_mib)} of GPU memory")
    return f"as measured of {spec.application}: {together(told)}" if told else ""


def too_small(core: Core, spec: JobSpec) -> str:
    """Why a job's share of GPU memory cannot hold its application; empty if it can, or may."""
    need = spec.resources
    profile = core.history.profiles.get((spec.user, spec.application))
    peak = 0 if profile is None else profile.memory_mib
    whole = _memory(core, need.kinds)
    limit = need.gpu_memory_mib or whole * need.share_milli // WHOLE
    if not need.gpus or not peak or not limit or peak <= limit:
        return ""
    least = math.ceil(peak * WHOLE / whole / _STEP) * _STEP if whole else 0
    if not whole:
        advice = "give it more"
    elif peak > whole:
        advice = f"no GPU here has more than {_gib(whole)}"
    else:
        share = "a whole GPU" if least >= WHOLE else f"{least / WHOLE:g}"
        advice = f"the smallest share that fits is {share}"
    return (
        f"{spec.application} was seen to use {_gib(peak)} of GPU memory for a worker, and "
        f"{_asked(spec)} gives it {_gib(limit)}: {advice}; if this one needs less, give it "
        "another 'application'"
    )


def unheld(core: Core, spec: JobSpec) -> str:
    """Why a limit of GPU memory means little here; empty if it is held, or none was asked for."""
    slots = all(node.spec.kind == CPU_SLOT for node in core.ledger.order)
    if not spec.resources.gpu_memory_mib or not slots or not core.ledger.order:
        return ""
    return (
        "CPU slots have no GPU memory: the job is told its limit (ROOST_GPU_MEMORY_MIB), and "
        "nobody holds it"
    )


def _asked(spec: JobSpec) -> str:
    need = spec.resources
    return "its limit" if need.gpu_memory_mib else f"a share of {need.share_milli / WHOLE:g}"


def _memory(core: Core, kinds: tuple[str, ...]) -> int:
    """The memory of the largest GPU that will do; 0 where it is unknown."""
    specs = [node.spec for node in core.ledger.order if node.spec.kind != CPU_SLOT]
    fitting = [spec.gpu_memory_mib for spec in specs if not kinds or spec.kind in kinds]
    return max(fitting, default=0)


def _gib(mib: float) -> str:
    return f"{mib / _GIB:.1f} GiB"
