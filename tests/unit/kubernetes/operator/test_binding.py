"""A binding is asked for once, and what is not known is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from tests.unit.kubernetes.operator.objects import pod

from roost.errors import Conflict, Forbidden, NotFound, Retryable
from roost.kubernetes.client.api import Unpermitted
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.operator.binding import Binder, Binding, BindingFate

WANTED = Binding("lab", "p", "uid-p", "n", {})


class Server:
    """Answers bindings with what it is told to, and has one pod."""

    def __init__(self, *answers: Exception | None, found: Object | None = None) -> None:
        self.answers, self.found = list(answers), found
        self.asked, self.at_once, self.most = 0, 0, 0

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, notes: Mapping[str, str]
    ) -> None:
        """One binding."""
        assert (namespace, name, uid, node, notes) == WANTED
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer

    async def get(self, kind: ResourceKind, name: str, namespace: str) -> Object:
        """The pod."""
        assert (kind.plural, name, namespace) == ("pods", "p", "lab")
        if self.found is None:
            raise NotFound("gone")
        return self.found


def bound(server: Server, check: Any = lambda: None) -> tuple[BindingFate, Binder]:
    """What becomes of one binding."""
    binder = Binder(server, check)  # type: ignore[arg-type]
    return asyncio.run(binder.bind(WANTED)), binder


LOST = Retryable("no answer", 0.0)


@pytest.mark.parametrize(
    ("answers", "found", "fate", "asked"),
    [
        ((None,), None, BindingFate.BOUND, 1),
        ((NotFound("no pod"),), None, BindingFate.GONE, 1),
        ((Conflict("has a node"),), pod("p", node="n"), BindingFate.BOUND, 1),
        ((Conflict("has a node"),), pod("p", node="m"), BindingFate.ELSEWHERE, 1),
        ((Conflict("another pod"),), pod("p", uid="other"), BindingFate.GONE, 1),
        ((Conflict("going"),), pod("p", deletionTimestamp="now"), BindingFate.GONE, 1),
        ((LOST,), pod("p", node="n"), BindingFate.BOUND, 1),
        ((LOST,), None, BindingFate.GONE, 1),
        ((LOST, None), pod("p"), BindingFate.BOUND, 2),
        ((Forbidden("no"),) * 9, pod("p"), BindingFate.REFUSED, 4),
        ((Conflict("gated"),) * 9, pod("p"), BindingFate.REFUSED, 4),
    ],
)
def test_what_becomes_of_a_binding(
    answers: tuple[Exception | None, ...], found: Object | None, fate: BindingFate, asked: int
) -> None:
    server = Server(*answers, found=found)
    assert bound(server)[0] is fate
    assert server.asked == asked


def test_why_a_binding_was_refused_is_told_once() -> None:
    binder = bound(Server(*(Forbidden("no right"),) * 9, found=pod("p")))[1]
    assert binder.why_refused(WANTED.uid) == "no right"
    assert binder.why_refused(WANTED.uid) == ""


def test_nothing_is_written_without_the_lease() -> None:
    def check() -> None:
        raise Deposed("another leads")

    server = Server()
    with pytest.raises(Deposed):
        bound(server, check)
    assert server.asked == 0


def test_only_so_many_are_under_way() -> None:
    server = Server()

    async def many() -> None:
        binder = Binder(server, lambda: None, at_once=3)  # type: ignore[arg-type]
        await asyncio.gather(*(binder.bind(WANTED) for _ in range(20)))
        assert binder.counts["bound"] == 20

    asyncio.run(many())
    assert server.most == 3


def test_a_permission_that_is_missing_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        binder = Binder(Server(), lambda: None)  # type: ignore[arg-type]
        for what in ("events", "events", "pods/status"):
            with pytest.raises(Unpermitted):
                await binder.write(partial(refuse, "create", what))

    async def refuse(verb: str, what: str) -> None:
        raise Unpermitted(verb, what)

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "no permission to create events" in caplog.messages[0]
    assert "create pods/status" in caplog.messages[1]
