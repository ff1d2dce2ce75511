"""Words of other systems, and moments at which nothing is ready yet."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import FakeServer, refused, view

from roost.cli import _ALIASES, _MEANT, _VERBS
from roost.errors import NotFound


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("stop", "cancel"), ("kill", "cancel"), ("scancel", "cancel"), ("rm", "delete")),
        *(("status", "list"), ("squeue", "list"), ("describe", "get"), ("launch", "submit")),
        *(("run", "submit"), ("sbatch", "submit"), ("retry", "rerun"), ("pause", "suspend")),
    ],
)
def test_words_of_others_name_the_verb(typed: str, meant: str) -> None:
    told = roost(typed, "x").error
    assert told.startswith(f"unknown command {typed!r}; did you mean {meant!r}?")


def test_words_of_others_lead_somewhere() -> None:
    assert set(_MEANT.values()) <= set(_VERBS)
    assert not set(_MEANT) & (set(_VERBS) | set(_ALIASES))
    for typed in ("ssh", "exec"):
        assert "roost logs -f JOB" in roost(typed, "x").error
    assert "(also ls, ps)" in roost("--help").out
    assert "did you mean 'submit'?" in roost("submti").error


def test_an_operator_without_its_libraries_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "roost.kubernetes.client.api":
            raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")
        return usual(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    told = roost("operator").error
    assert told == "roost operator needs aiohttp, which is missing: pip install 'roost[kubernetes]'"


@pytest.mark.parametrize("content", [b"[]", b"{}", b"<html>", b'{"user": 5}', b"null"])
def test_another_server_is_told_from_ours(server: FakeServer, content: bytes) -> None:
    server.routes["GET", "/whoami"] = lambda _: httpx.Response(200, content=content)
    assert "is that a Roost server?" in roost("list").error
    assert "is that a Roost server?" in roost("cancel", "--all").error


def test_an_empty_command_is_named(server: FakeServer) -> None:
    assert not server.jobs
    assert "the command is empty" in roost("submit", "--", "").error
    assert "the command is empty" in roost("submit", "--", " ", "x").error


def test_units_are_those_that_were_typed(server: FakeServer) -> None:
    server.routes["GET", "/queues"] = {"items": []}
    for value in ("-1", "1e99", "nan"):
        told = roost("queues", "set", "bad", "--quota", value).error
        assert f"--quota {value}: a number of GPUs from 0 up" in told
    assert (
        "--expires: a token is valid for some time" in roost("tokens", "add", "--expires", 0).error
    )


def test_what_may_not_be_meant_is_noted(server: FakeServer) -> None:
    queue = {"id": "v", "quota": 99.0, "submitters": ["eve"], "gpus_used": 0}
    server.routes["GET", "/queues"] = {"items": []}
    server.routes["PUT", "/queues/v"] = queue
    server.routes["GET", "/users"] = {"items": [{"name": "ada"}]}
    server.routes["GET", "/nodes"] = {"items": [{"id": "n1", "gpus": 2}]}
    told = roost("queues", "set", "v", "--quota", 99, "--submitters", "eve,ada,*").err
    assert told.splitlines() == [
        "note: there is no user 'eve' yet",
        "note: 99 GPUs are promised; the nodes have 2 together",
    ]
    assert roost("queues", "set", "v", "--weight", 2).err == ""


def test_refusals_have_names(server: FakeServer) -> None:
    server.faults = [lambda _: refused(404, "not-found", "no job 'x'")]
    with server.client() as client, pytest.raises(NotFound) as caught:
        client.job("x")
    assert type(caught.value).__name__ == "NotFoundRefusal"


def test_labels_tell_jobs_apart(server: FakeServer) -> None:
    for number, rate in enumerate(("0.1", "0.01")):
        server.add(f"sweep-0000{number}", labels={"rate": rate, "x": "y"})
    server.add("plain-00000")
    lines = roost("list", "-L", "rate,x").out.splitlines()
    assert "RATE  X" in lines[0]
    assert lines[1].split()[-2:] == ["0.1", "y"]
    assert lines[3].split()[-2:] == ["-", "-"]


def test_elastic_jobs_ask_for_the_least(server: FakeServer) -> None:
    workers = {"min": 1, "max": 2, "now": 2}
    server.jobs["el-00000"] = view(
        "el-00000", "running", gpus_held=2.0, elastic=True, workers=workers
    )
    assert "2 held, at least 1 asked" in roost("get", "el-00000").out
    listed = roost("list").out
    assert " 2/1+ " in listed
    assert listed.endswith("GPUs held/asked: 2/1+\n")


def test_everybody_is_everybody(server: FakeServer) -> None:
    server.add("other-aaaaa", user="bob")
    with server.client() as client:
        assert [job.id for job in client.jobs(user="all")] == ["other-aaaaa"]


@pytest.mark.parametrize(
    ("moment", "became", "told"),
    [
        ("click", "", (-signal.SIGINT, "")),  # a shell's 130
        ("roost.cli.listing", "", (130, "interrupted\n")),
        ("roost.cli.listing", "Error calling __set_name__", (130, "interrupted\n")),
    ],
)
def test_an_early_interrupt_is_answered_in_a_word(
    moment: str,
    became: str,
    told: tuple[int, str],
) -> None:
    script = f"""
import os, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name != {moment!r}:
            return
        try:
            os.kill(os.getpid(), {int(signal.SIGINT)})
        except KeyboardInterrupt as error:
            if {became!r}:  # in a class whose members are just named
                raise RuntimeError({became!r}) from error
            raise

sys.meta_path.insert(0, Interrupted())
from roost.start import main
assert "typing" not in sys.modules
sys.argv[1:] = ["policies"]
sys.exit(main())
"""
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.returncode, done.stderr) == told


def test_a_folder_that_is_not_there_is_refused_at_once(server: FakeServer) -> None:
    told = roost("submit", "--workdir", "/no/such", "--", "true").error
    assert told == "workdir: there is no folder '/no/such' on this machine"
    assert not server.bodies


def test_a_password_need_not_stand_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = "nosuch://ada:geheim@db/roost"
    typed = roost("up", "--home", tmp_path / "a", "--port", 0, "--store", store)
    assert typed.status == 2
    assert "put the address into ROOST_STORE" in typed.err
    monkeypatch.setenv("ROOST_STORE", store)
    named = roost("up", "--home", tmp_path / "b", "--port", 0)
    assert named.status == 2, "the variable counts"
    assert "ROOST_STORE" not in named.err
    assert "geheim" not in typed.err + named.err
