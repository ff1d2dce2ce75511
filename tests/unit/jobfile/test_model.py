from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from roost.core import Costs, Level, Qos, Range, Resources, Role, Training, Way
from roost.errors import InvalidSpec
from roost.jobfile import JobFile, JobFileErrors, Program, RetryRule, Task, parse, to_yaml

FULL: dict[str, Any] = {
    "name": "train",
    "kind": "pytorch",
    "python": "/opt/venv/bin/python",
    "image": "pytorch:2.4",
    "workdir": "/home/ada/train",
    "setup": "pip install -r requirements.txt\n",
    "command": ["python", "train.py"],
    "env": {"DATA": "/data", "HOME_DIR": None},
    "secrets": ["HF_TOKEN"],
    "workers": "1..4",
    "resources": {"gpu": "A100:0.5", "cpu": "8..", "memory": "64GB..", "shm_size": "8Gi"},
    "sharing": {"mem": "20GB", "policy": "equal"},
    "roles": {"ps": {"workers": "2..4", "resources": {"cpu": 4}, "run": "python ps.py"}},
    "training": {
        "batch": 256,
        "batch_max": 4096,
        "epochs": 90,
        "local_min": 8,
        "local_max": {"A100": 512, "other": 128},
        "alone": {"A100": 812.5, "T4": 240},
    },
    "rates": {"A100": 3.5, "T4": 1},
    "within": "node",
    "queue": "vision",
    "cell": "node-7",
    "priority": 50,
    "max_duration": "12h",
    "run_time": "90m",
    "min_run": "5m",
    "preemptible": False,
    "retry": {"max": 2, "on_exit_codes": [3, 137], "delay": "10s"},
    "checkpoint": {
        "path": "/data/checkpoints",
        "every": "5m",
        "signal": "SIGUSR1",
        "grace": "2m",
        "restart": "30s",
    },
    "suspend": "stop",
    "labels": {"project": "birds"},
    "application": "resnet",
    "ports": ["8080"],
    "notify": ["ada"],
}


def job(**fields: Any) -> JobFile:
    return JobFile.from_document({"run": "python train.py", **fields})


def refused(**fields: Any) -> str:
    with pytest.raises(JobFileErrors) as caught:
        job(**fields)
    return str(caught.value)


def test_something_to_run_is_enough() -> None:
    spec, program = job().spec("ada"), job().program()
    assert spec.workers == Range(1, 1)
    assert spec.resources == Resources(gpus=1)
    assert (spec.user, spec.queue, spec.priority) == ("ada", "default", 0)
    assert spec.max_retries == 3
    assert spec.costs == Costs(checkpoint_every_s=math.inf)
    assert program == Program({"worker": Task(script="python train.py")})
    assert job().retry == RetryRule()
    assert job().retrying is None


def test_every_field_arrives() -> None:
    full = JobFile.from_document(FULL)
    spec = full.spec("ada")
    assert spec.workers == Range(1, 4)
    assert spec.resources == Resources(
        gpus=1,
        share_milli=500,
        gpu_memory_mib=19074,
        qos=Qos.EQUAL,
        kinds=("A100",),
        cpu_milli=8000,
        memory_mib=61036,
    )
    assert spec.roles == (Role("ps", 2, Resources(gpus=0, cpu_milli=4000), 4),)
    assert spec.training == Training(
        batch=256,
        batch_max=4096,
        epochs=90.0,
        local_min=8,
        local_max=(("A100", 512), ("", 128)),
        alone=(("A100", 812.5), ("T4", 240.0)),
    )
    assert spec.rates == (("A100", 3.5), ("T4", 1.0))
    assert (spec.queue, spec.priority, spec.application) == ("vision", 50, "resnet")
    assert (spec.run_time_s, spec.min_run_s, spec.max_retries) == (None, 300.0, 2)
    assert (spec.preemptible, spec.within, spec.cell) == (False, Level.NODE, "node-7")
    assert spec.costs == Costs(checkpoint_every_s=300.0, restart_s=30.0, resize_s=30.0)
    assert full.retry == RetryRule(2, (3, 137), 10.0)
    filled = full.filled({"HOME_DIR": "/home/ada"}, Path("/"))
    assert filled.program() == Program(
        tasks={
            "worker": Task(command=("/opt/venv/bin/python", "train.py")),
            "ps": Task(script='export PATH=/opt/venv/bin:"$PATH"\npython ps.py'),
        },
        setup='export PATH=/opt/venv/bin:"$PATH"\npip install -r requirements.txt\n',
        workdir="/home/ada/train",
        env={"DATA": "/data", "HOME_DIR": "/home/ada"},
        secret_names=("HF_TOKEN",),
        max_duration_s=43200.0,
        grace_s=120.0,
        stop_signal="SIGUSR1",
        checkpoint_dir="/data/checkpoints",
        suspend="stop",
        image="pytorch:2.4",
    )


def test_a_guest_comes_after_all_others() -> None:
    guest = job(guest=True)
    assert guest.spec("ada").priority == -1
    assert guest.document() == {"run": "python train.py", "guest": True}
    assert JobFile.from_document(guest.document()) == guest
    assert job(guest="no").spec("ada").priority == 0
    assert job(guest=True, priority=0, preemptible=True) == guest


def test_work_is_counted_in_steps_of_a_job_that_says_how_it_learns() -> None:
    learns = {"batch": 64, "steps": 40_000}
    assert job(run_time="90m").spec("ada").run_time_s == 5400.0
    assert job(training=learns, run_time="90m", max_duration="1h").spec("ada").run_time_s == 40_000
    assert job(training={"batch": 64}, max_duration="1h").spec("ada").run_time_s is None
    (note,) = job(training=learns, run_time="90m").notes()
    assert note.startswith("run_time: ignored; the work of a job with 'training' is counted")
    assert job(training=learns, max_duration="1h").notes() == ()


def test_a_number_of_samples_holds_for_every_kind() -> None:
    training = job(training={"batch": "64", "local_max": 32}).spec("ada").training
    assert training == Training(64, local_max=(("", 32),))
    assert training.most_local("A100") == 32
    (role,) = job(roles={"ps": {}}).spec("ada").roles
    assert (role.workers, role.most, role.sizes) == (1, 0, Range(1, 1))


def test_a_replica_is_a_worker_whose_gpus_are_its_stages() -> None:
    given = job(gpus=8, workers="1..4", training={"batch": 64, "pipeline": 4, "micro": "2"})
    assert given.spec("ada").training == Training(64, pipeline=4, micro=2)
    assert given.document()["training"] == {"batch": 64, "pipeline": 4, "micro": 2}


def test_gpus_that_are_no_whole_stages_are_refused() -> None:
    learns = {"batch": 8, "pipeline": 4}
    told = refused(gpus=6, training=learns)
    assert "a pipeline of 4 stages needs a multiple of 4 GPUs for each worker, got 6" in told
    assert "needs whole GPUs, not a share of one" in refused(gpus=0.5, training=learns)


_COUNT = "a whole number from 1 to 1000000000"
_KINDS = "a mapping by GPU kind such as {A100: 256, T4: 64}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "'training' needs 'batch', the samples of a step of all workers"),
        (256, "training: expected a mapping, found 256"),
        ({"batch": 0}, f"training.batch: expected {_COUNT}, found 0"),
        ({"batch": 2.5}, f"training.batch: expected {_COUNT}, found 2.5"),
        ({"batch": 8, "batch_max": 4}, "'training.batch_max' is below 'training.batch'"),
        ({"batch": 8, "local_min": 4, "local_max": 2}, "'training.local_max' is below 'local_min'"),
        ({"batch": 8, "micro": 4, "local_max": 2}, "'training.local_max' is below 'micro'"),
        ({"batch": 8, "micro": 16}, "'training.micro' is above 'training.batch'"),
        ({"batch": 8, "pipeline": 0}, f"training.pipeline: expected {_COUNT}, found 0"),
        (
            {"batch": 8, "local_max": {"A100": "x"}},
            f"training.local_max: expected for A100 {_COUNT}, found a mapping",
        ),
        (
            {"batch": 8, "local_max": "x"},
            f"training.local_max: expected {_COUNT}, or {_KINDS}, found 'x'",
        ),
        (
            {"batch": 8, "alone": {"other": 2}},
            f"training.alone: expected {_KINDS}; 'other' is no kind, found a mapping",
        ),
        (
            {"batch": 8, "alone": {"8 GPUs": 2}},
            f"training.alone: expected {_KINDS}; '8 GPUs' is no kind, found a mapping",
        ),
        (
            {"batch": 8, "alone": {"A100": 1e300}},
            "number above 1000000000",
        ),
        (
            {"batch": 8, "epochs": -1},
            "training.epochs: expected a number above 0, at most 1000000000, found -1",
        ),
        ({"bach": 8, "batch": 8}, "unknown field 'bach' in 'training'; did you mean 'batch'?"),
    ],
)
def test_what_cannot_be_learned_is_refused(given: Any, told: str) -> None:
    assert told in refused(training=given)


def test_roles_are_fewer_than_workers() -> None:
    assert "from 1 to 999, found '2..1000'" in refused(roles={"ps": {"workers": "2..1000"}})
    assert "from 1 to 999, found 0" in refused(roles={"ps": {"workers": 0}})


def test_the_document_is_canonical_and_comes_back() -> None:
    full = JobFile.from_document(FULL)
    assert full.document() == FULL
    assert JobFile.from_document(full.document()) == full
    assert parse(to_yaml(full), "train.yaml").job == full
    assert pickle.loads(pickle.dumps(full)) == full  # noqa: S301 - our own


def test_what_is_accepted_and_ignored_is_noted() -> None:
    notes = JobFile.from_document(FULL).notes()
    assert [note.partition(":")[0] for note in notes] == [
        *("ports", "notify", "run_time", "resources.shm_size")
    ]
    assert job().notes() == ()
    ranged = job(resources={"gpu": "24GB..80GB:1..8", "cpu": "4..8", "memory": "1GB..2GB"})
    assert len(ranged.notes()) == 4
    assert ranged.spec("").resources == Resources(gpus=1, cpu_milli=4000, memory_mib=954)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"nodes": 2}, {"workers": 2}),
        ({"elastic": {"min": 1, "max": 4}}, {"workers": "1..4"}),
        ({"workers": [1, 4]}, {"workers": "1..4"}),
        ({"gpus": 2}, {"resources": {"gpu": 2}}),
        ({"gpus": 2, "resources": {"cpu": 1}}, {"resources": {"gpu": 2, "cpu": 1}}),
        ({"resources": {"any_of": ["A100:1", "H100:1"]}}, {"gpus": ["A100:1", "H100:1"]}),
        ({"retry": 2}, {"retry": {"max": 2}}),
        ({"workdir": "/a"}, {"workdir": {"path": "/a"}}),
        ({"checkpoint": {"signal": "usr1"}}, {"checkpoint": {"signal": "SIGUSR1"}}),
        ({"preemptible": "no"}, {"preemptible": False}),
        ({"env": {"A": 1}}, {"env": {"A": "1"}}),
        ({"roles": {"ps": {"gpus": 1}}}, {"roles": {"ps": {"resources": {"gpu": 1}}}}),
        ({"image": None}, {}),
        ({"run_time": 60}, {"run_time": "1m"}),
    ],
)
def test_shortcuts(short: dict[str, Any], long: dict[str, Any]) -> None:
    assert job(**short) == job(**long)
    assert job(**short).document() == job(**long).document()


@pytest.mark.parametrize(
    ("fields", "share", "memory"),
    [
        ({"gpus": 0.5}, 500, 0),
        ({"gpus": "40GB:0.5"}, 500, 38147),
        ({"gpus": "40GB:1"}, 1000, 0),
        ({"gpus": 0.5, "sharing": {"mem": "10Gi"}}, 500, 10240),
        ({"sharing": {"cores": 25}}, 250, 0),
        ({"sharing": {"cores": "25%"}}, 250, 0),
        ({"gpus": 0.25, "sharing": {"cores": 25}}, 250, 0),
    ],
)
def test_shares(fields: dict[str, Any], share: int, memory: int) -> None:
    resources = job(**fields).spec("").resources
    assert (resources.share_milli, resources.gpu_memory_mib) == (share, memory)


def test_how_a_share_is_held() -> None:
    default = job(gpus=0.5).spec("").resources
    assert (default.way, default.qos) == (Way.TEMPORAL, Qos.FIXED)
    held = job(gpus=0.5, sharing={"way": "spatial", "policy": "best-effort"})
    assert (held.spec("").resources.way, held.spec("").resources.qos) == ("spatial", "best-effort")
    assert JobFile.from_document(held.document()) == held
    assert held.notes() == ()
    assert job(gpus=0.5, sharing={"way": "temporal"}) == job(gpus=0.5)
    (note,) = job(sharing={"way": "spatial"}).notes()
    assert note.startswith("sharing: way and policy matter to a part of a GPU only")
    with pytest.raises(JobFileErrors, match="temporal"):
        job(sharing={"way": "sideways"})


def test_a_job_without_gpus() -> None:
    assert job(gpus=0).spec("").resources.gpu_milli == 0
    assert job(gpus=0).spec("").gpus == 0


def test_roles_run_what_the_job_runs_unless_they_say() -> None:
    tasks = job(roles={"ps": {}, "evaluator": {"command": ["eval"]}}).program().tasks
    assert tasks["ps"] == tasks["worker"]
    assert tasks["evaluator"] == Task(command=("eval",))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpu_count": 2}, "unknown field 'gpu_count'; did you mean 'gpus'?"),
        ({"worker": 2}, "unknown field 'worker'; did you mean 'workers'?"),
        ({"Name": "x"}, "unknown field 'Name'; did you mean 'name'?"),
        ({"max-duration": 1}, "did you mean 'max_duration'?"),
        ({"zzz": 1}, "unknown field 'zzz'; one of: application, "),
        ({"roles": {"ps": {"wokers": 1}}}, "unknown field 'wokers' in 'roles.ps'; did you mean 'w"),
        ({"retry": {"delay_s": 1}}, "unknown field 'delay_s' in 'retry'; did you mean 'delay'?"),
        ({"resources": {"mem": 1}}, "unknown field 'mem' in 'resources'; did you mean 'memory'?"),
        ({"mounts": {}}, "mounts: expected a list of names such as [birds]"),
        ({"mounts": ["../x"]}, "mounts: expected a list of names such as [birds]"),
        ({"volumes": []}, "'volumes' is not supported yet on this engine"),
        ({"schedule": {}}, "'schedule' is not supported yet on this engine"),
        ({"utilization_policy": {}}, "not supported yet on this engine; use 'max_duration'"),
        ({"resources": {"ordered": []}}, "not supported yet on this engine; use 'any_of'"),
        ({"gpus": 1.5}, "whole GPUs, or a share of one; the nearest valid are 1 or 2, found 1.5"),
        ({"priority": 101}, "priority: expected a whole number from 0 to 100, found 101"),
        ({"priority": True}, "priority: expected a whole number from 0 to 100, found true"),
        ({"kind": "service"}, "kind: expected one of task, pytorch, tensorflow, mpi, found 'serv"),
        ({"name": "Train"}, "name: expected a name of lower-case letters, digits and dashes"),
        ({"name": "a\n"}, "name: expected a name"),
        ({"queue": "a b"}, "queue: expected the name of a queue"),
        (
            {"within": "rack"},
            "within: expected one of socket, node, switch, block, zone, found 'rack'",
        ),
        ({"guest": True, "priority": 5}, "leave out 'priority: 5' or 'guest'"),
        ({"guest": True, "cell": "node-7"}, "so not cell 'node-7' either: leave out 'cell'"),
        ({"guest": True, "preemptible": False}, "leave out 'preemptible: false' or 'guest'"),
        ({"guest": "perhaps"}, "guest: expected true or false, found 'perhaps'"),
        ({"cell": ""}, "cell: expected one line of text"),
        ({"cell": ["a", "b"]}, "cell: expected one line of text"),
        ({"resources": 3}, "resources: expected a mapping, found 3"),
        ({"command": ["x"]}, "'run' and 'command' exclude each other"),
        ({"run": None}, "nothing to run"),
        ({"run": "  "}, "nothing to run"),
        ({"run": None, "command": []}, "command: expected a list such as [python, train.py]"),
        ({"run": None, "command": "python x"}, "a line for the shell goes into run, at most 1000"),
        ({"run": None, "command": ["x", None]}, "nothing is written ''"),
        ({"workers": 1, "nodes": 2}, "'nodes' and 'workers' say the same"),
        ({"gpus": 1, "resources": {"gpu": 1}}, "'gpus' and 'resources.gpu' say the same"),
        ({"resources": {"gpu": 1, "any_of": []}}, "'any_of' and 'gpu' say the same"),
        ({"gpus": 2, "sharing": {"cores": 50}}, "'sharing.cores' is a part of one GPU"),
        ({"gpus": 0.5, "sharing": {"cores": 30}}, "'sharing.cores' is a part of one GPU"),
        ({"sharing": {"cores": 0.5}}, "a percentage of one GPU from 1 to 100, found 0.5"),
        ({"sharing": {"mem": "90%"}}, "a size such as 24GB"),
        ({"roles": {"worker": {}}}, "the role 'worker' is the job itself"),
        ({"roles": {"PS": {}}}, "the name of a role such as ps"),
        ({"roles": {"ps": {"workers": "4..1"}}}, "a range such as 1..4, from 1 to 999"),
        ({"roles": {"ps": {"run": "x", "command": ["y"]}}}, "exclude each other"),
        ({"env": {"A-B": "x"}}, "the name of a variable such as DATA_DIR, found 'A-B'"),
        ({"env": {"RANK": "1"}}, "Roost itself sets this variable"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "Roost itself sets this variable"),
        ({"env": {"ROOST_TOKEN": "0"}}, "Roost itself sets this variable"),
        ({"env": {"A": "x"}, "secrets": ["A"]}, "A is both in 'env' and in 'secrets'"),
        ({"checkpoint": {"signal": "SIGKILL"}}, "one of SIGTERM, SIGINT"),
        ({"workdir": {"git": "ext::sh -c id"}}, "an address such as https://host/project.git"),
        ({"workdir": {"git": "--upload-pack=x"}}, "an address such as"),
        ({"workdir": {"git": "https://h/p.git", "ref": "--x"}}, "a branch, tag or commit"),
        ({"workdir": {}}, "a folder, or {git: address"),
        ({"workdir": {"path": "/a", "ref": "b"}}, "'ref' goes with 'git'"),
        ({"workdir": "a\0b"}, "zero bytes"),
        ({"workdir": "a\nb"}, "one line of text"),
        ({"application": "a\x1b[31m"}, "one line of text"),
        ({"retry": {"on_exit_codes": [0]}}, "a whole number from 1 to 255"),
        ({"retry": -1}, "a whole number from 0 to 100"),
        ({"suspend": "kill"}, "suspend: expected one of freeze, stop, found 'kill'"),
        ({"env": {f"A{number}": "" for number in range(2000)}}, "'env' has more than 1000"),
        ({"max_duration": "20y"}, "max_duration: expected a duration such as 90s"),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, Any], said: str) -> None:
    assert said in refused(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"A": ["canary"]}},
        {"env": {"A": "canary" + "x" * 200_000}},
        {"env": "canary"},
        {"secrets": {"TOKEN": "canary"}},
        {"secrets": "canary"},
        {"secrets": [["canary"]]},
        {"run": ["canary"]},
        {"setup": {"canary": 1}},
        {"run": None, "command": "canary"},
        {"workdir": {"git": "https://ada:canary@host/p.git"}},
        {"workdir": {"git": "https://canary@host/p.git"}},
        {"roles": {"ps": {"command": "canary"}}},
    ],
)
def test_what_may_be_secret_is_not_repeated(fields: dict[str, Any]) -> None:
    with pytest.raises(JobFileErrors) as caught:
        job(**fields)
    assert "canary" not in f"{caught.value} {caught.value.errors}"


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(JobFileErrors) as caught:
        job(gpu_count=1, priority=-1, name="!", roles={"ps": {"x": 1}})
    error = caught.value
    assert {fault.field for fault in error.errors} == {
        "gpu_count",
        "priority",
        "name",
        "roles.ps.x",
    }
    assert str(error).endswith("(and 3 more)")
    assert isinstance(error, InvalidSpec)
    assert pickle.loads(pickle.dumps(error)).errors == error.errors  # noqa: S301 - our own


def test_the_caller_fills_in_what_it_knows() -> None:
    given = job(
        env={"A": None, "B": "b"},
        workdir="src/../code",
        checkpoint={"path": "~/saved", "every": 60},
    )
    with pytest.raises(InvalidSpec, match="env: A has no value, and it is not set here"):
        given.filled({}, Path("/home/ada"))
    with pytest.raises(InvalidSpec, match="env: A has no value"):
        given.program()
    filled = given.filled({"A": "1", "HOME": "/home/ada"}, Path("/srv"))
    assert filled.program().env == {"A": "1", "B": "b"}
    assert filled.program().workdir == "/srv/code"
    assert filled.program().checkpoint_dir == "/home/ada/saved"
    assert filled.spec("") == given.spec("")


@pytest.mark.parametrize("fields", [{"workdir": "src"}, {"checkpoint": {"path": "saved"}}])
def test_relative_paths_mean_nothing_to_a_server(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="expected an absolute path"):
        job(**fields).program()


def test_a_repository() -> None:
    program = job(workdir={"git": "https://host/p.git", "ref": "v1.2"}).program()
    assert (program.git, program.workdir) == (("https://host/p.git", "v1.2"), "")
    assert job(workdir={"git": "/srv/p"}).program().git == ("file:///srv/p", "")
    assert job(workdir={"git": "git@host:team/p.git"}).program().git == ("git@host:team/p.git", "")


def test_a_job_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        job().name = "other"


def test_it_describes_itself() -> None:
    schema = JobFile.model_json_schema()
    assert schema["additionalProperties"] is False
    assert {"name", "run", "retry", "workers"} <= set(schema["properties"])


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCRIPTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), min_size=1),
    ANY_TEXT,
    st.lists(st.sampled_from(["#SBATCH --gpus 2", "#!/bin/bash", "x", "---", "  y: {", "..."])).map(
        "\n".join
    ),
).filter(str.strip)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "name": st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
    "env": st.dictionaries(
        st.from_regex(r"[A-Z]{1,5}_X", fullmatch=True),
        st.none() | ANY_TEXT,
        max_size=3,
    ),
    "labels": st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True),
        st.sampled_from(["1e3", "yes", "null", "0.10", "", "~", "1:30", "- a", "x: y", "#"]),
        max_size=3,
    ),
    "mounts": st.lists(st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True), max_size=3),
    "workers": st.integers(1, 100) | st.sampled_from(["1..4", [2, 3]]),
    "gpus": st.sampled_from([0, 1, 0.25, "H100:2", ["A100:1", "H100:1"], "24GB..80GB:1..8"]),
    "application": st.sampled_from(
        ["1e3", "0x10", "on", "null", "x", "é", "-1", "+.5", "2024-01-01"]
    ),
    "priority": st.integers(0, 100),
    "cell": st.sampled_from(["node-7", "node-7/gpu0", "1e3", "on"]),
    "run_time": st.floats(0, 1e6),
    "setup": SCRIPTS,
    "secrets": st.just(["HF_TOKEN"]),
    "workdir": st.sampled_from(["/data/a b", {"git": "https://host/p.git", "ref": "v1"}]),
    "retry": st.integers(0, 100),
    "checkpoint": st.sampled_from([{}, {"every": 5}, {"path": "/x y"}]),
    "preemptible": st.booleans(),
    "training": st.sampled_from(
        [
            {"batch": 8, "micro": 2},
            {"batch": 8, "epochs": 0.5, "local_max": 4, "alone": {"A100": 0.1}},
        ]
    ),
    "rates": st.dictionaries(
        st.sampled_from(["A100", "cpu-slot"]), st.floats(1e-3, 1e6), min_size=1
    ),
    "roles": st.sampled_from([{"ps": {"workers": [1, 4]}}, {"ps": {"workers": "2"}}]),
}


@settings(max_examples=examples(150))
@given(st.fixed_dictionaries({"run": SCRIPTS}, optional=VALUES))
def test_what_is_written_is_read_back(fields: dict[str, Any]) -> None:
    before = copy.deepcopy(fields)
    given = JobFile.from_document(fields)
    assert fields == before
    assert JobFile.from_document(given.document()) == given
    assert parse(to_yaml(given), "another.yaml").job == given
