"""``roost login``, ``logout``, ``servers`` and ``--on``."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import FakeServer, refused

from roost.cli import _REMOTE, _VERBS, cli
from roost.client import logins

Serving = Callable[[FakeServer], str]


def fake(user: str) -> FakeServer:
    """A server that knows one user."""
    server = FakeServer()
    server.routes["GET", "/whoami"] = {"user": user, "role": "user", "token": "t1"}
    server.routes["GET", "/queues"] = {"items": [{"id": f"queue-of-{user}"}]}
    return server


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_log_in_use_both_log_out(
    nowhere: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, farm = serving(fake("ada")), serving(fake("bob"))
    token = nowhere / "token.txt"
    token.write_text("secret-of-ada\n")

    told = roost("login", lab, "--name", "lab", "--token-file", token)
    assert told.out.startswith(f"logged in to lab ({lab}) as ada\nIt is used where no other")
    piped(monkeypatch, "secret-of-bob\n")
    assert "roost list --on farm" in roost("login", f"{farm}/", "--name", "farm").out

    assert logins.read().servers["farm"].token == "secret-of-bob"  # noqa: S105
    rows = roost("servers").out.splitlines()
    assert rows[0].split() == ["NAME", "URL", "USER", "OWN_CA", "DEFAULT"]
    assert [row.split() for row in rows[1:]] == [
        ["farm", farm, "bob", "-", "-"],
        ["lab", lab, "ada", "-", "yes"],
    ]
    assert "secret" not in roost("servers", "-o", "json").out

    assert "queue-of-ada" in roost("queues").out
    assert "queue-of-bob" in roost("queues", "--on", "farm").out
    assert "queue-of-bob" in roost("queues", "list", "--on", "farm").out
    assert "queue-of-bob" in roost("--on", "farm", "queues").out
    monkeypatch.setenv("ROOST_ON", "farm")
    assert "queue-of-bob" in roost("queues").out
    assert "queue-of-ada" in roost("queues", "--on", "lab").out
    monkeypatch.delenv("ROOST_ON")

    assert "go to farm now" in roost("servers", "use", "farm").out
    assert "queue-of-bob" in roost("queues").out
    assert "logged out of farm" in roost("logout").out
    assert roost("logout", "farm").error.startswith("unknown server 'farm'")
    assert "logged out of lab" in roost("logout", "lab").out
    assert roost("logout").error == "you are not logged in"
    assert roost("servers").out == "no logins; roost login URL makes one\n"


@pytest.mark.usefixtures("nowhere")
def test_the_token_is_asked_for_unseen(
    serving: Serving, typing: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def prompt(text: str, *, hide_input: bool, **_: object) -> str:
        shown.append((text, hide_input))
        return "typed"

    monkeypatch.setattr(click, "prompt", prompt)
    typing("")
    url = serving(fake("ada"))
    assert roost("login", url).out.startswith("logged in to 127.0.0.1 ")
    assert shown == [(f"Token for {url}", True)]
    assert logins.read().servers["127.0.0.1"].token == "typed"  # noqa: S105


@pytest.mark.usefixtures("nowhere")
def test_what_the_server_does_not_accept_is_not_kept(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.cli.login._PATIENCE_S", 0.0)
    piped(monkeypatch, "secret")
    assert "no Roost server answers" in roost("login", "http://127.0.0.1:9").error
    server = fake("ada")
    server.faults = [lambda _: refused(401, "unauthenticated", "no valid token", "")]
    piped(monkeypatch, "wrong")
    assert "roost login URL" in roost("login", serving(server)).error
    piped(monkeypatch, "")
    assert "there is no token" in roost("login", serving(server)).error
    assert "is not the address of a server" in roost("login", "lab").error
    assert not logins.path().exists()


@pytest.mark.usefixtures("nowhere")
def test_a_name_is_not_taken_by_another_server(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = serving(fake("ada")), serving(fake("bob"))
    piped(monkeypatch, "one")
    roost("login", first, "--name", "lab")
    piped(monkeypatch, "two")
    assert "choose another --name" in roost("login", second, "--name", "lab").error
    roost("login", first, "--name", "lab")
    assert logins.read().servers["lab"].token == "two"  # noqa: S105


@pytest.mark.usefixtures("nowhere")
def test_two_places_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOST_CONTEXT", raising=False)
    told = roost("--context", "kind", "list", "--on", "lab")
    assert told.error == "--on and --context name two different clusters; give one of them"


def test_every_verb_that_talks_to_a_server_can_be_told_which() -> None:
    root = click.Context(cli)
    for name in _REMOTE:
        command = cli.get_command(root, name)
        assert command is not None
        verbs = command.commands.values() if isinstance(command, click.Group) else [command]
        for verb in verbs:
            assert any("--on" in param.opts for param in verb.params), name
    assert {"submit", "logs", "nodes", "tokens"} <= _REMOTE
    assert not {"up", "convert", "policies"} & _REMOTE
    assert set(_VERBS) >= _REMOTE
