"""``roost partition`` with a made-up driver and a made-up nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.told import roost

from roost.engines.local import devices

WHOLE = {"name": "NVIDIA H200", "uuid": "GPU-0", "memory_mib": 143771, "pids": []}
PART = {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-0", "memory_mib": 16384, "pids": []}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A layout, on a machine with a whole GPU and a program that writes down what it is told."""

    async def found_gpus(_: str) -> list[dict[str, Any]]:
        return [WHOLE, {**WHOLE, "partitions": [PART]}]

    monkeypatch.setattr(devices, "found_gpus", found_gpus)
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/told\ncase "$*" in\n'
        '*4g.71gb*) echo "Insufficient Resources"; exit 19;;\n'
        '*"-i 0 -mig 1") test -e ' + str(tmp_path) + "/busy && "
        'echo "Warning: MIG mode is in pending enable state";;\nesac\nexit 0\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = tmp_path / "layout.yaml"
    found.write_text("all: {1g.18gb: 1}\n")
    return found


def test_what_there_is(layout: Path) -> None:  # noqa: ARG001 - the driver
    told = roost("partition").out
    assert "0  NVIDIA H200  whole" in told
    assert "MIG-0  NVIDIA H200 MIG 1g.18gb  16384 MiB" in told


def test_gpus_are_divided_or_only_shown(layout: Path) -> None:
    told = roost("partition", str(layout), "--dry-run").out
    assert told.splitlines() == [
        "GPU 0: whole -> 1 x 1g.18gb",
        "   nvidia-smi -i 0 -mig 1",
        "   nvidia-smi mig -i 0 -cgi 1g.18gb -C",
    ]
    assert not (layout.parent / "told").exists()
    assert roost("partition", str(layout)).out == "GPU 0: whole -> 1 x 1g.18gb\n"
    assert (layout.parent / "told").read_text() == "-i 0 -mig 1\nmig -i 0 -cgi 1g.18gb -C\n"
    layout.write_text("1: {1g.18gb: 1}\n")
    assert roost("partition", str(layout)).out == "every GPU is as it is to be\n"


def test_what_the_driver_refuses_is_told(layout: Path) -> None:
    layout.write_text("1: {4g.71gb: 2}\n")
    told = roost("partition", str(layout))
    assert "GPU 1: nvidia-smi mig -i 1 -cgi 4g.71gb,4g.71gb -C: Insufficient" in told.error
    assert "it is as it was" in told.error
    layout.write_text("0: {1g.18gb: 1}\n")
    (layout.parent / "busy").touch()
    assert "pending enable state" in roost("partition", str(layout)).error


def test_a_layout_that_is_not_there(layout: Path) -> None:
    assert "other.yaml cannot be read" in roost("partition", layout.parent / "other.yaml").error
