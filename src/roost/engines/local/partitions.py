"""Divide GPUs (MIG) as an administrator wrote down, by ``nvidia-smi``.

A layout says for each GPU how many partitions of which profile it is to have:

    all: {1g.18gb: 7}
    3: {3g.71gb: 2}     # instead of what is said of all
    4-7: {}             # whole GPUs

``plan`` compares it with what there is, and gives the commands that are to be run: none for a GPU
that is as it should be. A GPU that is in use is left alone. If one cannot be divided as asked, it
gets back what it had.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from roost.errors import Conflict, InvalidSpec

#: Profiles, and how many partitions of each; none for a whole GPU.
Division = Mapping[str, int]
#: Runs a command of nvidia-smi; Conflict with its words if it fails.
Run = Callable[[Sequence[str]], None]

_PROFILE = re.compile(r"([1-8])g\.[0-9]{1,4}gb(\+[a-z.]{1,16})?\Z")
_GPUS = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?\Z")
_ALL = "all"
_MOST = 8
_MIG = " MIG "


@dataclass(frozen=True, slots=True)
class GpuDivision:
    """One GPU: what it is divided into now, and what it is to be; ``mode``: whether MIG is on."""

    gpu: int
    mode: bool
    now: Division
    wanted: Division

    @property
    def commands(self) -> list[list[str]]:
        """What nvidia-smi is to be told."""
        if self.now == self.wanted and self.mode == bool(self.wanted):
            return []
        before = _emptied(self.gpu) if self.now else []
        return [*before, *_made(self.gpu, self.wanted, mode=self.mode)]

    @property
    def back(self) -> list[list[str]]:
        """How to come back to what there was, from a GPU with no partitions."""
        return _made(self.gpu, self.now, mode=True)


def read_layout(text: str) -> dict[str, Division]:
    """A layout as it is written; InvalidSpec says what is wrong with it."""
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidSpec(f"the layout is no YAML: {str(error).partition(chr(10))[0]}") from None
    if not isinstance(given, dict) or not given:
        raise InvalidSpec("a layout says for GPUs what they are divided into: all: {1g.18gb: 7}")
    return {str(gpus): _division(str(gpus), division) for gpus, division in given.items()}


def plan(layout: Mapping[str, Division], gpus: Sequence[Mapping[str, Any]]) -> list[GpuDivision]:
    """What is to become of each GPU that a layout names; ``gpus`` as ``nvml`` writes them.

    Conflict: one that would change is in use.
    """
    wanted: dict[int, Division] = {}
    for key in sorted(layout, key=lambda one: one != _ALL):  # what is said of one GPU counts more
        wanted |= dict.fromkeys(_numbers(key, len(gpus)), layout[key])
    found = []
    for number, division in sorted(wanted.items()):
        gpu = gpus[number]
        now = Counter(_profile(str(part["name"])) for part in gpu.get("partitions", ()))
        one = GpuDivision(number, "partitions" in gpu, dict(now), division)
        if one.commands and (pids := _users(gpu)):
            raise Conflict(
                f"GPU {number} is in use by process {', '.join(map(str, pids))}: "
                "nothing was changed; drain the machine first"
            )
        found.append(one)
    return found


def divide(divisions: Sequence[GpuDivision], run: Run) -> None:
    """Make GPUs as planned, one after the other.

    Conflict: one could not be; it has what it had before, and those after it were not touched.
    """
    for one in divisions:
        try:
            for command in one.commands:
                run(command)
        except Conflict as error:
            raise Conflict(f"GPU {one.gpu}: {error}; {_restored(one, run)}") from None


def shown(division: Division, *, mode: bool = True) -> str:
    """``7 x 1g.18gb`` for people."""
    if not division:
        return "divided into nothing" if mode else "whole"
    return ", ".join(f"{count} x {profile}" for profile, count in sorted(division.items()))


def _restored(one: GpuDivision, run: Run) -> str:
    for command in _emptied(one.gpu):
        with suppress(Conflict):  # there is nothing to be taken away
            run(command)
    try:
        for command in one.back:
            run(command)
    except Conflict as error:
        return f"and it cannot be made as it was ({error})"
    return "it is as it was"


def _emptied(gpu: int) -> list[list[str]]:
    return [["mig", "-i", str(gpu), what] for what in ("-dci", "-dgi")]


def _made(gpu: int, division: Division, *, mode: bool) -> list[list[str]]:
    if not division:
        return [["-i", str(gpu), "-mig", "0"]]
    # The largest first: nvidia-smi puts each where there is room, and does not move it.
    profiles = sorted(division, key=lambda one: (-int(one[0]), one))
    every = ",".join(profile for profile in profiles for _ in range(division[profile]))
    on = [] if mode else [["-i", str(gpu), "-mig", "1"]]
    return [*on, ["mig", "-i", str(gpu), "-cgi", every, "-C"]]


def _division(gpus: str, given: object) -> Division:
    if gpus != _ALL and not _GPUS.match(gpus):
        raise InvalidSpec(f"{gpus!r} names no GPUs: write all, a number such as 3, or 4-7")
    if not isinstance(given, dict):
        raise InvalidSpec(
            f"{gpus}: a mapping of profiles such as {{1g.18gb: 7}}, or {{}} for whole"
        )
    for profile, count in given.items():
        if not _PROFILE.match(str(profile)):
            raise InvalidSpec(f"{gpus}: {profile!r} is no profile such as 1g.18gb")
        if type(count) is not int or not 1 <= count <= _MOST:
            raise InvalidSpec(f"{gpus}: {profile}: a number from 1 to {_MOST}, got {count!r}")
    return {str(profile): count for profile, count in given.items()}


def _numbers(key: str, count: int) -> range:
    if key == _ALL:
        return range(count)
    found = _GPUS.match(key)
    low, high = found.groups() if found else ("0", None)
    numbers = range(int(low), int(high or low) + 1)
    if not numbers or numbers[-1] >= count:
        raise InvalidSpec(f"there is no GPU {key}: this machine has {count}, counted from 0")
    return numbers


def _profile(name: str) -> str:
    return name.partition(_MIG)[2] or name


def _users(gpu: Mapping[str, Any]) -> list[int]:
    parts = [gpu, *gpu.get("partitions", ())]
    return sorted({pid for part in parts for pid in part.get("pids", ())})
