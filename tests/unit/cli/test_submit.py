"""``roost submit``: what is handed in, what is shown before, what it ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import NOW, Broken, FakeServer, sse

PLAN = {
    "fits": True,
    "never": False,
    "starts_at": NOW + 3600,
    "ends_at": NOW + 3600 + 7200,
    "placement": [{"node": "n1", "gpus": [0, 1], "share": 1.0, "workers": 2, "role": "worker"}],
    "reason": "fits now",
    "notes": [],
}


def body(server: FakeServer) -> dict[str, Any]:
    return {key: value for key, value in server.bodies[-1]["job"].items() if key != "python"}


def test_submit_a_command_with_everything(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.plan = PLAN
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA", "/data")
    monkeypatch.setenv("KEY", "canary")
    told = roost(
        *("submit", "--gpus", "A100:2", "--workers", "1..4", "--cpus", "8", "--memory", "16Gi"),
        *("-q", "vision", "--priority", "5", "--env", "A=b=c", "--env", "DATA", "--secret", "KEY"),
        *("--max-duration", "90m", "--run-time", "2h", "--retry", "1"),
        *("--label", "team=vision", "--", "python", "train.py", "--rate", "0.1", "--", "x"),
    )
    assert told.status == 0, told.err
    assert told.out == "train-00000\n"
    assert body(server) == {
        "name": "train",
        "command": ["python", "train.py", "--rate", "0.1", "--", "x"],
        "workdir": str(tmp_path),
        "env": {"A": "b=c", "DATA": "/data"},
        "secrets": ["KEY"],
        "workers": "1..4",
        "resources": {"gpu": "A100:2", "cpu": 8, "memory": "16Gi"},
        "queue": "vision",
        "priority": 5,
        "max_duration": "90m",
        "run_time": "2h",
        "retry": {"max": 1},
        "labels": {"team": "vision"},
    }
    assert server.bodies[-1]["secrets"] == {"KEY": "canary"}
    assert "canary" not in told.out + told.err
    table = told.err.splitlines()
    assert table[0].split() == ["TARGET", "WORKERS", "GPUS", "START", "FINISH", "WHY"]
    assert table[1].split() == ["n1", "2", "2", "now", "in", "~2h", "fits", "now"]
    assert table[-1] == (
        "Next: roost logs -f train-00000 · roost explain train-00000 · roost cancel train-00000"
    )


def test_a_guest_and_a_cell_can_be_typed(server: FakeServer) -> None:
    server.plan = PLAN
    assert roost("submit", "--guest", "--", "python", "x.py").status == 0
    assert body(server)["guest"] is True
    assert roost("submit", "--cell", "node-7", "-q", "vision", "--", "python", "x.py").status == 0
    assert (body(server)["cell"], body(server)["queue"]) == ("node-7", "vision")
    assert "guest" not in body(server)
    told = roost("submit", "--guest", "--priority", "5", "--", "python", "x.py")
    assert "leave out 'priority: 5' or 'guest'" in told.error
    told = roost("submit", "--guest", "--cell", "node-7", "--", "python", "x.py")
    assert "a guest uses no promise to its queue, so not cell 'node-7' either" in told.error


def test_submit_runs_programs_as_they_are_found_here(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    roost("submit", "--", "mytool", "x")
    assert server.bodies[-1]["job"]["command"] == [str(tool), "x"]
    roost("submit", "--", "no-such-tool")
    assert server.bodies[-1]["job"]["command"] == ["no-such-tool"]


def test_submit_a_file_with_options_on_top(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.yaml"
    file.write_text("name: bert\nqueue: default\ngpus: 1\nenv: {A: 1, B: 2}\nrun: echo\n")
    roost("submit", file, "-q", "vision", "--env", "B=3", "-n", "bert-2")
    job = body(server)
    assert (job["name"], job["queue"], job["env"]) == ("bert-2", "vision", {"A": "1", "B": "3"})
    assert job["workdir"] == str(tmp_path)


def test_folders_are_relative_to_where_one_submits(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.yaml").write_text("workdir: src\nrun: echo\n")
    for folder in ("src", "here"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    roost("submit", "jobs/train.yaml")
    assert body(server)["workdir"] == str(tmp_path / "src")
    roost("submit", "jobs/train.yaml", "--workdir", "here")
    assert body(server)["workdir"] == str(tmp_path / "here")


@pytest.mark.usefixtures("server")
def test_submit_reads_foreign_files_and_tells_what_was_lost(tmp_path: Path) -> None:
    file = tmp_path / "train.sbatch"
    file.write_text("#!/bin/bash\n#SBATCH --job-name=old\n#SBATCH --mail-user=ada\nsrun true\n")
    told = roost("submit", file)
    assert told.out == "old-00000\n"
    assert "note: " in told.err
    assert "mail-user" in told.err


def test_submit_refuses_in_one_line(server: FakeServer, tmp_path: Path) -> None:
    assert not server.bodies
    assert "nothing to submit" in roost("submit").error
    for typed in (["python", "train.py"], ["train.py", "--rate", "0.1"]):
        assert "a command comes after --: roost submit -- python" in roost("submit", *typed).error
    assert "no such file" in roost("submit", "nowhere.yaml").error
    program = tmp_path / "train.py"
    program.write_text("print()")
    assert f"roost submit -- python {program}" in roost("submit", program).error
    assert "exclude each other" in roost("submit", program, "--", "python").error
    secret = roost("submit", "--secret", "KEY=canary", "--", "true").error
    assert "takes the name of a variable" in secret
    assert "canary" not in secret
    assert "not set" in roost("submit", "--secret", "NOT_THERE", "--", "true").error
    assert "--label takes KEY=VALUE" in roost("submit", "--label", "x", "--", "true").error
    assert "gpu" in roost("submit", "--gpus", "1.5", "--", "true").error
    assert server.bodies == []


def test_submit_asks_only_a_terminal(server: FakeServer, typing: Callable[[str], None]) -> None:
    typing("n\n")
    told = roost("submit", "--", "true")
    assert (told.status, told.out) == (1, "")
    assert "Submit true? [Y/n]" in told.err
    assert server.jobs == {}

    typing("")  # Ctrl-D
    assert roost("submit", "--", "true").status == 130
    typing("y\n")
    assert roost("submit", "--", "true").out == "true-00000\n"
    typing("")
    assert roost("submit", "-y", "--", "true").out == "true-00001\n"
    assert roost("submit", "-o", "json", "--", "true").status == 0


def test_a_dry_run_changes_nothing(server: FakeServer) -> None:
    server.plan = PLAN
    told = roost("submit", "--dry-run", "--", "true")
    assert (told.status, told.out) == (0, "")
    assert "fits now" in told.err
    plan = json.loads(roost("submit", "--dry-run", "-o", "json", "--", "true").out)
    assert plan["plan"] == PLAN
    assert plan["job"]["command"][0].endswith("true")
    server.plan = {**PLAN, "never": True, "reason": "asks for 16 GPUs, there are 8"}
    assert (
        "can never run here: asks for 16 GPUs" in roost("submit", "--dry-run", "--", "true").error
    )
    assert server.jobs == {}


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("succeeded", 0, 0),
        ("failed", 3, 3),
        ("failed", 137, 137),
        ("failed", None, 1),
        ("failed", 0, 1),
        ("cancelled", 143, 1),
    ],
)
def test_waiting_ends_with_the_status_of_the_job(
    server: FakeServer, state: str, code: int | None, status: int
) -> None:
    def over(request: httpx.Request) -> httpx.Response:
        server.jobs["true-00000"] |= {"state": state, "exit_code": code, "reason": "so it was"}
        return server.answer(request)

    server.faults = [None, None, over]
    told = roost("submit", "--wait", "--", "true")
    assert told.status == status
    assert (f"true-00000 {state}: so it was" in told.err) == (status != 0)


def test_following_prints_the_log_and_ends_with_the_status(server: FakeServer) -> None:
    def log(_: httpx.Request) -> httpx.Response:
        server.jobs["true-00000"] |= {"state": "failed", "exit_code": 7}
        pieces = [sse("attempt", {"attempt": 1}), sse("message", "one\n", "4")]
        pieces += [sse("attempt", {"attempt": 2}), sse("message", "two", "3")]
        return httpx.Response(200, stream=Broken([*pieces, sse("end", {})]))

    server.routes["GET", "/jobs/true-00000/logs/stream"] = log
    told = roost("submit", "-f", "--", "true")
    assert told.out == "true-00000\none\ntwo\n"
    assert "roost: attempt 2 of true-00000\n" in told.err
    assert told.status == 7


def test_interrupting_leaves_the_job_alone(server: FakeServer) -> None:
    def interrupt(_: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    server.faults = [None, None, interrupt]
    told = roost("submit", "--wait", "--", "true")
    assert told.status == 130
    assert "true-00000 goes on; end it with: roost cancel true-00000" in told.err
    assert server.jobs["true-00000"]["state"] == "queued"


@pytest.mark.usefixtures("server")
def test_all_mistakes_of_a_file_are_told(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("nam: x\nrun: echo\npriority: 500\n")
    told = roost("submit", str(file))
    lines = told.err.splitlines()
    assert told.status == 2
    assert lines[0] == f"roost: error: {file}: 2 mistakes"
    assert lines[1] == "  line 1: unknown field 'nam'; did you mean 'name'?"
    assert lines[2].startswith("  line 3: ")


def test_a_share_is_asked_for_with_its_way_and_its_limits(server: FakeServer) -> None:
    server.plan = PLAN
    shared = ("submit", "--share", "0.5", "--way", "spatial", "--qos", "equal")
    assert roost(*shared, "--gpu-memory", "20Gi", "--", "true").status == 0
    assert body(server)["resources"] == {"gpu": 0.5}
    assert body(server)["sharing"] == {"way": "spatial", "policy": "equal", "mem": "20Gi"}
    roost("submit", "--share", "0.25", "--gpus", "A100", "--way", "temporal", "--", "true")
    assert body(server)["resources"] == {"gpu": "A100:0.25"}
    assert "sharing" not in body(server), "as it is by default"
    for given, why in (
        (("--share", "0.5", "--gpus", "2"), "a part of one GPU; the job asks for 2 GPUs"),
        (("--share", "0"), "--share is more than 0 and at most 1"),
        (("--share", "1.5"), "not a number from 0 to 1"),
        (("--way", "sideways"), "temporal"),
        (("--gpu-memory", "much", "--share", "0.5"), "a size such as"),
    ):
        assert why in roost("submit", *given, "--", "true").error
