"""GPUs are divided as an administrator wrote down, or stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from roost.engines.local.partitions import divide, plan, read_layout
from roost.errors import Conflict, InvalidSpec


def gpu(*profiles: str, mode: bool = True, pids: Sequence[int] = ()) -> dict[str, Any]:
    parts = [{"name": f"NVIDIA H200 MIG {one}", "pids": []} for one in profiles]
    return {"name": "NVIDIA H200", "pids": pids, **({"partitions": parts} if mode else {})}


WHOLE = gpu(mode=False)


def commands(layout: str, *gpus: dict[str, Any]) -> list[str]:
    found = plan(read_layout(layout), gpus)
    return [" ".join(command) for one in found for command in one.commands]


def test_a_whole_gpu_is_divided_the_largest_partition_first() -> None:
    assert commands("all: {1g.18gb: 2, 3g.71gb: 1}", WHOLE) == [
        "-i 0 -mig 1",
        "mig -i 0 -cgi 3g.71gb,1g.18gb,1g.18gb -C",
    ]


def test_what_is_said_of_one_gpu_counts_more_than_what_is_said_of_all() -> None:
    layout = "{1: {}, all: {1g.18gb: 1}, 2-3: {7g.141gb: 1}}"
    assert commands(layout, WHOLE, WHOLE, gpu("7g.141gb"), gpu("1g.18gb")) == [
        "-i 0 -mig 1",
        "mig -i 0 -cgi 1g.18gb -C",
        "mig -i 3 -dci",
        "mig -i 3 -dgi",
        "mig -i 3 -cgi 7g.141gb -C",
    ]


def test_nothing_is_done_to_a_gpu_that_is_as_it_should_be() -> None:
    assert commands("all: {1g.18gb: 2}", gpu("1g.18gb", "1g.18gb", pids=[7])) == []
    assert commands("all: {}", WHOLE) == []
    assert commands("all: {}", gpu()) == ["-i 0 -mig 0"]
    assert commands("all: {1g.18gb: 1}", gpu()) == ["mig -i 0 -cgi 1g.18gb -C"]


def test_a_gpu_in_use_is_left_alone() -> None:
    with pytest.raises(Conflict, match=r"GPU 1 is in use by process 7, 9: nothing was changed"):
        commands("all: {}", WHOLE, gpu("1g.18gb", pids=[9, 7]))


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("", "a layout says"),
        ("[1g.18gb]", "a layout says"),
        ("all: {", "no YAML"),
        ("some: {}", "'some' names no GPUs"),
        ("all: 7", "a mapping of profiles"),
        ("all: {small: 7}", "'small' is no profile such as 1g.18gb"),
        ("all: {1g.18gb: 9}", "a number from 1 to 8, got 9"),
        ("all: {1g.18gb: true}", "got True"),
        ("2: {}", "there is no GPU 2: this machine has 1"),
        ("3-1: {}", "there is no GPU 3-1"),
    ],
)
def test_a_layout_that_makes_no_sense(layout: str, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        commands(layout, WHOLE)


class Refusing:
    """A driver that refuses what begins so."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.told = refused, list[str]()

    def __call__(self, command: Sequence[str]) -> None:
        self.told.append(" ".join(command))
        if self.told[-1].startswith(self.refused):
            raise Conflict("Insufficient Resources")


def test_a_gpu_that_cannot_be_divided_as_asked_gets_back_what_it_had() -> None:
    driver = Refusing("mig -i 0 -cgi 4g.71gb,4g.71gb")
    found = plan(read_layout("all: {4g.71gb: 2}"), [gpu("3g.71gb", "3g.71gb"), WHOLE])
    with pytest.raises(Conflict, match="GPU 0: Insufficient Resources; it is as it was"):
        divide(found, driver)
    assert driver.told[-3:] == [
        "mig -i 0 -dci",
        "mig -i 0 -dgi",
        "mig -i 0 -cgi 3g.71gb,3g.71gb -C",
    ]


def test_what_cannot_be_undone_is_said() -> None:
    driver = Refusing("")
    found = plan(read_layout("all: {1g.18gb: 7}"), [WHOLE])
    with pytest.raises(Conflict, match=r"it cannot be made as it was \(Insufficient Resources\)"):
        divide(found, driver)
    assert driver.told[-1] == "-i 0 -mig 0"
