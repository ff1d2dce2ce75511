"""``roost get``: the job file of a job, whole and in a few lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import FakeServer

from roost.jobfile import JobFile, parse

DOCUMENT: dict[str, Any] = {
    "name": "resnet",
    "command": ["python", "train.py", "--note", "two words"],
    "workdir": "/home/ada/project",
    "env": {
        "RATE": "0.1",
        "WANDB_API_KEY": "k-1234",
        "STORE": "postgresql://ada:geheim@db/x",
        "LONG": "x" * 500,
    },
    "secrets": ["HF_TOKEN"],
    "workers": "1..4",
}


def put(server: FakeServer, document: dict[str, Any], **changed: Any) -> None:
    job = server.add(**changed)
    server.routes["GET", f"/jobs/{job}/file"] = document


def facts(out: str) -> dict[str, str]:
    return {line[2:12].strip(): line[13:] for line in out.splitlines() if line.startswith("  ")}


def test_get_tells_command_folder_and_environment(server: FakeServer) -> None:
    put(server, DOCUMENT)
    told = facts(roost("get", "resnet-x7k2p").out)
    assert told["command"] == "python train.py --note 'two words'"
    assert told["folder"] == "/home/ada/project"
    assert told["secrets"] == "HF_TOKEN"
    rate, key, store, long = told["env"].split(" ")
    assert (rate, key, store) == (
        *("RATE=0.1", "WANDB_API_KEY=***"),
        "STORE='postgresql://ada:***@db/x'",
    )
    assert len(long) < 100


@pytest.mark.parametrize(
    ("document", "name", "text"),
    [
        ({"run": "\n  cd x\npython a.py\n\necho\n"}, "command", "cd x (and 2 more lines)"),
        ({"run": "one\ntwo"}, "command", "one (and 1 more line)"),
        ({"run": "make"}, "command", "make"),
        ({"command": ["python", "-m", "roost.client.call"]}, "command", "a Python function"),
        ({"run": "x"}, "folder", "its own"),
        (
            {"run": "x", "workdir": {"git": "https://h/p", "ref": "v1"}},
            "folder",
            "https://h/p at v1",
        ),
        ({"run": "x", "setup": "pip install -e ."}, "setup", "pip install -e ."),
        ({"run": "x", "env": {"A": "\x1b[2J"}}, "env", r"A='\x1b[2J'"),
    ],
)
def test_get_in_few_words(
    server: FakeServer, document: dict[str, Any], name: str, text: str
) -> None:
    put(server, document)
    assert facts(roost("get", "resnet-x7k2p").out)[name] == text


def test_get_does_without_a_job_file(server: FakeServer) -> None:
    server.add()
    told = roost("get", "resnet-x7k2p")
    assert told.status == 0
    assert "folder" not in facts(told.out)


def test_the_spec_makes_the_same_job(server: FakeServer) -> None:
    put(server, DOCUMENT)
    told = roost("get", "resnet-x7k2p", "--spec")
    assert parse(told.out, "x.yaml").job == JobFile.from_document(DOCUMENT)
    assert "HF_TOKEN come from your environment" in told.err
    assert json.loads(roost("get", "resnet-x7k2p", "--spec", "-o", "json").out) == DOCUMENT
    assert "--spec is YAML" in roost("get", "resnet-x7k2p", "--spec", "-o", "wide").error


def test_the_spec_says_what_it_cannot_hold(server: FakeServer) -> None:
    put(server, {"command": ["python", "-m", "roost.client.call"]}, clone_of="birds@first")
    told = roost("get", "resnet-x7k2p", "--spec")
    assert "roost rerun resnet-x7k2p" in told.err
    assert "birds@first" in told.err
