"""One leads at a time, whoever is slow, cut off or asleep."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from roost.errors import Conflict, NotFound, Retryable
from roost.kubernetes.client import lease as module
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.lease import Deposed, LeaseCandidate

Object = dict[str, Any]


class Store:
    """One lease, changed only by those who know its version; ``down``: nobody is answered."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.down = self.silent = False
        self.holders: list[str] = []

    async def get(self, *_: Any) -> Object:
        await self._answer()
        if self.lease is None:
            raise NotFound("no lease")
        return copy.deepcopy(self.lease)

    async def create(self, _: Any, body: Object) -> Object:
        await self._answer()
        if self.lease is not None:
            raise Conflict("there is one")
        return self._keep(body)

    async def replace(self, _: Any, body: Object) -> Object:
        await self._answer()
        if self.lease is None:
            raise NotFound("no lease")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("it has changed")
        return self._keep(body)

    def _keep(self, body: Object) -> Object:
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.holders.append(body["spec"]["holderIdentity"])
        return copy.deepcopy(self.lease)

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.silent:
            await asyncio.Event().wait()
        if self.down:
            raise Retryable("down", 1.0)

    def edit(self, **spec: Any) -> None:
        assert self.lease is not None
        self._keep(self.lease | {"spec": self.lease["spec"] | spec})


class Clock:
    """Time that goes on when told, and a little with each look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "_now", clock)
    return clock


def leader(store: Store, name: str = "one", **times: Any) -> LeaseCandidate:
    times = {"lease_s": 15.0, "renew_s": 10.0, "retry_s": 0.01} | times
    return LeaseCandidate(cast("Api", store), "roost", "lab", name, **times)


async def until(told: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not told():  # noqa: ASYNC110 - whatever changes, it is looked at
            await asyncio.sleep(0.005)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def play(scenario: Callable[[Store], Awaitable[None]]) -> Store:
    store = Store()

    async def main() -> None:
        await scenario(store)

    asyncio.run(main())
    return store


@pytest.mark.usefixtures("clock")
def test_the_first_leads_and_gives_the_lease_back() -> None:
    async def scenario(store: Store) -> None:
        one = leader(store)
        assert not one.leads
        with pytest.raises(Deposed, match="does not lead"):
            one.check()
        task = asyncio.create_task(one.run(for_ever))
        await until(lambda: one.leads)
        one.check()
        assert store.lease is not None
        spec = store.lease["spec"]
        assert spec["holderIdentity"] == one.identity != "one"
        assert spec["leaseDurationSeconds"] == 15
        await stopped(task)
        assert not one.leads
        assert store.lease["spec"]["holderIdentity"] == ""

    play(scenario)


def test_the_second_waits_its_whole_time_by_its_own_clock(clock: Clock) -> None:
    async def scenario(store: Store) -> None:
        one, two = leader(store), leader(store, "two")
        first = asyncio.create_task(one.run(for_ever))
        await until(lambda: one.leads)
        store.edit(renewTime="1970-01-01T00:00:00.000000Z")  # its clock is far behind: no matter
        second = asyncio.create_task(two.run(for_ever))
        for _ in range(8):
            clock.now += 4.0
            seen = store.version
            await until(lambda seen=seen: store.version > seen + 1)  # type: ignore[misc]
            assert one.leads
            assert not two.leads
        await stopped(first)
        await until(lambda: two.leads)
        assert store.lease is not None
        assert store.lease["spec"]["leaseTransitions"] >= 1
        await stopped(second)

    play(scenario)


def test_a_dead_leader_is_followed_after_its_time(clock: Clock) -> None:
    async def scenario(store: Store) -> None:
        store._keep({"metadata": {}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}})
        two = leader(store, "two")
        task = asyncio.create_task(two.run(for_ever))
        await asyncio.sleep(0.05)
        clock.now += 14.9
        await asyncio.sleep(0.05)
        assert not two.leads
        clock.now += 0.2
        await until(lambda: two.leads)
        await stopped(task)

    play(scenario)


def test_work_is_cancelled_when_the_lease_cannot_be_renewed(clock: Clock) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await for_ever()
        finally:
            ended.append("cancelled")

    async def scenario(store: Store) -> None:
        one = leader(store)
        task = asyncio.create_task(one.run(work))
        await until(lambda: one.leads)
        store.down = True
        clock.now += 9.9
        await asyncio.sleep(0.05)
        assert one.leads
        assert not ended
        clock.now += 0.2
        assert not one.leads
        with pytest.raises(Deposed, match="has not renewed its lease for 10 s"):
            one.check()
        await until(lambda: bool(ended))
        store.down = False
        await until(lambda: one.leads)  # nobody took it, so it leads again, from the beginning
        await stopped(task)
        assert ended == ["cancelled", "cancelled"]

    play(scenario)


def test_a_server_that_does_not_answer_is_as_good_as_none() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await for_ever()
        finally:
            ended.append("cancelled")

    async def scenario(store: Store) -> None:
        one = leader(store, lease_s=1.0, renew_s=0.4, retry_s=0.1)
        task = asyncio.create_task(one.run(work))
        await until(lambda: one.leads)
        store.silent = True
        began = time.monotonic()
        await until(lambda: bool(ended))
        assert time.monotonic() - began < 10.0  # not for ever, as the server
        store.silent = False
        await stopped(task)

    play(scenario)


def test_a_leader_that_slept_notices_before_it_acts(clock: Clock) -> None:
    async def scenario(store: Store) -> None:
        one, two = leader(store), leader(store, "two")
        first = asyncio.create_task(one.run(for_ever))
        await until(lambda: one.leads)
        clock.now += 100.0  # it wakes, and none of its tasks has run yet
        with pytest.raises(Deposed):
            one.check()
        assert store.lease is not None
        store.edit(holderIdentity=two.identity)
        await asyncio.sleep(0.05)
        assert not one.leads
        assert store.holders[-1] == two.identity
        await stopped(first)

    play(scenario)


@pytest.mark.usefixtures("clock")
def test_a_stolen_lease_ends_the_work() -> None:
    async def scenario(store: Store) -> None:
        one = leader(store)
        task = asyncio.create_task(one.run(for_ever))
        await until(lambda: one.leads)
        store.edit(holderIdentity="thief")
        await until(lambda: not one.leads)
        await stopped(task)
        assert store.holders[-1] == "thief"

    play(scenario)


@pytest.mark.usefixtures("clock")
def test_somebody_who_touches_the_lease_does_not_end_the_work() -> None:
    async def scenario(store: Store) -> None:
        one = leader(store)
        ended: list[int] = []

        async def work() -> None:
            try:
                await for_ever()
            finally:
                ended.append(1)

        task = asyncio.create_task(one.run(work))
        await until(lambda: one.leads)
        store.edit(strategy="nothing")
        seen = store.version
        await until(lambda: store.version > seen + 2)
        assert one.leads
        assert not ended
        await stopped(task)

    play(scenario)


@pytest.mark.usefixtures("clock")
def test_an_end_by_itself_gives_the_lease_back() -> None:
    async def done() -> None:
        await asyncio.sleep(0)

    async def broken() -> None:
        raise ValueError("broken")

    async def scenario(store: Store) -> None:
        one = leader(store)
        await one.run(done)
        assert store.holders[-1] == ""
        with pytest.raises(ValueError, match="broken"):
            await one.run(broken)
        assert store.holders[-1] == ""

    play(scenario)


def test_work_that_finds_itself_deposed_is_taken_up_anew(clock: Clock) -> None:
    async def scenario(store: Store) -> None:
        one = leader(store)
        tries: list[int] = []

        async def work() -> None:
            tries.append(1)
            if len(tries) == 1:
                clock.now += 20.0
                one.check()

        await one.run(work)
        assert len(tries) == 2

    play(scenario)


def test_times_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="0 < retry_s < renew_s < lease_s"):
        leader(Store(), renew_s=20.0)
