"""How well real jobs are run: how soon they start, what a crash costs, how true predictions are."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.demo.server import ScratchServer, scratch_server
from roost.errors import Fatal
from roost_bench.live.command import Figure, Say, Sizes, below
from roost_bench.live.server import client_of, percentile

_SLOTS = 2
_CONNECTIONS = 16
_PATIENCE_S = 60.0
_POLL_S = 0.02

#: Keeps a slot until it is told to end.
_BLOCKER = 'while [ ! -e "{folder}/go" ]; do sleep 0.02; done'
#: Says when it began, in a file of its own, before anything else.
_STAMP = 'echo "$EPOCHREALTIME" > "{folder}/$ROOST_JOB"; sleep 0.1'
#: Uses a core.
_BUSY = "while :; do :; done"
#: Prints its name, and goes on for ever.
_SLEEPER = 'echo "$ROOST_JOB $ROOST_ATTEMPT $$" >> "{folder}/ledger"; exec sleep 600'


def start_latency(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """From a decision to the first thing that the job does, with others waiting in line."""
    with scratch_server("bench", _SLOTS) as server:
        server.start()
        folder = server.home / "stamps"
        folder.mkdir()
        say(f"{sizes.starts} starts with {sizes.queued} jobs queued or more")
        submit_all(
            server, [{"name": "blocker", "run": _BLOCKER.format(folder=server.home)}] * _SLOTS
        )
        stamp = {"name": "stamp", "run": _STAMP.format(folder=folder)}
        submit_all(server, [stamp] * (sizes.starts + sizes.queued))
        (server.home / "go").touch()
        _await(lambda: len(list(folder.iterdir())) >= sizes.starts, "jobs do not start")
        took_ms = _latencies(server, folder)
        yield below("start-latency", statistics.median(took_ms), "ms", 100)
        yield below("start-latency-p99", percentile(took_ms, 0.99), "ms")


def _latencies(server: ScratchServer, folder: Path) -> list[float]:
    """Milliseconds from the event that says ``starting`` to the job's own time stamp."""
    with client_of(server) as client:
        decided = {event.job: event.time for event in client.history() if event.new == "starting"}
    began = {file.name: file.read_text() for file in folder.iterdir()}
    return [1000 * (float(at) - decided[job]) for job, at in began.items() if at]


def recovery(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """A server that is killed: how long until the next one serves, with every worker adopted."""
    with scratch_server("bench", sizes.running) as server:
        server.start()
        ledger = server.home / "ledger"
        job = {
            "name": "sleeper",
            "run": _SLEEPER.format(folder=server.home),
            "checkpoint": {"grace": 1},
        }
        say(f"{sizes.running} jobs to run, {sizes.waiting:,} to wait")
        submit_all(server, [job] * (sizes.running + sizes.waiting))
        _await(lambda: _running(server) == sizes.running, "jobs do not start")
        before = _workers(ledger)
        say("killed; starting again")
        server.kill()
        began = time.perf_counter()
        server.start()
        _await(lambda: _running(server) == sizes.running, "jobs are not adopted")
        took_s = time.perf_counter() - began
        _check_adopted(server, before, ledger, sizes)
        yield below("recovery", took_s, "s", 3)
        say("cancelling all")
        began = time.perf_counter()
        _cancel_all(server)
        yield below("recovery-cancel", time.perf_counter() - began, "s")
        if left := server.processes():
            raise Fatal(f"{len(left)} processes are left after all jobs were cancelled")
        server.stop()


def _check_adopted(server: ScratchServer, before: list[str], ledger: Path, sizes: Sizes) -> None:
    """The same processes as before, none twice, and none of those that wait."""
    after = _workers(ledger)
    dead = [line for line in before if not os.path.exists(f"/proc/{line.split()[2]}")]  # noqa: PTH110
    if after != before or len(set(before)) != sizes.running or dead:
        raise Fatal(
            f"{len(before)} workers ran before the crash; afterwards {len(after)} had been "
            f"started, and {len(dead)} were dead"
        )
    with client_of(server) as client:
        waiting = client.page(state="queued", limit=1).total
    if waiting != sizes.waiting:
        raise Fatal(f"{waiting} jobs wait after the crash instead of {sizes.waiting}")


def _running(server: ScratchServer) -> int:
    with client_of(server) as client:
        return client.page(state="running", limit=1).total


def _workers(ledger: Path) -> list[str]:
    return sorted(ledger.read_text(encoding="ascii").splitlines())


def suspend(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """From a request to its effect, of a job that uses a core: all its processes stop, or go on."""
    found: dict[str, list[float]] = {"suspended": [], "running": []}
    with scratch_server("bench", _SLOTS) as server:
        server.start()
        say(f"{sizes.suspends} times suspended and resumed")
        with client_of(server) as client:
            job = client.submit({"name": "busy", "run": _BUSY, "checkpoint": {"grace": 1}})
            _await(lambda: job.status().state == "running", "the job does not start")
            for _ in range(sizes.suspends):
                for state, ask in (("suspended", job.suspend), ("running", job.resume)):
                    asked_at = time.time()
                    ask()
                    _await(lambda: job.status().state == state, f"the job is not {state}")  # noqa: B023
                    effect = [event.time for event in job.events() if event.new == state][-1]
                    found[state].append(1000 * (effect - asked_at))
    yield below("suspend", statistics.median(found["suspended"]), "ms", 100)
    yield below("suspend-resume", statistics.median(found["running"]), "ms", 100)
    yield below("suspend-p99", percentile(found["suspended"], 0.99), "ms")
    yield below("suspend-resume-p99", percentile(found["running"], 0.99), "ms")


def fidelity(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Training jobs, really run and simulated beforehand: how far apart mean JCTs are."""
    from roost.demo import jobs

    with scratch_server("bench", jobs.slots()) as server:
        server.start()
        say("measuring the trainer")
        with client_of(server) as client:
            paces = jobs.measure(client, sizes.trained_s)
            lessons = jobs.mixed(sizes.trained, sizes.trained_s)
            foreseen = jobs.predict(lessons, server, client.nodes(), paces)
            say(f"{len(lessons)} training jobs")
            views = jobs.perform(lessons, client, paces)
        server.stop()
    for view in views.values():
        jobs.check(view)
    mean = statistics.mean((v.finished_at or 0.0) - v.submitted_at for v in views.values())
    wanted = statistics.mean(foreseen.values())
    yield below("fidelity", 100 * abs(mean / wanted - 1), "%", 10)
    yield below("fidelity-predicted", wanted, "s")
    yield below("fidelity-real", mean, "s")


def submit_all(server: ScratchServer, documents: Sequence[Mapping[str, Any]]) -> None:
    """Submit jobs over several connections."""
    asyncio.run(_at_once(server, documents))


async def _at_once(server: ScratchServer, documents: Sequence[Mapping[str, Any]]) -> None:
    from roost.client import AsyncClient

    left = iter(documents)

    async def submit() -> None:
        for document in left:
            await client.submit(document)

    async with AsyncClient(server.url, server.token) as client:
        await asyncio.gather(*(submit() for _ in range(_CONNECTIONS)))


def _cancel_all(server: ScratchServer) -> None:
    asyncio.run(_cancelled(server))
    _await(lambda: _open(server) == 0, "jobs do not end")


async def _cancelled(server: ScratchServer) -> None:
    from roost.client import AsyncClient

    async with AsyncClient(server.url, server.token) as client:
        # Those that wait first, or they would start as the others end.
        jobs = iter([j.id async for j in client.jobs(state=["queued"])])
        rest = iter([j.id async for j in client.jobs(state=["starting", "running"])])

        async def cancel(ids: Iterator[str]) -> None:
            for job in ids:
                await (await client.job(job)).cancel()

        for ids in (jobs, rest):
            await asyncio.gather(*(cancel(ids) for _ in range(_CONNECTIONS)))


def _open(server: ScratchServer) -> int:
    with client_of(server) as client:
        return client.page(state=["queued", "starting", "running"], limit=1).total


def _await(done: Callable[[], bool], otherwise: str) -> None:
    """Until it is so; raises Fatal if it takes too long."""
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise Fatal(f"{otherwise} within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)
