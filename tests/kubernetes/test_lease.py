"""Leadership on a real API server: two processes, one of them stopped past its lease."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.operating import operating
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, pod, until
from tests.support.kubernetes.proxy import FaultyProxy

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.api_thread import ApiThread
from roost.kubernetes.client.kinds import LEASES, PODS
from roost.kubernetes.client.lease import LeaseCandidate
from roost.kubernetes.operator.leader_label import LEADER
from roost.kubernetes.operator.loop import Operator, OperatorOptions

TIMES: dict[str, Any] = {"lease_s": 3.0, "renew_s": 2.0, "retry_s": 0.3}

#: Leads, and while it does writes a line each 20 ms, after the check that every write needs.
PROGRAM = """
import asyncio, json, sys, time
from pathlib import Path
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.lease import LeaseCandidate

async def main(kubeconfig, name, book, times):
    api = await Api.connect(kubeconfig=kubeconfig)
    leader = LeaseCandidate(api, "roost", "default", name, **json.loads(times))

    async def act():
        while True:
            leader.check()
            with Path(book).open("a") as file:
                file.write(json.dumps([name, time.monotonic()]) + "\\n")
            await asyncio.sleep(0.02)

    await leader.run(act)

asyncio.run(main(*sys.argv[1:]))
"""


class Crowd:
    """Processes that want to lead, and the book in which the leader writes."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self.book = folder / "book"
        self.book.touch()
        self._kubeconfig = str(cluster.kubeconfig)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def join(self, name: str) -> None:
        words = [self._kubeconfig, name, str(self.book), json.dumps(TIMES)]
        self.processes[name] = subprocess.Popen([sys.executable, "-c", PROGRAM, *words])  # noqa: S603 - ours

    def lines(self) -> list[tuple[str, float]]:
        whole = self.book.read_text().splitlines()
        return [(name, at) for name, at in map(json.loads, whole)]

    async def acts(self, name: str, after: float = 0.0) -> None:
        async def look() -> bool:
            return any(who == name and at > after for who, at in self.lines()[-20:])

        await until(look)

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.fixture
def crowd(cluster: ControlPlane, tmp_path: Path) -> Iterator[Crowd]:
    crowd = Crowd(cluster, tmp_path)
    yield crowd
    crowd.end()


def turns(lines: list[tuple[str, float]]) -> list[str]:
    """Who acted, one after the other."""
    order = [name for name, _ in sorted(lines, key=lambda line: line[1])]
    return [name for place, name in enumerate(order) if not place or order[place - 1] != name]


def test_a_leader_stopped_past_its_lease_does_nothing_on_waking(
    crowd: Crowd, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        crowd.join("first")
        await crowd.acts("first")
        crowd.join("second")
        await asyncio.sleep(1.0)
        crowd.processes["first"].send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        await crowd.acts("second")
        took = min(at for who, at in crowd.lines() if who == "second") - stopped_at
        assert took > TIMES["renew_s"] - TIMES["retry_s"]
        crowd.processes["first"].send_signal(signal.SIGCONT)
        await asyncio.sleep(1.5)
        assert crowd.processes["first"].poll() is None
        crowd.processes["second"].kill()
        await crowd.acts("first", time.monotonic())

    runner.run(scenario())
    assert turns(crowd.lines()) == ["first", "second", "first"]


def test_a_killed_leader_is_followed_and_nobody_acts_beside_another(
    crowd: Crowd, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        crowd.join("first")
        await crowd.acts("first")
        for name in ("second", "third"):
            crowd.join(name)
        crowd.processes["first"].kill()
        async with asyncio.timeout(60.0):
            while len(turns(crowd.lines())) < 2:  # noqa: ASYNC110 - a file is looked at
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)

    runner.run(scenario())
    order = turns(crowd.lines())
    assert len(order) == 2
    assert order[0] == "first"


def test_a_leader_cut_off_ends_its_work_before_another_begins(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    spans: list[tuple[str, float]] = []

    def work(name: str) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            spans.append((f"{name} begins", time.monotonic()))
            try:
                await asyncio.Event().wait()
            finally:
                spans.append((f"{name} ends", time.monotonic()))

        return act

    async def scenario() -> None:
        async with FaultyProxy(cluster.url, cluster.authority) as proxy:
            kubeconfig = cluster.kubeconfig_of("admin", server=proxy.url)
            far = await Api.connect(kubeconfig=str(kubeconfig))
            one, two = (
                LeaseCandidate(at, "roost", "default", name, **TIMES)
                for at, name in ((far, "one"), (api, "two"))
            )
            first = asyncio.create_task(one.run(work("one")))
            await until(lambda: _told(one.leads))
            second = asyncio.create_task(two.run(work("two")))
            proxy.cut(6.0)
            await until(lambda: _told(two.leads))
            assert not one.leads
            for task in (first, second):
                task.cancel()
            await asyncio.wait([first, second])
            await far.close()

    runner.run(scenario())
    assert [what for what, _ in spans] == ["one begins", "one ends", "two begins", "two ends"]


def test_a_leader_that_is_busy_for_longer_than_its_lease_keeps_it(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Its own loop answers no timer meanwhile; the lease is renewed in another thread."""
    starts: list[float] = []

    async def scenario() -> None:
        kubeconfig = str(cluster.kubeconfig_of("admin"))
        beside = await ApiThread.open(lambda: Api.connect(kubeconfig=kubeconfig, connections=1))
        leader = LeaseCandidate(api, "roost", "default", "one", **TIMES, beside=beside)
        task = asyncio.create_task(leader.run(partial(_lead, starts)))
        await until(lambda: _told(leader.leads))
        busy_until = time.monotonic() + 2 * TIMES["lease_s"]
        while time.monotonic() < busy_until:
            sum(range(1000))  # without a pause for the loop
        leader.check()
        task.cancel()
        await asyncio.wait([task])
        await beside.close()
        lease: dict[str, Any] = await api.get(LEASES, "roost", "default")
        assert lease["spec"].get("holderIdentity", "") == ""

    runner.run(scenario())
    assert len(starts) == 1


def test_the_pod_of_the_leader_is_marked_and_no_other(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """The Service of the meeting looks for the mark; one of an earlier life is taken off."""

    async def marked() -> list[str]:
        found, _ = await api.list(PODS, "default", labels=f"{LEADER}=true")
        return sorted(one["metadata"]["name"] for one in found)

    async def scenario() -> None:
        names = ("roost-0", "roost-1")
        mark = {LEADER: "true"}
        await create(api, PODS, [pod(name, scheduler="other", labels=mark) for name in names])
        async with operating(cluster, identity=names[0], pod=names[0], lease_s=3.0):
            far = await Api.connect(kubeconfig=str(cluster.kubeconfig))
            options = OperatorOptions(identity=names[1], pod=names[1], metrics_port=None)
            second = asyncio.create_task(Operator(far, options).run())
            await until(lambda: _told_of(marked, ["roost-0"]))
        await until(lambda: _told_of(marked, ["roost-1"]))
        second.cancel()
        await asyncio.wait([second])
        await far.close()
        assert await marked() == []

    runner.run(scenario())


async def _lead(starts: list[float]) -> None:
    starts.append(time.monotonic())
    await asyncio.Event().wait()


async def _told_of(look: Callable[[], Awaitable[list[str]]], wanted: list[str]) -> bool:
    return await look() == wanted


def test_leadership_lasts_through_a_restart_of_the_server(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    starts: list[float] = []

    async def scenario() -> None:
        leader = LeaseCandidate(api, "roost", "default", "one")
        task = asyncio.create_task(leader.run(partial(_lead, starts)))
        await until(lambda: _told(leader.leads))
        cluster.kill_apiserver()
        await cluster.restart_apiserver()
        before = (await api.get(LEASES, "roost", "default"))["spec"]["renewTime"]

        async def renewed() -> bool:
            return bool((await api.get(LEASES, "roost", "default"))["spec"]["renewTime"] > before)

        await until(renewed)
        assert leader.leads
        task.cancel()
        await asyncio.wait([task])
        lease: dict[str, Any] = await api.get(LEASES, "roost", "default")
        assert lease["spec"].get("holderIdentity", "") == ""

    runner.run(scenario())
    assert len(starts) == 1


async def _told(told: bool) -> bool:  # noqa: FBT001 - as it is told
    return told
