"""Different programs on one GPU by turns: those that queue steps, services, half-idle ones."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

from roost.engines.local.gpu.slices import BEST_EFFORT, EQUAL, Claim
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, below, near
from roost_bench.gpu.programs import FIRST, SECOND
from roost_bench.gpu.turns import by_turns
from roost_bench.gpu.workers import MeasuredWorker, rates, workers_of

#: Until it is known who uses less than its part.
_SETTLE_S = 8.0


@contextmanager
def _pair(bench: GpuBench, first: str, second: str) -> Iterator[list[MeasuredWorker]]:
    """Two jobs of two kinds, ready and at rest."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(workers_of(bench.scratch, kind, [{}]))[0]
            for kind in (first, second)
        ]


def mixed(bench: GpuBench) -> Iterator[GpuFigure]:
    """Fixed shares beside programs of other kinds, and what half-idle and busy ones do together."""
    for first, second in (
        ("queue", "busy"),
        ("graph", "busy"),
        ("queue", "graph"),
        ("jax-busy", "busy"),
    ):
        name = f"{first} 0.5 + {second} 0.5"
        bench.say(name)
        with _pair(bench, first, second) as jobs:
            alone = [rates(jobs, [job], bench.seconds(3.0))[n] for n, job in enumerate(jobs)]
            found = by_turns(bench, name, jobs, [Claim(500)] * 2)
        parts = [rate / whole for rate, whole in zip(found, alone, strict=True)]
        for kind, part in zip((first, second), parts, strict=True):
            yield from near(f"{name}: {kind}", part, 0.5)
    for qos in (EQUAL, BEST_EFFORT):
        yield from _together(bench, "half-idle", "busy", qos, 130.0)
        yield from _together(bench, "busy", "busy", qos, 98.0)


def _together(
    bench: GpuBench, first: str, second: str, qos: str, goal: float
) -> Iterator[GpuFigure]:
    """Two programs at once, each in proportion to what it does alone."""
    name = f"{qos}: {first} and {second}"
    bench.say(name)
    with _pair(bench, first, second) as jobs:
        alone = [rates(jobs, [job], bench.seconds(3.0))[n] for n, job in enumerate(jobs)]
        plain = rates(jobs, jobs, bench.seconds(4.0))
        found = by_turns(bench, name, jobs, [Claim(500, qos)] * 2, settle_s=_SETTLE_S)
    for title, both in ((f"{name}, plain driver", plain), (name, found)):
        total = 100 * sum(rate / whole for rate, whole in zip(both, alone, strict=True))
        yield above(title, total, "% of alone", goal if title == name else None)


def latency(bench: GpuBench) -> Iterator[GpuFigure]:
    """A service with a guaranteed share beside a trainer that takes what is left."""
    bench.say("service alone, under the plain driver, and with 0.3 of the GPU")
    with _pair(bench, "serve", "queue") as jobs:
        serve = jobs[0]
        alone = rates(jobs, jobs[1:], bench.seconds(4.0))[1]
        rates(jobs, [serve], bench.seconds(6.0))
        yield from _told(serve, "service alone")
        rates(jobs, jobs, bench.seconds(8.0))
        plain = yield from _told(serve, "service, plain driver")
        claims = [Claim(300), Claim(700, BEST_EFFORT)]
        trained = by_turns(bench, "latency", jobs, claims, settle_s=_SETTLE_S)[1]
        held = yield from _told(serve, "service, fixed 0.3")
        yield below("service: p99 against the plain driver's", held / plain, "times", 1.5)
        yield above("trainer beside the service", 100 * trained / alone, "% of alone", 65.0)


def _told(serve: MeasuredWorker, name: str) -> Generator[GpuFigure, None, float]:
    """p50 and p99 of a service that has come to rest; returns the latter."""
    serve.until(SECOND)
    yield below(f"{name}: p50", serve.get(FIRST), "ms")
    p99 = serve.get(SECOND)
    yield below(f"{name}: p99", p99, "ms")
    serve.put(SECOND, 0.0)
    return p99
