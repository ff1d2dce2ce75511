"""Where pods ask and tell: who is let in, who waits, what is heard once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from roost.core.spec import JobId, RunId
from roost.kubernetes.jobs.blueprint import digest_of
from roost.kubernetes.jobs.rendezvous import RendezvousServer

RUN = RunId(JobId("default.job"), 2)
VIEW = {"version": 1, "address": "10.0.0.1:4000", "members": ["0"], "lost": []}
VIEW |= {"save": 0, "offload": 0}
TOKEN = "a secret"  # noqa: S105 - of nobody


class Pods:
    """A meeting, and somebody who calls it."""

    def __init__(self, meeting: RendezvousServer, session: aiohttp.ClientSession) -> None:
        self.meeting, self.session = meeting, session
        self.url = f"http://127.0.0.1:{meeting.port}"
        self.headers = {"Authorization": f"Bearer {TOKEN}"}

    async def ask(self, path: str = "", **query: object) -> tuple[int, Any]:
        asked = {"member": "0", "after": "0"} | {name: str(value) for name, value in query.items()}
        url = self.url + (path or "/runs/default.job/2/members")
        async with self.session.get(url, params=asked, headers=self.headers) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if answer.status == 200 else None

    async def tell(self, *lines: tuple[int, str], sender: str = "me", **more: Any) -> int:
        said = {"member": "0", "sender": sender, "lines": lines} | more
        url = f"{self.url}/runs/default.job/2/progress"
        async with self.session.post(url, json=said, headers=self.headers) as answer:
            return answer.status


heard: list[tuple[RunId, str, dict[str, Any]]] = []
polls: list[tuple[RunId, str, int]] = []


@asynccontextmanager
async def pods(**options: Any) -> AsyncIterator[Pods]:
    heard.clear()
    polls.clear()
    meeting = RendezvousServer(
        lambda *what: heard.append(what), lambda *what: polls.append(what), **options
    )
    await meeting.start("127.0.0.1")
    meeting.open(RUN, digest_of(TOKEN))
    try:
        async with aiohttp.ClientSession() as session:
            yield Pods(meeting, session)
    finally:
        await meeting.stop()


async def until(seen: Callable[[], bool]) -> None:
    while not seen():  # noqa: ASYNC110 - it is the server that is looked at
        await asyncio.sleep(0.005)


def play(scene: Callable[[Pods], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), pods(**options) as here:
            await scene(here)

    asyncio.run(run())


def test_a_view_is_given_at_once_or_when_it_comes() -> None:
    async def scene(here: Pods) -> None:
        waits = asyncio.create_task(here.ask())
        await until(lambda: bool(polls))
        here.meeting.publish(RUN, VIEW)
        assert await waits == (200, VIEW)
        assert await here.ask() == (200, VIEW)
        waits = asyncio.create_task(here.ask(after="1.0.0"))
        await until(lambda: len(polls) >= 3)
        here.meeting.publish(RUN, VIEW | {"save": 1})
        assert (await waits)[1]["save"] == 1
        assert polls[-1] == (RUN, "0", 1)

    play(scene)


def test_nothing_new_is_said_after_a_while() -> None:
    async def scene(here: Pods) -> None:
        here.meeting.publish(RUN, VIEW)
        assert await here.ask(after="1.0.0") == (204, None)
        assert await here.ask(after="7") == (204, None)  # it knows more than we do

    play(scene, poll_s=0.05)


def test_who_knew_another_operator_need_not_wait_to_know_of_this_one() -> None:
    async def scene(here: Pods) -> None:
        here.meeting.publish(RUN, VIEW)
        assert await here.ask(after="1.0.0", boot="another") == (204, None)

    play(scene, poll_s=60.0)


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/runs/default.job/2/members", "wrong", 401),
        ("/runs/default.job/2/members", "", 401),
        ("/runs/default.job/2/members", "\udce4\udcff", 401),
        ("/runs/default.job/3/members", TOKEN, 404),
        ("/runs/default.other/2/members", TOKEN, 404),
        ("/runs/default.job/-1/members", TOKEN, 400),
        ("/runs/default.job/9999999999999/members", TOKEN, 400),
        ("/anything", TOKEN, 404),
    ],
)
def test_only_those_who_may_are_let_in(path: str, token: str, status: int) -> None:
    async def scene(here: Pods) -> None:
        here.meeting.publish(RUN, VIEW)
        here.headers = {"Authorization": f"Bearer {token}"}
        assert (await here.ask(path))[0] == status

    play(scene)


@pytest.mark.parametrize(
    "query",
    [
        {"member": ""},
        {"member": "x"},
        {"member": "²"},
        {"member": "1" * 50},
        {"after": "x"},
        {"after": "-1"},
        {"after": "1.2.3.4"},
        {"after": "9" * 400},
        {"port": "65536"},
        {"port": "x"},
    ],
)
def test_senseless_questions_are_refused(query: dict[str, str]) -> None:
    async def scene(here: Pods) -> None:
        here.meeting.publish(RUN, VIEW)
        assert (await here.ask(**query))[0] == 400
        assert polls == []

    play(scene)


def test_lines_are_heard_once() -> None:
    async def scene(here: Pods) -> None:
        assert await here.tell((1, '{"step": 1}'), (2, '{"step": 2}')) == 204
        assert await here.tell((2, '{"step": 2}'), (5, '{"step": 5}')) == 204
        assert await here.tell((1, '{"step": 1}'), sender="the next") == 204
        assert [line["step"] for _, _, line in heard] == [1, 2, 5, 1]
        assert heard[0] == (RUN, "0", {"step": 1})

    play(scene)


def test_what_is_no_line_is_passed_over() -> None:
    async def scene(here: Pods) -> None:
        strange = ["", "null", "[]", "{", "[" * 4000, f'{{"a": "{"x" * 5000}"}}', '{"fine": NaN}']
        assert await here.tell(*enumerate(strange, 1)) == 204
        assert [list(line) for _, _, line in heard] == [["fine"]]

    play(scene)


@pytest.mark.parametrize(
    "said",
    [
        {"lines": 5},
        {"lines": [1]},
        {"lines": [["x", "y"]]},
        {"member": "me"},
        {"member": None},
        {"lines": [[1e400, "{}"]]},
        {"lines": [[1 << 53, "{}"]]},
        {"lines": [[0, "{}"]]},
    ],
)
def test_senseless_posts_are_refused(said: dict[str, Any]) -> None:
    async def scene(here: Pods) -> None:
        assert await here.tell(**said) == 400
        assert heard == []

    play(scene)


def test_a_body_has_a_limit() -> None:
    async def scene(here: Pods) -> None:
        assert await here.tell((1, "x" * 300_000)) == 413
        assert await here.tell(*((number, "{}") for number in range(1, 1002))) == 413
        assert heard == []

    play(scene)


def test_those_who_wait_are_limited_and_a_member_waits_once() -> None:
    async def scene(here: Pods) -> None:
        first = asyncio.create_task(here.ask())
        await until(lambda: len(polls) >= 1)
        second = asyncio.create_task(here.ask())
        assert (await first)[0] == 204
        third = asyncio.create_task(here.ask(member="1"))
        await until(lambda: len(polls) >= 3)
        assert (await here.ask(member="2"))[0] == 503
        here.meeting.publish(RUN, VIEW)
        assert [(await one)[0] for one in (second, third)] == [200, 200]
        assert here.meeting._waiting == 0

    play(scene, most_waiting=2)


def test_a_pod_that_goes_away_does_not_wait_on() -> None:
    async def scene(here: Pods) -> None:
        waits = asyncio.create_task(here.ask())
        await until(lambda: here.meeting._waiting > 0)
        waits.cancel()
        await until(lambda: not here.meeting._waiting)

    play(scene)


def test_a_run_may_get_another_token() -> None:
    async def scene(here: Pods) -> None:
        here.meeting.publish(RUN, VIEW)
        here.meeting.open(RUN, digest_of("another"))
        assert (await here.ask())[0] == 401
        here.headers = {"Authorization": "Bearer another"}
        assert await here.ask() == (200, VIEW)

    play(scene)


def test_where_members_are_met() -> None:
    async def scene(here: Pods) -> None:
        here.meeting.publish(RUN, VIEW)
        await here.ask(port=4001)
        await here.ask(member="1", port=4002)
        hosts = {"0": "10.0.0.1", "1": "fd00::1", "2": "10.0.0.3"}
        places = {"0": "10.0.0.1:4001", "1": "[fd00::1]:4002"}
        assert here.meeting.places(RUN, hosts) == places

    play(scene)


def test_a_run_that_is_closed_lets_nobody_wait() -> None:
    async def scene(here: Pods) -> None:
        waits = asyncio.create_task(here.ask())
        await until(lambda: bool(polls))
        here.meeting.close(RUN)
        assert (await waits)[0] == 503
        assert (await here.ask())[0] == 404
        here.meeting.publish(RUN, VIEW)
        assert here.meeting.places(RUN, {"0": "x"}) == {}

    play(scene)


def test_a_mistake_of_whoever_listens_is_not_the_pods() -> None:
    async def scene(here: Pods) -> None:
        def fail(*_: object) -> None:
            raise ValueError("a mistake")

        here.meeting._on_line = fail
        assert await here.tell((1, "{}")) == 204

    play(scene)


def test_a_run_that_is_to_end_lets_nobody_wait_and_hears_them_out() -> None:
    async def scene(here: Pods) -> None:
        waits = asyncio.create_task(here.ask())
        await until(lambda: bool(polls))
        here.meeting.release(RUN)
        assert (await waits)[0] == 503
        assert (await here.ask())[0] == 410
        assert await here.tell((1, '{"saved": 1}')) == 204
        assert heard == [(RUN, "0", {"saved": 1})]

    play(scene)


async def silent(
    pods: Pods, said: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that says this much, and then nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", pods.meeting.port)
    writer.write(said)
    return reader, writer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 60) == b""
    return True


@pytest.mark.parametrize("said", [b"", b"GET /runs/default.job/2/members HTTP/1.1\r\nHost: x\r\n"])
def test_who_connects_and_asks_for_nothing_is_sent_away(said: bytes) -> None:
    async def scenario() -> None:
        async with pods(patience_s=0.1) as here:
            reader, writer = await silent(here, said)
            assert await is_closed(reader)
            writer.close()

    asyncio.run(scenario())


def test_who_has_shown_a_token_may_wait() -> None:
    async def scenario() -> None:
        async with pods(patience_s=0.1, poll_s=0.4) as here:
            assert (await here.ask())[0] == 204  # after four times the patience

    asyncio.run(scenario())


def test_strangers_make_room_and_pods_do_not() -> None:
    async def scenario() -> None:
        async with pods(most_open=3, poll_s=0.5) as here:
            strangers = [await silent(here) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert await alone(here, 0) == 204
            assert await is_closed(strangers[0][0])
            for _, writer in strangers:
                writer.close()
            await asyncio.sleep(0.05)
            polls = [asyncio.create_task(alone(here, member)) for member in range(3)]
            await asyncio.sleep(0.2)
            reader, writer = await silent(here)
            assert await is_closed(reader)
            writer.close()
            assert await asyncio.gather(*polls) == [204, 204, 204]

    asyncio.run(scenario())


async def alone(pods: Pods, member: int) -> int:
    """A poll on a connection of its own."""
    async with aiohttp.ClientSession() as session:
        return (await Pods(pods.meeting, session).ask(member=member))[0]


def test_a_digest_that_is_no_digest_lets_nobody_in() -> None:
    async def scenario() -> None:
        async with pods() as here:
            for forged in ("größer", "\ud800"):
                here.meeting.open(RUN, forged)
                assert (await here.ask())[0] == 401

    asyncio.run(scenario())


def test_lines_that_never_end_are_not_waited_for() -> None:
    async def scenario() -> None:
        async with pods(patience_s=0.1) as here:
            head = (
                "POST /runs/default.job/2/progress HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
                f"Authorization: Bearer {TOKEN}\r\n\r\n{{"
            )
            reader, writer = await silent(here, head.encode())
            assert b" 408 " in await asyncio.wait_for(reader.readline(), 60)
            writer.close()

    asyncio.run(scenario())
