from __future__ import annotations

import pytest

from roost.errors import InvalidSpec
from roost.jobs.templates import BUILT_IN, JobTemplate, TemplateBlank, filled

BIRDS = JobTemplate("birds", "run: python {{script}}\n", blanks=(TemplateBlank("script", "", "t"),))


def test_every_template_that_is_shipped_makes_a_job() -> None:
    for template in BUILT_IN:
        job = filled(template.checked(), {}).job
        assert job.labels == {"template": template.name}
        assert template.title
        assert template.description


@pytest.mark.parametrize("value", ["a.py", "a b.py", "x:y/z@1", "--rate=0.1", "1..4", "été.py", ""])
def test_plain_values_fill_blanks(value: str) -> None:
    assert filled(BIRDS, {"script": value}).job.run == f"python {value}".rstrip()


@pytest.mark.parametrize(
    "value",
    [
        "x\ngpus: 8",
        "x: y",
        "x #",
        "a  b",
        "{x}",
        '"',
        "$(rm -rf /)",
        "<script>",
        "\x1b[31m",
        "\u202e",
        "x" * 201,
        "&a",
        "x:",
    ],
)
def test_a_value_cannot_become_other_fields(value: str) -> None:
    with pytest.raises(InvalidSpec, match="script: letters"):
        filled(BIRDS, {"script": value})


def test_blanks_and_what_says_what_they_are_fit() -> None:
    with pytest.raises(InvalidSpec, match="blank 'scrip'"):
        filled(BIRDS, {"scrip": "x"})
    with pytest.raises(InvalidSpec, match="nothing says what it is"):
        JobTemplate("x", "run: {{a}}").checked()
    with pytest.raises(InvalidSpec, match="no blank"):
        JobTemplate("x", "run: a", blanks=(TemplateBlank("b"),)).checked()
    with pytest.raises(InvalidSpec, match="cannot be a template's name"):
        JobTemplate("../x", "run: a").checked()
    with pytest.raises(InvalidSpec, match="line 1"):
        JobTemplate("x", "colour: red").checked()


def test_a_job_of_openpais_marketplace_is_a_template() -> None:
    text = """
protocolVersion: 2
name: couplet
type: job
prerequisites:
  - {type: dockerimage, uri: "openpai/standard:py36", name: image}
taskRoles:
  train:
    instances: 1
    dockerImage: image
    resourcePerInstance: {cpu: 4, memoryMB: 8192, gpu: {{gpus}}}
    commands: [python train.py]
"""
    template = JobTemplate("couplet", text, blanks=(TemplateBlank("gpus", "GPUs", "1"),)).checked()
    job = filled(template, {"gpus": "2"}).job
    assert job.spec("ada").gpus == 2
    assert job.image == "openpai/standard:py36"
