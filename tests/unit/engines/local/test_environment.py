"""The environment of workers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roost.core.allocation import Part
from roost.core.spec import JobId, NodeId, NodeSpec, Resources, RunId
from roost.engines.local.accounts import Account
from roost.engines.local.devices import Machine
from roost.engines.local.environment import GenerationEnvironment, Ports
from roost.engines.local.run_record import RunRecord
from roost.engines.rank_environment import own_variables
from roost.errors import InvalidSpec

NODE = NodeId("here")
GPUS = Machine(NodeSpec(NODE, 8, "H200"), tuple(range(16)))
ADA = Account("ada", 1000, 1000, (1000,), "/home/ada")


def setting(
    *parts: Part, own: dict[str, str] | None = None, account: Account | None = None
) -> GenerationEnvironment:
    state = RunRecord(RunId(JobId("job"), 2), "ab12", generation=3, parts=parts)
    state.needs = {part.role: Resources() for part in parts}
    ports = list(range(5000, 5001 + len(state.seats)))
    paths = {"ROOST_PROGRESS": Path("/p")}
    return GenerationEnvironment(state, GPUS, ports, "ada", paths, own or {}, account)


def test_a_worker_sees_its_own_devices_only() -> None:
    made = setting(Part(NODE, (0, 1, 4, 5), workers=2))
    first, second = (made.worker(seat) for seat in made.record.seats)

    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("0,1", "4,5")
    assert (second["RANK"], second["NODE_RANK"], second["LOCAL_RANK"]) == ("1", "1", "0")
    assert (second["PET_NNODES"], second["PET_NPROC_PER_NODE"]) == ("2", "2")
    assert second["OMP_NUM_THREADS"] == "4"
    assert (second["ROOST_GPUS"], second["ROOST_SHARE"]) == ("2", "1")
    assert (second["ROOST_JOB"], second["ROOST_ATTEMPT"], second["ROOST_GENERATION"]) == (
        *("job", "2"),
        "3",
    )


def test_partitions_of_gpus_are_known_by_their_names() -> None:
    made = setting(Part(NODE, (1,)))
    node = NodeSpec(NODE, 2, "H200-1g.18gb")
    parts = replace(made, machine=Machine(node, tuple(range(16)), ("MIG-a", "MIG-b")))
    assert parts.worker(made.record.seats[0])["CUDA_VISIBLE_DEVICES"] == "MIG-b"


def test_shares_are_told() -> None:
    made = setting(*[Part(NODE, (3,), 250)] * 2)

    assert [made.worker(seat)["ROOST_SHARE"] for seat in made.record.seats] == ["0.25", "0.25"]
    assert [made.worker(seat)["CUDA_VISIBLE_DEVICES"] for seat in made.record.seats] == ["3", "3"]


def test_what_runs_before_the_workers_sees_no_device_of_others() -> None:
    assert setting(Part(NODE, (4, 5), workers=2)).base()["CUDA_VISIBLE_DEVICES"] == "4"
    assert setting(Part(NODE, (3,), 250)).base()["CUDA_VISIBLE_DEVICES"] == ""
    assert setting(Part(NODE, (), role="worker")).base()["CUDA_VISIBLE_DEVICES"] == ""


def test_roles_find_each_other() -> None:
    made = setting(Part(NODE, (), workers=1, role="ps"), Part(NODE, (0, 1), workers=2))
    workers = {seat.name: made.worker(seat) for seat in made.record.seats}

    assert list(workers) == ["worker-0", "worker-1", "ps-0"]
    config = json.loads(workers["ps-0"]["TF_CONFIG"])
    assert config["cluster"]["worker"] == ["127.0.0.1:5001", "127.0.0.1:5002"]
    assert config["task"] == {"type": "ps", "index": 0}
    assert workers["worker-1"]["PAI_TASK_ROLE_LIST"] == "worker,ps"
    assert workers["worker-1"]["PAI_HOST_IP_ps_0"] == "127.0.0.1"
    assert workers["worker-1"]["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"] == "1"
    assert made.hostfile() == "localhost slots=2\n"


def test_one_worker_alone_needs_no_cluster() -> None:
    made = setting(Part(NODE, (0,)))

    assert "TF_CONFIG" not in made.worker(made.record.seats[0])


def test_nothing_else_comes_from_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_API_TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("PATH")
    made = setting(Part(NODE, (0,)), own={"RANK": "7"}, account=ADA)
    env = made.worker(made.record.seats[0])

    assert "secret" not in env.values()
    assert (env["HOME"], env["USER"], env["LANG"]) == ("/home/ada", "ada", "C.UTF-8")
    assert env["RANK"] == "7"
    assert env["PATH"]
    assert made.base()["ROOST_PROGRESS"] == "/p"


def test_another_account_has_a_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("PATH", "/root/.cargo/bin:/opt/conda/bin:bin:/root:/rooted/bin:/usr/bin")
    made = setting(Part(NODE, (0,)), account=ADA)
    env = made.worker(made.record.seats[0])
    assert env["PATH"] == "/home/ada/.local/bin:/opt/conda/bin:/rooted/bin:/usr/bin"
    assert env["TMPDIR"] == "/tmp"  # noqa: S108 - as it is
    monkeypatch.setenv("PATH", "/root/bin")
    assert "/usr/bin" in made.base()["PATH"].split(":")
    own = setting(Part(NODE, (0,)), own={"TMPDIR": "/scratch"})
    assert own.worker(own.record.seats[0])["PATH"] == "/root/bin", "the server's own account"
    assert own.worker(own.record.seats[0])["TMPDIR"] == "/scratch"


def test_secrets_join_the_users_variables() -> None:
    assert own_variables({"A": "1"}, ("KEY",), {"KEY": "k"}) == {"A": "1", "KEY": "k"}
    with pytest.raises(InvalidSpec, match="secret KEY has no value"):
        own_variables({}, ("KEY",), {})


@pytest.mark.parametrize("name", ["ROOST_TOKEN", "", "A=B", "A\0"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        own_variables({name: "value-to-hide"}, (), {})

    assert "value-to-hide" not in str(refused.value)


def test_ports_are_not_given_twice() -> None:
    ports = Ports()

    found = [port for _ in range(20) for port in ports.take(5)]

    assert len(set(found)) == 100
