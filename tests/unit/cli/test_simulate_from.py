"""``roost simulate --from``: what the present cluster would do under a policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest
from tests.unit.cli.told import roost

from roost.core import Started, Submitted
from roost.core.snapshot import dump
from roost.policies import policy
from roost.testing.builders import core_with, job, node, run, spec

EPOCH = 1_700_000_000.0


def state() -> dict[str, Any]:
    """One runs, a long and a short one wait; the server's own policy is sjf."""
    core = core_with(policy("fifo"), node("n0", 1))
    for name, run_time_s in (("runs", 60.0), ("long", 500.0), ("short", 20.0)):
        core.handle(Submitted(EPOCH, job(name), spec(1, run_time_s)))
    core.handle(Started(EPOCH, run("runs")))
    return {"seq": 7, "policy": "sjf", "placer": "pack", "digest": "", "core": dump(core)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("state.json").write_text(json.dumps(state()))
    return tmp_path


def ends(*args: object) -> dict[str, str]:
    told = roost("simulate", *args, "-o", "csv")
    assert told.status == 0, told
    head, *rows = (line.split(",") for line in told.out.splitlines())
    return {row[0]: row[head.index("finished_at")] for row in rows}


@pytest.mark.usefixtures("folder")
def test_a_file_is_replayed_under_its_own_policy_or_another() -> None:
    own = ends("--from", "state.json")
    other = ends("--from", "state.json", "--policy", "fifo")

    assert own == {"runs": "60.0", "long": "580.0", "short": "80.0"}
    assert other == {"runs": "60.0", "long": "560.0", "short": "580.0"}


@pytest.mark.usefixtures("folder")
def test_the_table_names_the_state_and_standard_error_what_was_assumed() -> None:
    told = roost("simulate", "--from", "state.json")

    assert told.out.startswith("sjf on state.json: 3 of 3 jobs over after 9.67 m, 1 nodes, 1 GPUs")
    assert told.err == "assumed: no new jobs come, and nothing fails\n"


@pytest.mark.usefixtures("folder")
def test_a_bare_snapshot_will_do() -> None:
    Path("core.json").write_text(json.dumps(state()["core"]))

    assert ends("--from", "core.json")["short"] == "580.0"


@pytest.mark.usefixtures("folder")
def test_it_can_be_stopped_saved_and_resumed() -> None:
    told = roost("simulate", "--from", "state.json", "--stop-at", "70s", "--save", "half.roost")

    assert told.out.startswith("sjf on state.json: 1 of 3 jobs over after 70 s")
    assert ends("--resume", "half.roost") == ends("--from", "state.json")


def test_live_asks_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        def __init__(self, patience: float, on: str | None) -> None:
            assert patience > 0
            assert on is None

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def state(self) -> dict[str, Any]:
            return state()

    monkeypatch.setattr("roost.client.Client", Server, raising=False)

    assert ends("--from", "live")["short"] == "80.0"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("jobs.csv --from x", "TRACE does not go with --from"),
        ("--nodes 3 --from x", "--nodes does not go with --from"),
        ("--seed 3 --from x", "--seed does not go with --from"),
        ("--resume y --from x", "--from does not go with --resume"),
        ("--from none.json", "no such file: none.json"),
        ("--from state.json -p fif", "unknown policy 'fif'; did you mean 'fifo'?"),
        ("--from state.json --placer pak", "unknown placer 'pak'; did you mean 'pack'?"),
        ("--from words.json", "words.json is not the state of a cluster: Expecting value"),
        ("--from deep.json", "deep.json is not the state of a cluster: it is nested too deeply"),
        ("--from list.json", "a snapshot of version None; this Roost reads versions 1 to 2"),
        ("--from new.json", "a snapshot of version 3; this Roost reads versions 1 to 2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(args: str, message: str) -> None:
    Path("words.json").write_text("words")
    Path("deep.json").write_text("[" * 100_000)
    Path("list.json").write_text("[]")
    Path("new.json").write_text(json.dumps({"core": {"version": 3}}))

    assert roost("simulate", *args.split()).error.startswith(message)
