"""Sharing side by side under CUDA MPS, and what packing half-idle jobs gives both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from roost.engines.local.gpu.mps import MpsDaemon
from roost.engines.local.gpu.slices import BEST_EFFORT, Claim
from roost.engines.local.gpu.telemetry import Nvml
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, near
from roost_bench.gpu.turns import by_turns
from roost_bench.gpu.workers import rates, workers_of


@contextmanager
def daemon(bench: GpuBench) -> Iterator[MpsDaemon]:
    """An MPS daemon for the first GPU, which is gone afterwards."""
    nvml = Nvml()
    found = MpsDaemon(bench.scratch / "mps", nvml.uuid(0), 0)
    nvml.close()
    try:
        found.start()
        yield found
    finally:
        found.stop()


def spatial(bench: GpuBench) -> Iterator[GpuFigure]:
    """Fixed shares side by side, and what an idle neighbour leaves (chains, as by turns)."""
    nvml = Nvml()
    with daemon(bench) as mps:

        def env(share: int, *, capped: bool = True) -> Mapping[str, str]:
            return mps.env(share, 0, capped=capped)

        bench.say("whole and best effort")
        free = [env(1000, capped=False), env(500, capped=False)]
        with workers_of(bench.scratch, "chain", free) as jobs:
            clock = bench.clock(nvml, "spatial alone")
            alone = rates(jobs, jobs[:1], bench.seconds(4.0), clock)[0]
            yield GpuFigure("spatial: alone", round(alone, 1), "a second")
            eager = rates(jobs, jobs[1:], bench.seconds(3.0))[1]
            name = "spatial best-effort beside an idle neighbour"
            yield above(name, 100 * eager / alone, "% of alone", 95.0)
        for shares in ((500, 500), (750, 250), (250, 250, 250, 250)):
            name = "+".join(f"{share / 1000:g}" for share in shares)
            bench.say(f"fixed {name}")
            with workers_of(bench.scratch, "chain", [env(share) for share in shares]) as jobs:
                clock = bench.clock(nvml, f"spatial {name}")
                found = rates(jobs, jobs, bench.seconds(4.0), clock)
                bench.notes[name] = [rate / alone for rate in found]
                for number, (share, rate) in enumerate(zip(shares, found, strict=True)):
                    yield from near(f"spatial {name} #{number}", rate / alone, share / 1000)
                if shares == (500, 500):
                    clock = bench.clock(nvml, "spatial 0.5 beside idle")
                    rate = rates(jobs, jobs[:1], bench.seconds(3.0), clock)[0]
                    name = "spatial fixed 0.5 beside an idle neighbour"
                    yield from near(name, rate / alone, 0.5)
    nvml.close()


def packing(bench: GpuBench) -> Iterator[GpuFigure]:
    """Two half-idle jobs at once against one after the other."""
    with workers_of(bench.scratch, "half-idle", [{}, {}]) as jobs:
        alone = rates(jobs, jobs[:1], bench.seconds(3.0))[0]
        found = by_turns(bench, "packing", jobs, [Claim(500, BEST_EFFORT)] * 2)
        yield above("packing by turns, best effort", sum(found) / alone, "times", 1.3)
    with daemon(bench) as mps:
        envs = [mps.env(500, 0, capped=False)] * 2
        with workers_of(bench.scratch, "half-idle", envs) as jobs:
            alone = rates(jobs, jobs[:1], bench.seconds(3.0))[0]
            found = rates(jobs, jobs, bench.seconds(4.0))
            yield above("packing side by side", sum(found) / alone, "times", 1.3)
