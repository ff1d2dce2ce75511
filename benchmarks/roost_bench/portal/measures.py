"""What the portal costs and how fast it is, measured from outside over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from posixpath import dirname, normpath
from typing import Any, NamedTuple

import httpx

from roost_bench.live.command import Figure, Say, below
from roost_bench.portal.viewers import watching

_IMPORT = re.compile(rb"""(?:from|import)\s+["'](\.[^"']+)["']""")
_LINK = re.compile(r"""(?:src|href)="(/assets/[^"]+)\"""")
_TICKS = os.sysconf("SC_CLK_TCK")
#: Questions about lists of jobs that pages ask.
_LISTS: dict[str, dict[str, Any]] = {
    "first rows": {},
    "sorted by name": {"sort": "name"},
    "sorted by GPUs, last page": {"sort": "-gpus", "last": True},
    "words": {"q": "train-17 user-1"},
    "words that are nowhere": {"q": "zebra"},
    "label": {"label": "team=a", "sort": "-finished_at"},
    "failed": {"state": "failed", "sort": "finished_at"},
}


@dataclass(frozen=True, slots=True)
class PortalSizes:
    """How large the cluster is, how long it is watched, how many watch and are over."""

    nodes: int = 250
    few: int = 20
    many: int = 200
    watched_s: float = 20.0
    jobs: tuple[int, ...] = (10_000, 100_000)
    submissions: int = 60
    rounds: int = 3


QUICK = PortalSizes(
    nodes=10, few=2, many=4, watched_s=1.0, jobs=(200, 400), submissions=4, rounds=1
)


class PortalServer(NamedTuple):
    """A server that is up: where, with which token, and its process."""

    url: str
    token: str
    pid: int

    def client(self) -> httpx.Client:
        """A client with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def cookie(self) -> str:
        """The cookie of a session."""
        with self.client() as client:
            path = client.post("/api/v1/session/links").json()["path"]
        with httpx.Client(base_url=self.url) as browser:
            browser.get(path)
            return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())

    def cpu_s(self) -> float:
        """CPU time of the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def rss_bytes(self) -> int:
        """Memory of the process."""
        text = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def served(home: Path, nodes: int, finished: int) -> Iterator[PortalServer]:
    """A server in a process of its own."""
    home.mkdir(parents=True)
    command = [sys.executable, "-m", "roost_bench.portal.world", str(home), str(nodes)]
    with subprocess.Popen([*command, str(finished)], stdout=subprocess.PIPE) as process:  # noqa: S603 - ourselves
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe
            told: dict[str, Any] = json.loads(process.stdout.readline())
            yield PortalServer(told["url"], told["token"], process.pid)
        finally:
            process.terminate()
            process.wait()


def figures(folder: Path, sizes: PortalSizes, say: Say) -> Iterator[Figure]:
    """Everything, one server after the other."""
    say(f"{sizes.nodes} machines")
    with served(folder / "live", sizes.nodes, 0) as server:
        yield from _cold_load(server)
        yield from asyncio.run(_viewers(server, sizes, say))
        yield from asyncio.run(_submissions(server, sizes, say))
    for number, jobs in enumerate(sizes.jobs):
        say(f"{jobs} jobs that are over")
        with served(folder / f"jobs-{number}", min(10, sizes.nodes), jobs) as server:
            yield from _lists(server, jobs, 1.5 if number == 0 else 2.0)


def _cold_load(server: PortalServer) -> Iterator[Figure]:
    """The bytes of the first page with all that it imports, as they are sent."""
    with httpx.Client(base_url=server.url, headers={"Accept": "text/html"}) as browser:
        page = browser.get("/")
        left, seen = _LINK.findall(page.text), set[str]()
        total = _sent(page)
        while left:
            path = left.pop()
            if path in seen:
                continue
            seen.add(path)
            found = browser.get(path)
            total += _sent(found)
            if path.endswith(".js"):
                for other in _IMPORT.findall(found.content):
                    left.append(normpath(f"{dirname(path)}/{other.decode()}"))
    yield below("cold load", total / 1000, "kB", 150)
    yield Figure("cold load: requests", len(seen) + 1, "")


def _sent(answer: httpx.Response) -> int:
    return int(answer.headers.get("content-length") or len(answer.content))


async def _viewers(server: PortalServer, sizes: PortalSizes, say: Say) -> list[Figure]:
    """CPU time and memory with no, some and many viewers."""
    cookie = server.cookie()
    await asyncio.sleep(min(3.0, sizes.watched_s))
    alone = await _cpu(server, sizes.watched_s)
    found = [Figure("CPU with no viewer", round(100 * alone, 2), "% of a core")]
    memory = server.rss_bytes()
    for count, goal in ((sizes.few, 5.0), (sizes.many, 15.0)):
        say(f"{count} viewers")
        async with watching(server.url, cookie, count) as viewers:
            await asyncio.sleep(min(2.0, sizes.watched_s))
            before = viewers.received_bytes
            used = await _cpu(server, sizes.watched_s)
            rate = (viewers.received_bytes - before) / count / sizes.watched_s
            more = (server.rss_bytes() - memory) / 1e6
            name = f"{count} viewers"
            assert viewers.answers == count  # noqa: S101 - else nothing was measured
            found += [
                below(f"{name}: CPU more", 100 * max(0.0, used - alone), "% of a core", goal),
                below(f"{name}: memory more", more, "MB", 100.0),
                Figure(f"{name}: sent to each", round(rate / 1000, 2), "kB/s"),
            ]
    return found


async def _cpu(server: PortalServer, seconds: float) -> float:
    before, began = server.cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    return (server.cpu_s() - before) / (time.monotonic() - began)


async def _submissions(server: PortalServer, sizes: PortalSizes, say: Say) -> list[Figure]:
    """Submission and decision with many viewers, compared with none: in turns, for fairness."""
    say("submissions")
    cookie = server.cookie()
    alone, watched = list[float](), list[float]()
    decided: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(sizes.rounds):
        alone += await asyncio.to_thread(_submit, server, sizes.submissions, decided[False])
        async with watching(server.url, cookie, sizes.many):
            await asyncio.sleep(min(3.0, sizes.watched_s))  # until all have their snapshot
            watched += await asyncio.to_thread(_submit, server, sizes.submissions, decided[True])
    ratio = statistics.median(watched) / statistics.median(alone)
    slower = statistics.mean(decided[True]) / statistics.mean(decided[False])
    name = f"with {sizes.many} viewers"
    return [
        Figure("submit: median", round(1000 * statistics.median(alone), 2), "ms"),
        below(f"submit {name}", ratio, "of alone", 1.1),
        below(f"decision {name}", slower, "of alone", 1.1),
    ]


def _submit(server: PortalServer, count: int, decided: list[float]) -> list[float]:
    """How long some submissions took; they wait, and are cancelled."""
    took, made = [], []
    with server.client() as client:
        before = client.get("/api/v1/server").json()["decisions"]
        for _ in range(count):
            body = {"job": {"name": "waits", "command": ["true"], "gpus": 8}}
            began = time.perf_counter()
            answer = client.post("/api/v1/jobs", json=body)
            took.append(time.perf_counter() - began)
            made.append(answer.json()["id"])
        after = client.get("/api/v1/server").json()["decisions"]
        spent = after["count"] * after["mean_s"] - before["count"] * before["mean_s"]
        decided.append(spent / max(1, after["count"] - before["count"]))
        client.post("/api/v1/jobs/bulk", json={"action": "cancel", "jobs": made[:200]})
    return took


def _lists(server: PortalServer, jobs: int, goal_s: float) -> Iterator[Figure]:
    """The slowest of what pages ask about jobs: the median of three times each."""
    with server.client() as client:
        for name, asked in _LISTS.items():
            params: dict[str, Any] = {"limit": 50, **asked}
            if params.pop("last", False):
                params["offset"] = jobs - 50
            yield below(f"{jobs} jobs: {name}", _asked(client, "/api/v1/jobs", params), "s", goal_s)
        for path in (
            "/api/v1/jobs/counts",
            "/api/v1/summary",
            "/api/v1/audit",
            "/api/v1/templates",
        ):
            yield below(f"{jobs} jobs: {path[8:]}", _asked(client, path, {}), "s", goal_s)


def _asked(client: httpx.Client, path: str, params: dict[str, Any]) -> float:
    took = []
    for _ in range(3):
        began = time.perf_counter()
        client.get(path, params=params).raise_for_status()
        took.append(time.perf_counter() - began)
    return statistics.median(took)
