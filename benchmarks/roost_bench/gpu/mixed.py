"""Different programs on one GPU by turns: those that queue steps, services, half-idle ones."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from roost.engines.local.gpu.slices import BEST_EFFORT, EQUAL, Claim
from roost_bench.gpu.figures import GpuBench, GpuFigure, above, below, near
from roost_bench.gpu.programs import FIRST, READY, SECOND
from roost_bench.gpu.turns import by_turns
from roost_bench.gpu.workers import MeasuredWorker, rates

#: Until it is known who uses less than its part.
_SETTLE_S = 8.0
#: How long a service answers each time; the last ten seconds count.
_SERVED_S = 12.0
#: Programs that need no more than PyTorch: they begin once, and rest while others are measured.
_PROGRAMS = {
    "busy": "busy",
    "another": "busy",
    "queue": "queue",
    "graph": "graph",
    "half-idle": "half-idle",
}
#: What two programs at once are to reach together, in percent of one alone.
_TOGETHER = {("half-idle", "busy"): 130.0, ("busy", "another"): 98.0}


@dataclass(frozen=True, slots=True)
class _Stage:
    """Programs that have begun, and what each does alone."""

    jobs: dict[str, MeasuredWorker]
    alone: dict[str, float]

    def of(self, names: Sequence[str]) -> list[MeasuredWorker]:
        """Some of them."""
        return [self.jobs[name] for name in names]

    def parts(self, names: Sequence[str], found: Sequence[float]) -> list[float]:
        """What some did together, each in proportion to what it does alone."""
        return [rate / self.alone[name] for name, rate in zip(names, found, strict=True)]


@contextmanager
def _begun(bench: GpuBench, programs: Mapping[str, str]) -> Iterator[_Stage]:
    """Some programs of some kinds: all begin at once, and each shows what it does alone."""
    with ExitStack() as stack:
        jobs = {name: MeasuredWorker(kind, bench.scratch) for name, kind in programs.items()}
        for job in jobs.values():
            stack.callback(job.end)
        for job in jobs.values():
            job.until(READY)
        alone = {name: rates([job], [job], bench.seconds(3.0))[0] for name, job in jobs.items()}
        yield _Stage(jobs, alone)


def mixed(bench: GpuBench) -> Iterator[GpuFigure]:
    """Fixed shares beside programs of other kinds, and what half-idle and busy ones do together."""
    with _begun(bench, _PROGRAMS) as stage:
        for pair in (("queue", "busy"), ("graph", "busy"), ("queue", "graph")):
            yield from _fixed(bench, stage, pair)
        for pair, goal in _TOGETHER.items():
            yield from _together(bench, stage, pair, goal)
    with _begun(bench, {"jax-busy": "jax-busy", "busy": "busy"}) as stage:
        yield from _fixed(bench, stage, ("jax-busy", "busy"))


def _fixed(bench: GpuBench, stage: _Stage, pair: tuple[str, str]) -> Iterator[GpuFigure]:
    """Two halves."""
    name = " + ".join(f"{kind} 0.5" for kind in pair)
    bench.say(name)
    found = by_turns(bench, name, stage.of(pair), [Claim(500)] * 2)
    for kind, part in zip(pair, stage.parts(pair, found), strict=True):
        yield from near(f"{name}: {kind}", part, 0.5)


def _together(
    bench: GpuBench, stage: _Stage, pair: tuple[str, str], goal: float
) -> Iterator[GpuFigure]:
    """Two programs at once, under the plain driver and as those that take what is left."""
    name, jobs = " and ".join(pair), stage.of(pair)
    bench.say(f"{name}, plain driver")
    plain = stage.parts(pair, rates(jobs, jobs, bench.seconds(4.0)))
    yield above(f"{name}, plain driver", 100 * sum(plain), "% of alone")
    for qos in (EQUAL, BEST_EFFORT):
        bench.say(f"{qos}: {name}")
        found = by_turns(bench, f"{qos}: {name}", jobs, [Claim(500, qos)] * 2, settle_s=_SETTLE_S)
        total = sum(stage.parts(pair, found))
        yield above(f"{qos}: {name}", 100 * total, "% of alone", goal)


def latency(bench: GpuBench) -> Iterator[GpuFigure]:
    """A service with a guaranteed share beside a trainer that takes what is left."""
    bench.say("service alone, under the plain driver, and with 0.3 of the GPU")
    with _begun(bench, {"serve": "serve", "queue": "queue"}) as stage:
        serve, _ = jobs = stage.of(("serve", "queue"))
        serve.put(SECOND, 0.0)
        rates([serve], [serve], bench.seconds(_SERVED_S))
        yield from _told(serve, "service alone")
        rates(jobs, jobs, bench.seconds(_SERVED_S))
        plain = yield from _told(serve, "service, plain driver")
        claims = [Claim(300), Claim(700, BEST_EFFORT)]
        trained = by_turns(bench, "latency", jobs, claims, settle_s=_SERVED_S)[1]
        held = yield from _told(serve, "service, fixed 0.3")
        yield below("service: p99 against the plain driver's", held / plain, "times", 1.5)
        yield above(
            "trainer beside the service", 100 * trained / stage.alone["queue"], "% of alone", 65.0
        )


def _told(serve: MeasuredWorker, name: str) -> Generator[GpuFigure, None, float]:
    """p50 and p99 of a service that has come to rest; returns the latter."""
    serve.until(SECOND)
    yield below(f"{name}: p50", serve.get(FIRST), "ms")
    p99 = serve.get(SECOND)
    yield below(f"{name}: p99", p99, "ms")
    serve.put(SECOND, 0.0)
    return p99
