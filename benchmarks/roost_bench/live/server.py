"""What a server costs and how soon it answers: idle, a burst of jobs, long lists, many followers.

Clients run in this process, on the same machine: what they cost is part of every figure.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roost.demo.server import ScratchServer, scratch_server
from roost.errors import Fatal
from roost_bench.checkout import need_test_support
from roost_bench.live.command import Figure, Say, Sizes, below

if TYPE_CHECKING:
    from roost.client import AsyncClient, Client
    from roost.jobs.change_feed import ClusterChange

_SLOTS = 2
_CONNECTIONS = 16
#: Followers of one client; each holds a connection.
_EACH = 50
#: Lines that the followed job prints in a second.
_RATE = 50
_READY_S = 60.0
_POLL_S = 0.1

_SLEEPER = {"command": ["sleep", "600"], "checkpoint": {"grace": 1}}
_TRAINING = ["python", "-m", "roost.train.example", "--seconds", "600"]
#: Prints a line, and once it is told to, many with the time at which they were printed.
_PRINTER = """\
import os, sys, time
flag, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
print("ready", flush=True)
while not os.path.exists(flag):
    time.sleep(0.05)
for _ in range(int(rate * seconds)):
    print(f"{time.time():.6f}", flush=True)
    time.sleep(1 / rate)
"""


def idle(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Memory and CPU of a server with nothing to do."""
    with scratch_server("bench", _SLOTS) as server:
        server.start()
        time.sleep(1)  # what starting has left to do is not idling
        say(f"{sizes.idle_s:g} s with nothing to do")
        before = server.load()
        time.sleep(sizes.idle_s)
        after = server.load()
        yield below("idle-memory", after.rss_mb, "MB", 150)
        yield below("idle-cpu", 100 * (after.cpu_s - before.cpu_s) / sizes.idle_s, "%", 1)
        server.stop()


def telemetry(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """CPU of Roost itself while two jobs train and tell how far they are: on a slot each, on one.

    It is that of the server and of the supervisor of each job. On one slot the warden comes to
    that, who lets the two run by turns: what its slices cost is no telemetry, and has no goal.
    """
    for name, slots, goal in (("telemetry", 2, 1.0), ("telemetry-shares", 1, None)):
        with scratch_server("bench", slots) as server:
            server.start()
            job = {"name": "training", "command": _TRAINING, "gpus": slots / 2}
            with client_of(server) as client:
                for _ in range(2):
                    client.submit({**job, "python": sys.executable, "checkpoint": {"grace": 1}})
                _await_progress(client)
            say(f"{sizes.watched_s:g} s of two jobs on {slots} slot{'s'[: slots - 1]}")
            before, began = server.spent_s(), time.monotonic()
            time.sleep(sizes.watched_s)
            used = {who: cpu_s - before.get(who, 0.0) for who, cpu_s in server.spent_s().items()}
            percent = 100 / (time.monotonic() - began)
            yield below(name, percent * sum(used.values()), "%", goal)
            yield below(f"{name}-server", percent * used[server.pid], "%")


def _await_progress(client: Client) -> None:
    deadline = time.monotonic() + _READY_S
    while not all(job.step for job in client.jobs()):
        if time.monotonic() > deadline:
            raise Fatal(f"two jobs do not train within {_READY_S:g} s")
        time.sleep(_POLL_S)


def burst(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Many jobs at once: how long until the last one is accepted; then all must be listed."""
    with scratch_server("bench", _SLOTS) as server:
        server.start()
        say(f"{sizes.burst:,} jobs over {_CONNECTIONS} connections")
        took_s, accepted = asyncio.run(_burst(server, sizes.burst))
        with client_of(server) as client:
            listed = {job.id for job in client.jobs()}
        if listed != accepted:
            raise Fatal(f"{len(accepted)} jobs were accepted, and {len(listed)} are listed")
        yield below("burst", took_s, "s", 5)


async def _burst(server: ScratchServer, count: int) -> tuple[float, set[str]]:
    from roost.client import AsyncClient
    from roost.client.machine import ServerMachine
    from roost.client.submissions import prepare

    accepted: set[str] = set()
    here = ServerMachine(same=True, takes_folders=False)
    jobs = iter([prepare({**_SLEEPER, "name": f"burst-{n}"}, here) for n in range(count)])
    async with AsyncClient(server.url, server.token) as client:
        await client.whoami()

        async def submit() -> None:
            for job in jobs:
                accepted.add((await client.submit(job)).id)

        began = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(_CONNECTIONS)))
        return time.perf_counter() - began, accepted


def list_finished(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """The first page of a list, with many finished jobs in the store."""
    with scratch_server("bench", _SLOTS) as server:
        say(f"filling a store with {sizes.finished:,} finished jobs")
        asyncio.run(_fill(server.home, sizes.finished))
        server.start()
        say(f"asking {sizes.calls} times")
        took_ms: list[float] = []
        with client_of(server) as client:
            client.page()
            for _ in range(sizes.calls):
                began = time.perf_counter()
                page = client.page()
                took_ms.append(1000 * (time.perf_counter() - began))
        if page.total != sizes.finished or not all(job.state == "succeeded" for job in page):
            raise Fatal(f"{page.total} jobs are listed instead of {sizes.finished} finished ones")
        yield below("list-5000", statistics.median(took_ms), "ms", 100)
        yield below("list-5000-p99", percentile(took_ms, 0.99), "ms", 100)
        server.stop()


async def _fill(home: Path, count: int) -> None:
    """Let a real driver and a store go through so many jobs; only the processes are left out."""
    need_test_support()
    from tests.support.recording_engine import RecordingEngine

    from roost.core import Launch
    from roost.engines import RunOrder
    from roost.engines.local import devices
    from roost.jobfile import JobFile
    from roost.jobs.requests import JobSubmission
    from roost.live.cluster import Cluster
    from roost.store import open_store

    class Instant(RecordingEngine):
        async def perform(self, order: RunOrder) -> None:
            if isinstance(order.action, Launch):
                self.up(order.action.run)
                self.ended(order.action.run)

    machine = await devices.find(sys.executable, _SLOTS)
    engine = Instant(machine.node)
    cluster = Cluster(open_store(f"sqlite://{home / 'roost.db'}"), engine, home)
    await cluster.start()
    numbers, over, done = iter(range(count)), set[str](), asyncio.Event()

    def seen(change: ClusterChange) -> None:
        over.update(row.id for row in change.jobs if row.finished_at is not None)
        if len(over) == count:
            done.set()

    cluster.feed.subscribe(seen)

    async def submit() -> None:
        for number in numbers:
            job = JobFile.from_document({"name": f"done-{number}", "command": ["true"]})
            await cluster.submit(JobSubmission(job, "bench"))

    await asyncio.gather(*(submit() for _ in range(_CONNECTIONS)))
    await done.wait()
    await cluster.close()


def followers(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Many clients follow one log: how late the last of them reads a line."""
    with scratch_server("bench", _SLOTS) as server:
        server.start()
        say(f"{sizes.followers} followers of {_RATE} lines a second")
        flag = server.home / "print"
        argv = ["python", "-c", _PRINTER, str(flag), str(_RATE), str(sizes.printing_s)]
        with client_of(server) as client:
            job = client.submit({"name": "printer", "python": sys.executable, "command": argv})
            read, used = asyncio.run(_follow(server, job.id, sizes, flag))
            wanted = list(job.logs())
        lines = 1 + int(_RATE * sizes.printing_s)
        short = sum([line for line, _ in one] != wanted for one in read)
        if len(wanted) != lines or short:
            raise Fatal(f"{short} of {len(read)} followers did not read all of {lines} lines")
        lags = [1000 * (at - float(line)) for one in read for line, at in one[1:]]
        yield below("followers", max(lags), "ms", 1000)
        yield below("followers-median", statistics.median(lags), "ms")
        yield below("followers-cpu", used[0], "%")
        yield below("followers-memory", used[1], "MB")
        server.stop()


async def _follow(
    server: ScratchServer, job: str, sizes: Sizes, flag: Path
) -> tuple[list[list[tuple[str, float]]], tuple[float, float]]:
    """What each follower read and when; and the server's CPU and memory meanwhile."""
    from roost.client import AsyncClient

    clients = [AsyncClient(server.url, server.token) for _ in range(-(-sizes.followers // _EACH))]
    read: list[list[tuple[str, float]]] = [[] for _ in range(sizes.followers)]
    there = asyncio.Barrier(sizes.followers + 1)

    async def follow(client: AsyncClient, into: list[tuple[str, float]]) -> None:
        handle = await client.job(job)
        async for line in handle.logs(follow=True):
            into.append((line, time.time()))
            if len(into) == 1:
                await there.wait()

    try:
        async with asyncio.timeout(_READY_S + sizes.printing_s), asyncio.TaskGroup() as group:
            for number, into in enumerate(read):
                group.create_task(follow(clients[number // _EACH], into))
            await there.wait()
            before, began = server.load(), time.monotonic()
            flag.touch()  # noqa: ASYNC240 - it takes no time
        after, passed_s = server.load(), time.monotonic() - began
        return read, (100 * (after.cpu_s - before.cpu_s) / passed_s, after.rss_mb)
    finally:
        for client in clients:
            await client.close()


def client_of(server: ScratchServer) -> Client:
    """A client of a server."""
    from roost.client import Client

    return Client(server.url, server.token)


def percentile(values: Sequence[float], part: float) -> float:
    """The value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
