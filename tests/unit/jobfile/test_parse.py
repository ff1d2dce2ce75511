from __future__ import annotations

import json

import pytest

from roost.core import Range
from roost.jobfile import FieldError, JobFileErrors, parse, to_yaml

TRAIN = """\
# how the birds are trained
name: birds
gpus: A100:0.5
workers: 1..4
env:
  EPOCHS: 010
  RATE: 1.10
  DEBUG: on
  EMPTY: ""
  TOKEN_FILE:
  BIG: 123456789012345
run: |
  python train.py \\
    --rate "$RATE"
"""


def errors(text: str) -> tuple[FieldError, ...]:
    with pytest.raises(JobFileErrors) as caught:
        parse(text, "train.yaml")
    return caught.value.errors


def test_a_job_file() -> None:
    job, notes = parse(TRAIN, "train.yaml")
    assert notes == ()
    assert job.name == "birds"
    assert job.workers == Range(1, 4)
    assert job.run == 'python train.py \\\n  --rate "$RATE"\n'


def test_variables_are_what_was_written() -> None:
    assert parse(TRAIN, "train.yaml").job.env == {
        "EPOCHS": "010",
        "RATE": "1.10",
        "DEBUG": "on",
        "EMPTY": "",
        "TOKEN_FILE": None,
        "BIG": "123456789012345",
    }


def test_arguments_are_what_was_written() -> None:
    job = parse("command: [python, t.py, --rate, 1e-3, --flag, true, -x, 0.10]", "t.yaml").job
    assert job.command == ("python", "t.py", "--rate", "1e-3", "--flag", "true", "-x", "0.10")


def test_json_is_yaml() -> None:
    text = json.dumps({"run": "x", "gpus": 0.5, "env": {"A": "1"}})
    assert parse(text, "x.json").job == parse("run: x\ngpus: 0.5\nenv: {A: 1}", "x.yaml").job


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("train.yaml", "train"),
        ("/home/ada/My Job_2.final.yml", "my-job-2"),
        ("standard input", "standard-input"),
        ("---.yaml", "job"),
        ("x" * 300 + ".yaml", "x" * 63),
    ],
)
def test_a_job_without_a_name_is_called_like_its_file(file: str, name: str) -> None:
    assert parse("run: x", file).job.name == name


def test_an_unknown_field_is_told_with_its_line_and_the_nearest() -> None:
    with pytest.raises(JobFileErrors) as caught:
        parse("name: a\nrun: x\n\n# more\n\n\ngpu_count: 2\n", "train.yaml")
    assert str(caught.value) == (
        "train.yaml, line 7: unknown field 'gpu_count'; did you mean 'gpus'?"
    )


def test_faults_come_in_the_order_of_the_lines() -> None:
    text = (
        "zzz: 1\nname: A\nrun: x\nretry:\n  max: many\n  wait: 1\nroles:\n  ps:\n    workers: 0\n"
    )
    assert [(fault.line, fault.field) for fault in errors(text)] == [
        (1, "zzz"),
        (2, "name"),
        (5, "retry.max"),
        (6, "retry.wait"),
        (9, "roles.ps.workers"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("run: x\ngpus: 1.5", 2, "gpus"),
        ("run: x\nnodes: 0", 2, "nodes"),
        ("run: x\nelastic: {min: 4, max: 1}", 2, "elastic"),
        ("run: x\nresources:\n  any_of: [A100:1, H100:2]", 3, "resources.any_of"),
        ("run: x\nresources:\n  gpu: 1.5", 3, "resources.gpu"),
        ("run: x\nroles:\n  ps:\n    gpus: 1.5", 4, "roles.ps.gpus"),
        ("run: x\nworkers: 2\nnodes: 2", 3, "nodes"),
        ("run: x\nenv:\n  A: 1\n  B:\n    - 1", 4, "env.B"),
        ("run: x\nsharing:\n  cores: 50\ngpus: 2", 3, "sharing.cores"),
        ("run: x\nenv:\n  A: 1\nsecrets: [A]", 3, "env.A"),
        ("name: a\nqueue: q", 1, "run"),
        ("run: x\nmounts:\n  /data: x", 2, "mounts"),
    ],
)
def test_a_fault_has_its_line(text: str, line: int, field: str) -> None:
    (fault,) = errors(text)
    assert (fault.line, fault.field) == (line, field)


def test_anchors_and_merges_work() -> None:
    text = """\
roles:
  ps: &cpu {resources: &small {cpu: 4}, workers: 2, run: x}
  evaluator:
    <<: *cpu
    workers: 1
resources: *small
run: x
"""
    job = parse(text, "x.yaml").job
    assert job.roles["evaluator"].workers == (1, 1)
    assert job.roles["evaluator"].resources == job.roles["ps"].resources == job.resources


def test_standard_tags_work() -> None:
    job = parse('run: !!str 5\npriority: !!int "7"\nname: ! "12"', "x.yaml").job
    assert (job.run, job.priority, job.name) == ("5", 7, "12")


def test_texts_are_those_of_yaml_1_2() -> None:
    job = parse("run: yes\nqueue: on\napplication: 1:30", "x.yaml").job
    assert (job.run, job.queue, job.application) == ("yes", "on", "1:30")


def test_ends_of_documents_and_marks_at_the_start() -> None:
    assert parse("\ufeff---\nrun: éx\U0001f426\n...\n# done\n\n", "x.yaml").job.run
    assert parse("---\r\nrun: x\r\n...", "x.yaml").job.run == "x"


def test_notes_of_what_is_ignored() -> None:
    assert parse("run: x\nimage: pytorch:2\nports: [8080]", "x.yaml").notes == (
        "ports: ignored; the job opens ports of this machine by itself",
    )


def test_a_job_is_rendered_for_people() -> None:
    assert (
        to_yaml(parse(TRAIN, "train.yaml").job)
        == """\
name: birds
run: |
  python train.py \\
    --rate "$RATE"
env:
  EPOCHS: '010'
  RATE: '1.10'
  DEBUG: 'on'
  EMPTY: ''
  TOKEN_FILE: null
  BIG: '123456789012345'
workers: 1..4
resources:
  gpu: A100:0.5
"""
    )


def test_other_kinds_of_kubernetes_are_refused() -> None:
    (fault,) = errors("apiVersion: v1\nkind: Pod\n")
    assert fault.line == 2
    assert "PyTorchJob, TFJob, MPIJob, TrainJob, UnifiedJob" in fault.message
