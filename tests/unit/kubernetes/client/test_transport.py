"""Requests through faults: what is repeated, what is not, and what each refusal becomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubernetes.client.faulty_server import Answer, Faulty, faulty, pod

from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.kubernetes.client.api import Api, Disrupted, Expired, Unpermitted
from roost.kubernetes.client.kinds import LEASES, NODES, PODS
from roost.kubernetes.client.transport import GUARD, TRIES

PATH = "/api/v1/namespaces/lab/pods"
ALL = "/api/v1/pods"

Scenario = Callable[[Faulty, Api], Awaitable[None]]


def play(folder: Path, scenario: Scenario, connections: int = 64) -> list[float]:
    """Run a scenario; returns the pauses it made, none of which is really waited for."""
    pauses: list[float] = []

    async def main() -> None:
        async with faulty(folder, connections) as (server, api):

            async def sleep(seconds: float) -> None:
                pauses.append(seconds)

            api._transport.sleep = sleep
            await scenario(server, api)

    asyncio.run(main())
    return pauses


def refusal(message: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, **more}


def test_reading_is_repeated_after_the_time_that_the_server_names(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        busy = Answer(refusal("too many"), 429, {"Retry-After": "7"})
        server.say("GET", f"{PATH}/a", busy, Answer(refusal("down"), 503), Answer(pod("a", 1)))
        assert (await api.get(PODS, "a", "lab"))["metadata"]["name"] == "a"

    first, second = play(tmp_path, scenario)
    assert first == 7.0
    assert 0.0 < second < 1.0


def test_patience_has_an_end(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", f"{PATH}/a", Answer(refusal("down"), 500))
        with pytest.raises(Retryable, match="get pods lab/a: down"):
            await api.get(PODS, "a", "lab")
        assert len(server.asked) == TRIES
        server.say("GET", f"{PATH}/b", Answer(refusal("later"), 429, {"Retry-After": "60"}))
        with pytest.raises(Retryable) as caught:
            await api.get(PODS, "b", "lab")
        assert caught.value.after == 60.0
        assert len(server.asked) == TRIES + 1

    assert len(play(tmp_path, scenario)) == TRIES - 1


def test_creating_and_binding_are_sent_once(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        server.say("POST", PATH, Answer(refusal("down"), 503, {"Retry-After": "3"}))
        server.say("POST", f"{PATH}/a/binding", Answer(refusal("x"), cut=0))
        with pytest.raises(Retryable) as caught:
            await api.create(PODS, pod("a", 1), "lab")
        assert caught.value.after == 3.0
        with pytest.raises(Retryable):
            await api.bind("lab", "a", "u", "n", {"roost.dev/gpus": "0"})
        assert len(server.asked) == 2
        assert server.bodies[1] == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "a", "uid": "u", "annotations": {"roost.dev/gpus": "0"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        }

    assert play(tmp_path, scenario) == []


@pytest.mark.parametrize("times", [1, 2])
def test_what_may_no_longer_be_written_does_not_leave(tmp_path: Path, times: int) -> None:
    """Neither a request that waited, nor one of which only the body is still here."""
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked >= times:
            raise Conflict("somebody else leads")

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("POST", f"{PATH}/a/binding", Answer({}))
        guard = GUARD.set(check)
        try:
            with pytest.raises((Conflict, Retryable)):
                await api.bind("lab", "a", "uid", "node", {})
        finally:
            GUARD.reset(guard)
        assert asked == times
        assert server.asked == []

    play(tmp_path, scenario)


def test_a_page_that_breaks_off_is_asked_for_again(tmp_path: Path) -> None:
    def page(names: str, token: str = "") -> dict[str, Any]:
        return {
            "metadata": {"resourceVersion": "9", "continue": token},
            "items": [pod(name, 1) for name in names],
        }

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", ALL, Answer(page("ab", "t")), Answer(page("cd"), cut=40))
        server.say("GET", ALL, Answer(page("cd")))
        items, version = await api.list(PODS, page=2)
        assert [item["metadata"]["name"] for item in items] == list("abcd")
        assert version == "9"
        assert items[0]["kind"] == "Pod"
        assert [request.query.get("continue") for request in server.asked] == [None, "t", "t"]

    play(tmp_path, scenario)


def test_a_list_that_took_too_long_begins_anew(tmp_path: Path) -> None:
    first = {"metadata": {"resourceVersion": "1", "continue": "t"}, "items": [pod("a", 1)]}
    whole = {"metadata": {"resourceVersion": "5"}, "items": [pod("b", 5)]}

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", ALL, Answer(first), Answer(refusal("too old"), 410), Answer(whole))
        items, version = await api.list(PODS, page=1)
        assert [item["metadata"]["name"] for item in items] == ["b"]
        assert version == "5"
        assert [request.query["limit"] for request in server.asked] == ["1", "1", "4"]

    play(tmp_path, scenario)


def test_a_rotated_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.kubernetes.client.access.RELOAD_S", 0.0)

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", f"{PATH}/a", Answer(refusal("who?"), 401), Answer(pod("a", 1)))
        (tmp_path / "token").write_text("second\n")
        await api.get(PODS, "a", "lab")
        used = [request.headers["Authorization"] for request in server.asked]
        assert used == ["Bearer first", "Bearer second"]

    play(tmp_path, scenario)


def test_credentials_that_stay_wrong_are_not_loaded_in_a_loop(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", f"{PATH}/a", Answer(refusal("Unauthorized"), 401))
        with pytest.raises(Forbidden, match="does not accept these credentials"):
            await api.get(PODS, "a", "lab")
        assert len(server.asked) == 1

    play(tmp_path, scenario)


def test_what_refusals_become(tmp_path: Path) -> None:
    rbac = 'pods is forbidden: User "poor" cannot list resource "pods" in API group ""'
    quota = 'pods "a" is forbidden: exceeded quota: small'
    budget = refusal("no", details={"causes": [{"reason": "DisruptionBudget"}]})

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", ALL, Answer(refusal(rbac), 403))
        with pytest.raises(Unpermitted, match="no permission to list pods in the whole") as caught:
            await api.list(PODS)
        assert (caught.value.verb, caught.value.resource) == ("list", "pods")
        server.say(
            "POST",
            PATH,
            Answer(refusal(quota), 403),
            Answer(refusal("spec.x: wrong"), 422),
            Answer(refusal("there"), 409),
        )
        with pytest.raises(Forbidden, match="exceeded quota") as refused:
            await api.create(PODS, pod("a", 1))
        assert not isinstance(refused.value, Unpermitted)
        with pytest.raises(InvalidSpec, match=r"spec\.x: wrong"):
            await api.create(PODS, pod("a", 1))
        with pytest.raises(Conflict):
            await api.create(PODS, pod("a", 1))
        server.say("POST", f"{PATH}/a/eviction", Answer(budget, 429, {"Retry-After": "10"}))
        with pytest.raises(Disrupted) as held:
            await api.evict("lab", "a", "u")
        assert held.value.after == 10.0
        with pytest.raises(NotFound):
            await api.get(NODES, "nobody")

    play(tmp_path, scenario)


def test_two_budgets_on_one_pod_refuse_as_one_does(tmp_path: Path) -> None:
    said = "This pod has more than one PodDisruptionBudget, which is not supported"

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("POST", f"{PATH}/a/eviction", Answer(refusal(said), 500))
        with pytest.raises(Disrupted):
            await api.evict("lab", "a", "u")

    play(tmp_path, scenario)


def test_an_eviction_refused_by_a_busy_server_is_repeated(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        server.say("POST", f"{PATH}/a/eviction", Answer(refusal("busy"), 429), Answer({}, 201))
        await api.evict("lab", "a", "u", grace_s=0)
        assert server.bodies[-1]["deleteOptions"] == {
            "preconditions": {"uid": "u"},
            "gracePeriodSeconds": 0,
        }

    assert len(play(tmp_path, scenario)) == 1


def test_a_proxy_that_answers_for_the_server(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        page = Answer(b"<html>hello</html>")
        server.say("GET", f"{PATH}/a", page)
        with pytest.raises(Retryable, match="not JSON"):
            await api.get(PODS, "a", "lab")
        server.say("GET", f"{PATH}/b", Answer(b"<html>bad gateway</html>", 502))
        with pytest.raises(Retryable, match="bad gateway"):
            await api.get(PODS, "b", "lab")

    play(tmp_path, scenario)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    async def scenario(_: Faulty, api: Api) -> None:
        api._way._lines[-1].host = "http://127.0.0.1:9"
        with pytest.raises(Retryable, match="get pods lab/a"):
            await api.get(PODS, "a", "lab")

    assert len(play(tmp_path, scenario)) == TRIES - 1


def test_a_lease_waits_for_no_other_request(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        lease = "/apis/coordination.k8s.io/v1/namespaces/lab/leases/l"
        server.say("GET", f"{PATH}/slow", Answer(stalls=True))
        server.say("GET", lease, Answer(pod("l", 1)))
        slow = asyncio.create_task(api.get(PODS, "slow", "lab"))
        await server.met.wait()
        async with asyncio.timeout(60.0):
            await api.get(LEASES, "l", "lab")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await api.get(PODS, "other", "lab")
        slow.cancel()
        await asyncio.wait([slow])

    play(tmp_path, scenario, connections=1)


async def changes(api: Api, **options: Any) -> list[tuple[str, str]]:
    watch = api.watch(PODS, "1", **options)
    begin, version = await anext(watch)
    assert (begin, version) == ("BOOKMARK", {"metadata": {"resourceVersion": "1"}})
    return [(what, found["metadata"]["name"]) async for what, found in watch]


def line(what: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": what, "object": found}).encode() + b"\n"


def test_a_watch_that_ends_and_one_that_expires(tmp_path: Path) -> None:
    gone = line("ERROR", refusal("too old resource version", code=410))

    async def scenario(server: Faulty, api: Api) -> None:
        big = pod("b", 3) | {"padding": "x" * 3_000_000}
        text = line("ADDED", pod("a", 2)) + line("MODIFIED", big)
        server.say("GET", ALL, Answer(text), Answer(gone), Answer(refusal("old"), 410))
        assert await changes(api) == [("ADDED", "a"), ("MODIFIED", "b")]
        assert server.asked[0].query["allowWatchBookmarks"] == "true"
        for _ in range(2):
            with pytest.raises(Expired):
                await changes(api)

    play(tmp_path, scenario)


def test_a_watch_cut_in_the_middle_of_a_line(tmp_path: Path) -> None:
    text = line("ADDED", pod("a", 2)) + line("ADDED", pod("b", 3))

    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", ALL, Answer(text, cut=len(text) - 9))
        watch = api.watch(PODS, "1")
        assert (await anext(watch))[0] == "BOOKMARK"
        assert (await anext(watch))[1]["metadata"]["name"] == "a"
        with pytest.raises(Retryable):
            await anext(watch)

    play(tmp_path, scenario)


def test_a_watch_that_says_nothing_any_more_is_ended(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", ALL, Answer(line("ADDED", pod("a", 2)), stalls=True))
        assert await changes(api, stall_s=0.2) == [("ADDED", "a")]

    play(tmp_path, scenario)


def test_what_is_gone_needs_no_deleting(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        said = "Precondition failed: UID in precondition: u, UID in object meta: v"
        newer = "the UID in the precondition (u) does not match the UID in record (v)"
        server.say("DELETE", f"{PATH}/a", Answer(refusal(said), 409), Answer(refusal(newer), 409))
        await api.delete(PODS, "a", "lab", uid="u")
        await api.delete(PODS, "a", "lab", uid="u", grace_s=5)
        assert server.bodies[0]["preconditions"] == {"uid": "u"}
        await api.delete(PODS, "nobody", "lab")
        with pytest.raises(Conflict):
            await api.delete(PODS, "a", "lab")

    play(tmp_path, scenario)


def test_logs_from_a_byte_on(tmp_path: Path) -> None:
    async def scenario(server: Faulty, api: Api) -> None:
        server.say("GET", f"{PATH}/a/log", Answer(b"one\ntwo\n"))
        assert await api.log("lab", "a", since_bytes=4, limit_bytes=100) == b"two\n"
        assert server.asked[0].query["limitBytes"] == "104"
        pieces = [piece async for piece in api.follow("lab", "a", since_bytes=2)]
        assert b"".join(pieces) == b"e\ntwo\n"

    play(tmp_path, scenario)
