"""The faulty proxy: each fault does what it says, to the server and to the client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import node, nodes, until
from tests.support.kubernetes.proxy import Chances, FaultyProxy

from roost.errors import Conflict, NotFound, Retryable
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.faults import Expired
from roost.kubernetes.client.kinds import CONFIG_MAPS, NODES, Object
from roost.kubernetes.client.mirror import Mirror


@contextlib.asynccontextmanager
async def _by_proxy(
    plane: ControlPlane, chances: Chances | None = None, seed: int = 1
) -> AsyncIterator[tuple[FaultyProxy, Api]]:
    async with FaultyProxy(plane.url, plane.authority, seed=seed, chances=chances) as proxy:
        path = plane.kubeconfig_of("admin", server=proxy.url)
        api = await Api.connect(kubeconfig=str(path))
        try:
            yield proxy, api
        finally:
            await api.close()


def _config(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}}


async def _exists(api: Api, name: str) -> bool:
    try:
        await api.get(CONFIG_MAPS, name, "default")
    except NotFound:
        return False
    return True


def test_without_faults_everything_passes(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with _by_proxy(cluster) as (proxy, far):
            await nodes(far, 50)
            seen, version = await far.list(NODES)
            assert len(seen) == 50
            await api.create(NODES, node("late"))
            assert await _watched(far, version, enough=1) == ["late"]
            assert set(proxy.seen) == {"pass"}

    runner.run(story())


def test_a_lost_request_is_not_done_and_a_lost_answer_is(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with _by_proxy(cluster, Chances(lose_request=1.0)) as (proxy, far):
            with pytest.raises(Retryable):
                await far.create(CONFIG_MAPS, _config("one"))
            assert not await _exists(api, "one")
            proxy.chances = Chances(lose_answer=1.0)
            with pytest.raises(Retryable):
                await far.create(CONFIG_MAPS, _config("two"))
            assert await _exists(api, "two")
            proxy.heal()
            assert await _exists(far, "two")

    runner.run(story())


def test_a_repeated_create_clashes_with_itself(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with _by_proxy(cluster, Chances(repeat=1.0)) as (_, far):
            with pytest.raises(Conflict):
                await far.create(CONFIG_MAPS, _config("twice"))
        assert await _exists(api, "twice")

    runner.run(story())


def test_a_refusal_says_when_to_come_again(cluster: ControlPlane, runner: asyncio.Runner) -> None:
    async def story() -> None:
        async with _by_proxy(cluster, Chances(refuse=1.0)) as (_, far):
            with pytest.raises(Retryable) as caught:
                await far.create(CONFIG_MAPS, _config("refused"))
            assert caught.value.after == 1.0

    runner.run(story())


def test_a_hanging_request_is_done_but_never_answered(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with _by_proxy(cluster, Chances(hang=1.0)) as (_, far):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(far.create(CONFIG_MAPS, _config("silent")), 0.5)
        assert await _exists(api, "silent")

    runner.run(story())


@pytest.mark.parametrize("way", ["both", "requests", "answers"])
def test_a_cut_holds_what_it_says(
    way: str, cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with _by_proxy(cluster) as (proxy, far):
            proxy.cut(60.0, way)  # type: ignore[arg-type]
            asked = asyncio.create_task(far.create(CONFIG_MAPS, _config("held")))
            if way == "answers":
                await until(lambda: _exists(api, "held"))
            else:
                await asyncio.sleep(0.3)
                assert not await _exists(api, "held")
            assert not asked.done()
            proxy.heal()
            await asyncio.wait_for(asked, 60)
            assert await _exists(api, "held")

    runner.run(story())


def test_a_request_may_arrive_after_its_sender_gave_up(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        async with _by_proxy(cluster) as (proxy, far):
            proxy.cut(60.0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(far.create(CONFIG_MAPS, _config("late")), 0.3)
            assert not await _exists(api, "late")
            proxy.heal()
            await until(lambda: _exists(api, "late"))

    runner.run(story())


def test_a_watch_may_stall_break_expire_and_repeat(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        _, version = await api.list(NODES)
        await nodes(api, 40)
        async with _by_proxy(cluster, Chances(cut_watch=1.0)) as (proxy, far):
            with pytest.raises(Retryable):
                await _watched(far, version)
            proxy.chances = Chances(stall_watch=1.0)
            assert len(await _watched(far, version, stall_s=0.5)) < 20
            proxy.chances = Chances(expire_watch=1.0)
            with pytest.raises(Expired):
                await _watched(far, version)
            proxy.chances = Chances(repeat_event=1.0)
            names = await _watched(far, version, enough=80)
            assert len(names) == 80
            assert len(set(names)) == 40

    runner.run(story())


async def _watched(
    api: Api, version: str, *, stall_s: float = 20.0, enough: int = 1000
) -> list[str]:
    found = []
    watch = api.watch(NODES, version, stall_s=stall_s)
    async with contextlib.aclosing(watch):
        async for kind, one in watch:
            if kind != "BOOKMARK":
                found.append(one["metadata"]["name"])
            if len(found) == enough:
                return found
    return found


def test_a_mirror_sees_everything_in_the_end(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        chances = Chances(
            lose_answer=0.1, refuse=0.05, cut_watch=0.8, expire_watch=0.2, repeat_event=0.3
        )
        async with _by_proxy(cluster, chances, seed=3) as (proxy, far):
            changes: list[tuple[Object | None, Object | None]] = []
            mirror = Mirror(far, NODES, lambda old, new: changes.append((old, new)))
            task = asyncio.create_task(mirror.run())
            names = await nodes(api, 100)

            async def all_there() -> bool:
                return len(mirror.objects) == len(names)

            await until(all_there, 40)
            await asyncio.gather(*(api.delete(NODES, name) for name in names))

            async def none_left() -> bool:
                return not mirror.objects

            await until(none_left, 40)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert sum(1 for old, new in changes if old is None) == len(names)
            assert sum(1 for old, new in changes if new is None) == len(names)
            assert proxy.seen["cut_watch"] + proxy.seen["expire_watch"] >= 1

    runner.run(story())


def test_the_same_seed_gives_the_same_faults(cluster: ControlPlane, runner: asyncio.Runner) -> None:
    async def story() -> list[str]:
        fates = []
        async with _by_proxy(cluster, Chances.all(0.1), seed=5) as (proxy, far):
            proxy.hang_s = 0.0
            for number in range(20):
                before = proxy.seen.copy()
                with contextlib.suppress(Retryable, Conflict):
                    await far.create(CONFIG_MAPS, _config(f"c{number}"))
                (fate,) = proxy.seen - before
                fates.append(fate)
        await cluster.wipe()
        return fates

    begun = time.monotonic()
    first = runner.run(story())
    assert first == runner.run(story())
    assert len(set(first)) > 3
    assert time.monotonic() - begun < 60
