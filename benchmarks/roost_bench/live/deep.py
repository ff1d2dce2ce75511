"""``roost bench deep``: a server with as many jobs in the queue as users make.

The queue is filled beforehand (``deep_home``). Then a real server is started on it, and everything
is measured over HTTP while another process looks for silences of the server (``silences``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.parameter_types import Verb, option
from roost.defaults import POLICY
from roost.demo.server import ScratchServer, scratch_server
from roost.errors import Fatal
from roost_bench.live.command import Figure, below, chosen, report
from roost_bench.live.deep_home import fill
from roost_bench.live.server import percentile
from roost_bench.live.silences import listening
from roost_bench.live.submitters import submitted

if TYPE_CHECKING:
    from roost.client import Client

_MIB = 1 << 20
#: Starts and answers of a server that is not as it should be are waited for, to be measured.
_PATIENCE_S = 600.0
_POLL_S = 0.05
_CONNECTIONS = 32
#: Jobs of a burst, and connections over which they come.
_BURST, _AT_ONCE = 1000, 16


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How deep the queue is, and what is asked of the server."""

    queued: int = 100_000
    running: int = 1000
    rate: float = 200.0
    seconds: float = 15.0
    policy: str = POLICY
    calls: int = 20


_SIZES = QueueDepth()

DeepMeasure = Callable[[ScratchServer, QueueDepth], Iterator[Figure]]


def measures() -> dict[str, DeepMeasure]:
    """All measures, in the order in which they run."""
    return {
        "submit": _submits,
        "burst": _bursts,
        "list": _lists,
        "explain": _explains,
        "stream": _streams,
        "state": _states,
        "restart": _restarts,
    }


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench deep
  roost bench deep --queued 10000 --running 100 --only submit,list,restart
  roost bench deep --policy backfill --rate 100 -o json""",
)
@option(
    "-o",
    "--output",
    section="Output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
@option("--only", section="Run", metavar="NAME,...", default="", help="These measures alone.")
@option(
    "--queued",
    section="Workload",
    type=click.IntRange(1),
    default=_SIZES.queued,
    show_default=True,
    help="Jobs that wait.",
)
@option(
    "--running",
    section="Workload",
    type=click.IntRange(1),
    default=_SIZES.running,
    show_default=True,
    help="Jobs that run, a real process on a CPU slot each.",
)
@option("--policy", section="Workload", default=POLICY, show_default=True)
@option(
    "--rate",
    section="Run",
    type=click.FloatRange(0.1),
    default=_SIZES.rate,
    show_default=True,
    help="Submissions per second.",
)
@option(
    "--seconds",
    section="Run",
    type=click.FloatRange(0.1),
    default=_SIZES.seconds,
    show_default=True,
    help="How long jobs are submitted.",
)
def deep(output: str, only: str, **sizes: object) -> None:
    """Measure a real server with a deep queue; exit status 1 if a goal is missed.

    Measures: submit, burst, list, explain, stream, state, restart. Each but the last also tells how
    long the server was silent meanwhile. Filling the queue takes a minute for 100 000 jobs.
    """
    depth = QueueDepth(**sizes)  # type: ignore[arg-type]
    figures = list(measured(depth, chosen(only, measures()), _say))
    report(figures, output)


def _say(text: str) -> None:
    click.echo(text, err=True)


def measured(depth: QueueDepth, names: list[str], say: Callable[[str], None]) -> Iterator[Figure]:
    """Fill a home, start a server on it, and measure."""
    most = str(depth.running + 2 * depth.queued + 1000)
    with scratch_server("deep", depth.running, policy=depth.policy) as server:
        server.options = ("--user-jobs", most)
        say(f"filling a home: {depth.running:,} jobs to run, {depth.queued:,} to wait")
        fill(server.home, depth.running, depth.queued)
        server.start(_PATIENCE_S)
        _await_running(server, depth)
        yield below("memory", server.load().rss_mb, "MB")
        for name in names:
            say(name)
            measure = measures()[name]
            if name == "restart":
                yield from measure(server, depth)
                continue
            with listening(server.url) as silence:
                yield from measure(server, depth)
            yield below(f"{name}-silence", silence.ms, "ms", 100)
        yield below("memory-peak", _peak_mb(server.pid), "MB")


def _submits(server: ScratchServer, depth: QueueDepth) -> Iterator[Figure]:
    """Jobs come at a steady rate, whatever becomes of those before them."""
    count = max(1, round(depth.rate * depth.seconds))
    done = submitted(server, _late("late", count), depth.rate, _CONNECTIONS)
    yield below("submit", statistics.median(done.took_ms), "ms")
    yield below("submit-p99", percentile(done.took_ms, 0.99), "ms", 100)
    yield below("submit-max", max(done.took_ms), "ms")
    yield below("submit-rate", count / done.all_s, "/s")
    yield below("submit-cpu", done.server_ms, "ms")
    yield below("submit-client-cpu", done.client_ms, "ms")


def _bursts(server: ScratchServer, _depth: QueueDepth) -> Iterator[Figure]:
    """Many jobs at once: how long until the last one is accepted."""
    done = submitted(server, _late("burst", _BURST), None, _AT_ONCE)
    yield below("burst", done.all_s, "s", 5)
    yield below("burst-cpu", done.server_ms, "ms")


def _late(name: str, count: int) -> list[dict[str, Any]]:
    job = {"command": ["sleep", "600"], "run_time": "1h"}
    return [{**job, "name": f"{name}-{number}"} for number in range(count)]


def _lists(server: ScratchServer, depth: QueueDepth) -> Iterator[Figure]:
    """The first page of the jobs, as ``roost list`` asks for it."""
    took_ms = []
    with _patient(server) as client:
        for _ in range(depth.calls):
            began = time.perf_counter()
            page = client.page()
            took_ms.append(1000 * (time.perf_counter() - began))
        if page.total < depth.queued:
            raise Fatal(f"{page.total} jobs are listed of {depth.queued}")
    yield below("list", statistics.median(took_ms), "ms", 200)
    yield below("list-max", max(took_ms), "ms", 200)


def _explains(server: ScratchServer, depth: QueueDepth) -> Iterator[Figure]:
    """Why the first, the middle and the last of those that wait do so."""
    with _patient(server) as client:
        last = depth.queued - 1
        for name, number in (("first", 0), ("middle", last // 2), ("last", last)):
            page = client.page(state="queued", sort="submitted_at", offset=number, limit=1)
            began = time.perf_counter()
            client.job(page.items[0].id).explain()
            took_ms = 1000 * (time.perf_counter() - began)
            yield below(f"explain-{name}", took_ms, "ms", 200)


def _streams(server: ScratchServer, _depth: QueueDepth) -> Iterator[Figure]:
    """What a new viewer is sent before it is told of changes."""
    import httpx

    began, size = time.perf_counter(), 0
    head = {"Authorization": f"Bearer {server.token}"}
    with httpx.stream(
        "GET", f"{server.url}/api/v1/stream", headers=head, timeout=_PATIENCE_S
    ) as answer:
        for chunk in answer.iter_raw():
            size += len(chunk)
            if chunk.endswith(b"\n\n"):
                break
    yield below("stream", 1000 * (time.perf_counter() - began), "ms", 200)
    yield below("stream-size", size / _MIB, "MiB", 1)


def _states(server: ScratchServer, _depth: QueueDepth) -> Iterator[Figure]:
    """Everything that the core knows, as ``roost simulate --from`` reads it."""
    began = time.perf_counter()
    with _patient(server) as client:
        client.state()
    yield below("state", time.perf_counter() - began, "s")


def _restarts(server: ScratchServer, depth: QueueDepth) -> Iterator[Figure]:
    """How long until a server answers: one that was killed, and one that ended in order."""
    server.kill()
    yield below("restart-killed", _start_s(server), "s", 5)
    _await_running(server, depth)
    began = time.perf_counter()
    server.stop()
    yield below("stop", time.perf_counter() - began, "s", 5)
    yield below("restart", _start_s(server), "s", 5)
    _await_running(server, depth)
    yield below("memory-restarted", server.load().rss_mb, "MB")


def _patient(server: ScratchServer) -> Client:
    from roost.client import Client

    return Client(server.url, server.token, timeout=_PATIENCE_S)


def _start_s(server: ScratchServer) -> float:
    began = time.perf_counter()
    server.start(_PATIENCE_S)
    return time.perf_counter() - began


def _await_running(server: ScratchServer, depth: QueueDepth) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    with _patient(server) as client:
        while (found := client.page(state="running", limit=1).total) != depth.running:
            if time.monotonic() > deadline:
                raise Fatal(f"{found} jobs run instead of {depth.running}")
            time.sleep(_POLL_S)


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")
