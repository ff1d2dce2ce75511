"""The page about job files names every field, and every file on it is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roost.jobfile import JobFile, parse, to_yaml
from roost.jobfile.faults import UNSUPPORTED
from roost.jobfile.foreign import alnair, kubeflow
from roost.jobfile.grammar import read_cpus, read_duration, read_gpus, read_size, read_sizes
from roost.jobfile.sections import (
    CheckpointSection,
    ResourcesSection,
    RetrySection,
    RoleSection,
    SharingSection,
    TrainingSection,
    WorkdirSection,
)

TEXT = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = [text for language, text in BLOCKS if language in ("yaml", "bash")]
#: The rows of the tables of fields: other tables, as that of variables, have another head.
FIELDS = re.findall(r"^\| field \| example \| \|\n\|---.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
ROWS = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", "".join(FIELDS), re.MULTILINE))
GRAMMAR = dict(re.findall(r"^\| ([\w ]+) \| (`.+?) \|$", TEXT, re.MULTILINE))


@pytest.mark.parametrize("text", FILES)
def test_every_file_is_a_job(text: str) -> None:
    job = parse(text, "page.yaml").job
    assert job.spec("ada").user == "ada"
    filled = job.filled({"WANDB_MODE": "off", "HOME": "/home/ada"}, Path("/"))
    assert filled.program().tasks.keys() == {"worker", *job.roles}


def test_every_field_has_a_row_with_an_example() -> None:
    fields = {field.alias or name for name, field in JobFile.model_fields.items()} | {"gpus"}
    assert set(ROWS) == fields
    for field, example in ROWS.items():
        given = "" if field in ("run", "command") else "run: x\n"
        job = parse(f"{given}{field}: {example}\n", "page.yaml").job
        assert job != parse("run: x", "page.yaml").job


@pytest.mark.parametrize(
    "kind",
    [
        CheckpointSection,
        ResourcesSection,
        RetrySection,
        RoleSection,
        SharingSection,
        TrainingSection,
        WorkdirSection,
    ],
)
def test_every_inner_field_is_named(kind: type) -> None:
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", TEXT))))
    assert set(kind.model_fields) - {"path"} <= words  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [*UNSUPPORTED, *kubeflow.KINDS, alnair.KIND, "protocolVersion"])
def test_what_is_not_ours_is_named(name: str) -> None:
    assert f"`{name}`" in TEXT or name == "ordered"


def test_the_grammar_is_what_is_read() -> None:
    readers = {
        "GPUs": read_gpus,
        "CPUs": read_cpus,
        "sizes": read_size,
        "ranges of sizes": read_sizes,
        "durations": read_duration,
    }
    for row, read in readers.items():
        examples = re.findall(r"`(.+?)`", GRAMMAR[row])
        assert len(examples) > 1
        for example in examples:
            read(example)


def test_the_script_becomes_the_file_below_it() -> None:
    (at,) = (at for at, (language, _) in enumerate(BLOCKS) if language == "bash")
    assert to_yaml(parse(BLOCKS[at][1], "birds.sh").job) == BLOCKS[at + 1][1]
