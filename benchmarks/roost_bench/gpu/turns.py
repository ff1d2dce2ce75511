"""Sharing by turns: what locking costs, and whether slices of time give each job its part."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Iterator

from roost.engines.local.gpu.activity_meters import GpuMeter
from roost.engines.local.gpu.driver import CudaDriver, DriverRefused
from roost.engines.local.gpu.slices import BEST_EFFORT, EQUAL, FIXED, Claim
from roost.engines.local.gpu.telemetry import Nvml
from roost.engines.local.gpu.time_slices import SliceRunner, TenantProcesses
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, below, near
from roost_bench.gpu.programs import COUNT, REST, RUN
from roost_bench.gpu.workers import MeasuredWorker, rates, workers_of

_FAIR_S = 0.02
_TAIL_S = 1.5
_SETTLE_S = 0.7
_NOTICE_S = 3.5  # until an idle tenant is seen to be idle


def lock(bench: GpuBench) -> Iterator[GpuFigure]:
    """How long lock and unlock take on a busy process."""
    driver = CudaDriver()
    times: dict[str, list[float]] = {"lock": [], "unlock": []}
    with workers_of(bench.scratch, "busy", [{}]) as (job,):
        job.tell(RUN)
        time.sleep(0.5)
        for _ in range(20 if bench.quick else 1000):
            begun = time.perf_counter()
            driver.lock(job.pid, 10_000)
            locked = time.perf_counter()
            time.sleep(0.005)
            resumed = time.perf_counter()
            driver.unlock(job.pid)
            times["unlock"].append(1000 * (time.perf_counter() - resumed))
            times["lock"].append(1000 * (locked - begun))
            time.sleep(0.01)
    for name, values in times.items():
        values.sort()
        yield below(f"{name} p50", statistics.median(values), "ms")
        yield below(f"{name} p99", values[int(0.99 * (len(values) - 1))], "ms", 5.0)
    bench.notes["cuda version"] = driver.version


def turns(bench: GpuBench) -> Iterator[GpuFigure]:
    """Slices of time against the whole device and against the driver's own, with both loads."""
    for kind, load in (("busy", "products"), ("chain", "chains")):
        with workers_of(bench.scratch, kind, [{}, {}]) as jobs:
            alone = yield from _alone(bench, jobs, load)
            yield from _against_the_driver(bench, jobs, alone, load)


def shares(bench: GpuBench) -> Iterator[GpuFigure]:
    """Fixed shares by turns, and what idle neighbours leave.

    Measured with chains of roots: products of matrices draw all the power that the device may have
    and run faster at half of the time, so that they measure shares of power, not of the device.
    """
    with workers_of(bench.scratch, "chain", [{}, {}, {}, {}]) as jobs:
        alone = yield from _alone(bench, jobs, "chains")
        yield from _fixed(bench, jobs, alone)
        yield from _beside_idle(bench, jobs[:2], alone)


def _alone(
    bench: GpuBench, jobs: list[MeasuredWorker], load: str
) -> Generator[GpuFigure, None, float]:
    bench.say(f"{load}: one alone")
    nvml = Nvml()
    rate = rates(jobs, jobs[:1], bench.seconds(4.0), bench.clock(nvml, f"{load} alone"))[0]
    nvml.close()
    yield GpuFigure(f"{load}: alone", round(rate, 1), "a second")
    return rate


def _against_the_driver(
    bench: GpuBench, jobs: list[MeasuredWorker], alone: float, load: str
) -> Iterator[GpuFigure]:
    """Turns against the whole device and against the driver's own slicing."""
    bench.say(f"{load}: two at once, as the driver slices")
    both = rates(jobs, jobs[:2], bench.seconds(4.0))
    driven = sum(both) / alone
    bench.notes[f"{load}, driver"] = [rate / alone for rate in both[:2]]
    bench.say(f"{load}: two by turns")
    turned = by_turns(bench, f"{load} by turns", jobs[:2], [Claim(500, EQUAL)] * 2)
    ours = sum(turned) / alone
    bench.notes[f"{load}, turns"] = [rate / alone for rate in turned]
    yield above(f"{load}: two by turns, together", 100 * ours, "% of alone", 96.5)
    yield above(f"{load}: the driver's own slicing, together", 100 * driven, "% of alone")
    yield above(f"{load}: by turns against the driver's", 100 * (ours - driven), "points", 0.0)


def _fixed(bench: GpuBench, jobs: list[MeasuredWorker], alone: float) -> Iterator[GpuFigure]:
    """Fixed shares, each against what it would be of the whole."""
    for asked in ((500, 500), (750, 250), (250, 250, 250, 250)):
        name = "+".join(f"{share / 1000:g}" for share in asked)
        bench.say(f"fixed {name}")
        claims = [Claim(share) for share in asked]
        found = by_turns(bench, f"fixed {name}", jobs[: len(asked)], claims)
        bench.notes[name] = [rate / alone for rate in found]
        for number, (share, rate) in enumerate(zip(asked, found, strict=True)):
            yield from near(f"fixed {name} #{number}", rate / alone, share / 1000)


def _beside_idle(bench: GpuBench, jobs: list[MeasuredWorker], alone: float) -> Iterator[GpuFigure]:
    """What an idle neighbour leaves: all of it to best effort, nothing to a fixed share."""
    for qos in (BEST_EFFORT, EQUAL, FIXED):
        name = f"{qos} beside an idle neighbour"
        bench.say(name)
        claims = [Claim(500, qos), Claim(500, FIXED if qos == BEST_EFFORT else qos)]
        rate = by_turns(bench, name, jobs, claims, busy=1)[0] / alone
        if qos == FIXED:
            yield from near("fixed 0.5 beside an idle neighbour", rate, 0.5)
        else:
            yield above(name, 100 * rate, "% of alone", 95.0)


def by_turns(  # noqa: PLR0913 - what is measured, and how long
    bench: GpuBench,
    name: str,
    jobs: list[MeasuredWorker],
    claims: list[Claim],
    busy: int | None = None,
    settle_s: float = _SETTLE_S,
) -> list[float]:
    """What jobs get done in a second under a rota; the first ``busy`` of them run.

    It is measured once tenants are known for what they are, after ``settle_s``.
    """
    driver, nvml = CudaDriver(), Nvml()
    meter = GpuMeter(nvml, 0)
    rota = SliceRunner(meter)
    for number, (job, claim) in enumerate(zip(jobs, claims, strict=True)):
        rota.join(str(number), claim, TenantProcesses(driver, lambda pid=job.pid: [pid]))  # type: ignore[misc]
    for job in jobs[:busy]:
        job.tell(RUN)
    try:
        _turn(rota, settle_s if busy is None else _NOTICE_S)
        begun, before = time.monotonic(), [job.get(COUNT) for job in jobs]
        _turn(rota, bench.seconds(4.0) / 2)
        bench.clock(nvml, name)()
        _turn(rota, bench.seconds(4.0) / 2)
        after, spent = [job.get(COUNT) for job in jobs], time.monotonic() - begun
        bench.notes[f"{name}: rota"] = {
            "NVML tells their work": [meter.tells([job.pid]) for job in jobs],
            "parts": [rota.slices.part(one) for one in rota.tenants],
            "unlocked s": [round(one.had_s, 3) for one in rota.tenants.values()],
        }
        problems = [one.problem for one in rota.tenants.values() if one.problem]
        if problems:
            raise DriverRefused(problems[0])
    finally:
        rota.close()
        for job in jobs:
            job.tell(REST)
        nvml.close()
    return [(b - a) / spent for a, b in zip(before, after, strict=True)]


def _turn(rota: SliceRunner, for_s: float) -> None:
    """Turns for so long, up to a moment at which no job is owed much."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < for_s + _TAIL_S:
        if passed >= for_s and rota.slices.debt_s < _FAIR_S:
            return
        rota.step(time.sleep)
