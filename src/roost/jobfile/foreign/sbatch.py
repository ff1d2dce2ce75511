"""Shell scripts with ``#SBATCH`` headers.

A task becomes a worker: ``-n``, or nodes times tasks per node. The script runs in each worker;
``srun`` before the only command of a line is dropped, because the workers are there already. A
script without headers is converted too: it just runs.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from roost.jobfile import yaml
from roost.jobfile.errors import Fault
from roost.jobfile.fields import clean
from roost.jobfile.foreign.conversion import Conversion, named
from roost.jobfile.grammar import write_size

_SHELLS = re.compile(r"#!\s*(/usr/bin/env\s+(-S\s+)?|/\S*/)(ba|da|z|k)?sh\b")
_SHORT = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "t": "time",
    "p": "partition",
    "G": "gpus",
    "A": "account",
    "q": "qos",
    "a": "array",
    "o": "output",
    "e": "error",
    "D": "chdir",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "d": "dependency",
}
#: What a job file cannot say, and what to do instead.
_REFUSED = {
    "array": "would be one job here: take it out, and submit once for each number, such as "
    "for i in 1 2 3; do roost submit FILE --env SLURM_ARRAY_TASK_ID=$i --label task=$i; done",
    "dependency": "is not known here: take it out, and submit the job when the other is over, "
    "such as roost submit --wait FIRST && roost submit FILE",
}
_FLAGS = {"requeue", "no-requeue", "exclusive"}
_SIZE = re.compile(r"([0-9]+)([KMGT]?)B?\Z", re.IGNORECASE)
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?\Z")
_KINDLESS = re.compile(r"[0-9]{1,4}\Z")
_CALLS_SRUN = re.compile(r"^(?!#).*?(^|[\s;&|(])srun\s", re.MULTILINE)
_WORDY = re.compile(r"[|&;<>()`$]|\\\Z")
_SLURM = re.compile(r"\$\{?SLURM_\w+")
_MOST_LINES = 20_000
_MOST_HEADERS = 100
_LONGEST_HEADER = 1_000
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "": 1024**2}


class _Given(NamedTuple):
    line: int
    value: str


@dataclass(frozen=True, slots=True)
class _Layout:
    """The number of tasks, in all and on each node, and whether they are one worker."""

    line: int
    tasks: int
    on_a_node: int
    once: bool

    def share(self, amount: int, of: str) -> float:
        """A worker's part of an amount that is given per task, per node or for the job."""
        total = {
            "task": amount * self.tasks,
            "node": amount * self.tasks / self.on_a_node,
            "job": amount,
        }[of]
        return total if self.once else total / self.tasks


class _Options:
    """The headers by their long names; those that are not taken are noted."""

    def __init__(self, out: Conversion) -> None:
        self.out = out
        self._given: dict[str, _Given] = {}

    def add(self, name: str, value: str, line: int) -> None:
        self._given[name] = _Given(line, value)

    def take(self, name: str) -> _Given | None:
        return self._given.pop(name, None)

    def whole(self, name: str) -> int | None:
        given = self.take(name)
        if given is None:
            return None
        if not re.fullmatch(r"[0-9]{1,7}", given.value):
            raise _wrong(name, given, "a whole number")
        return int(given.value)

    def line_of(self, *names: str) -> int:
        return next((self._given[name].line for name in names if name in self._given), 0)

    def finish(self) -> Conversion:
        for name, (line, _) in self._given.items():
            self.out.note(line, f"--{name} is not converted")
        return self.out.finish()


def convert(text: str) -> Conversion:
    """A batch script as a job file."""
    if len(text) > yaml.MAX_TEXT or not clean(text):
        raise Fault(0, f"a script of at most {yaml.MAX_TEXT} characters, without zero bytes")
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        raise Fault(0, f"a script of more than {_MOST_LINES} lines")
    if lines and lines[0].startswith("#!") and not _SHELLS.match(lines[0]):
        raise Fault(1, "only scripts for a shell are converted; give others as a command")
    out = Conversion()
    options = _Options(out)
    for number, line in enumerate(lines[:_MOST_HEADERS], 1):
        if line.startswith("#SBATCH"):
            _read_header(line, number, options)
        elif line.strip() and not line.startswith("#"):
            break  # headers below the first command are comments
    _refuse(options)
    _put_plain(options, out)
    layout = _layout(options, text, out)
    _put_cpus(options, layout, out)
    _put_memory(options, layout, _put_gpus(options, layout, out), out)
    _put_signal(options, out)
    _put_script(lines, out)
    return options.finish()


def _read_header(line: str, number: int, options: _Options) -> None:
    if len(line) > _LONGEST_HEADER:
        raise Fault(number, f"#SBATCH: a header of more than {_LONGEST_HEADER} characters")
    try:
        words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
    except ValueError as error:
        raise Fault(number, f"#SBATCH: {error}") from None
    while words:
        word = words.pop(0)
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            raise Fault(number, f"#SBATCH: expected an option, found {word[:60]!r}")
        if not word.startswith("--"):
            name, value = _SHORT.get(word[1:2], word[1:2]), word[2:].removeprefix("=")
        if not value and name not in _FLAGS and words and not words[0].startswith("-"):
            value = words.pop(0)
        options.add(name, value, number)


def _refuse(options: _Options) -> None:
    """Refuse what would make another job of it: one instead of many, or one that starts at once."""
    for name, advice in _REFUSED.items():
        if given := options.take(name):
            raise Fault(given.line, f"#SBATCH --{name} {advice}", name)


def _put_plain(options: _Options, out: Conversion) -> None:
    readers: dict[str, tuple[str, Callable[[str], object]]] = {
        "job-name": ("name", named),
        "time": ("max_duration", _duration),
        "partition": ("queue", lambda value: value.partition(",")[0]),
        "chdir": ("workdir", str),
    }
    for option, (field, read) in readers.items():
        if given := options.take(option):
            try:
                value = read(given.value)
            except ValueError:
                raise _wrong(option, given, "a value that Slurm would take") from None
            if value is not None:
                out.put(field, value, given.line)
    if options.take("requeue") is None and (given := options.take("no-requeue")):
        out.put("retry", 0, given.line)
    if given := options.take("nice"):
        out.note(given.line, "--nice: priorities are 0 to 100 here; the job gets 0")


def _put_cpus(options: _Options, layout: _Layout, out: Conversion) -> None:
    line = options.line_of("cpus-per-task")
    if each := options.whole("cpus-per-task"):
        out.put("resources.cpu", int(layout.share(each, "task")), line)


def _layout(options: _Options, script: str, out: Conversion) -> _Layout:
    """Nodes and tasks, as far as they are given; a range of nodes makes the job elastic."""
    line = options.line_of("ntasks", "nodes", "ntasks-per-node")
    given = options.take("nodes")
    low, high = _range(given) if given else (1, 1)
    each, tasks = options.whole("ntasks-per-node") or 1, options.whole("ntasks")
    ends = (tasks, tasks) if tasks else (low * each, high * each)
    once = ends[1] > 1 and not _CALLS_SRUN.search(script)
    layout = _Layout(line, max(1, ends[0]), max(1, math.ceil(ends[0] / low)), once=once)
    if once:
        out.note(line, f"without srun the script runs once, with what all {ends[0]} tasks ask for")
    elif ends[1] > 1:
        out.note(line, "the script runs in each worker; what must run once goes into setup")
        out.put("workers", ends[0] if ends[0] == ends[1] else f"{ends[0]}..{ends[1]}", line)
    return layout


def _put_gpus(options: _Options, layout: _Layout, out: Conversion) -> int:
    """The GPUs of each worker; returns how many, rounded up."""
    names = ("gpus-per-task", "gpus-per-node", "gres", "gpus")
    line = options.line_of(*names)
    given = [(name, option) for name in names if (option := options.take(name))]
    if not given:
        out.put("gpus", 0)
        return 0
    name, option = given[0]
    kind, count = _devices(name, option)
    number = layout.share(count, {"gpus-per-task": "task", "gpus": "job"}.get(name, "node"))
    if number > 1 and number != int(number):
        out.note(line, f"--{name}: {count} GPUs do not divide among the workers; rounded up")
        number = math.ceil(number)
    each = f"{number:.3f}".rstrip("0").rstrip(".")
    if kind:
        out.note(line, f"the GPU type {kind!r} is taken for the kind {kind.upper()!r}")
    out.put("gpus", f"{kind.upper()}:{each}" if kind and number else float(each), line)
    return math.ceil(number)


def _devices(name: str, given: _Given) -> tuple[str, int]:
    parts = [part for part in given.value.split(",")[0].split(":") if part]
    if name == "gres":
        if parts[:1] != ["gpu"]:
            raise _wrong(name, given, "gpu:2 or gpu:a100:2")
        parts = parts[1:]
    count = parts.pop() if parts and _KINDLESS.match(parts[-1]) else "1"
    if len(parts) > 1:
        raise _wrong(name, given, "a count such as 2 or a100:2")
    return (parts[0] if parts else ""), int(count)


def _put_memory(options: _Options, layout: _Layout, gpus: int, out: Conversion) -> None:
    cpus = int(out.job.get("resources", {}).get("cpu", 1))
    for name, of, factor in (
        ("mem", "node", 1),
        ("mem-per-cpu", "worker", cpus),
        ("mem-per-gpu", "worker", max(1, gpus)),
    ):
        given = options.take(name)
        if given is None or given.value == "0":
            continue
        match = _SIZE.match(given.value)
        if match is None:
            raise _wrong(name, given, "a size such as 32G")
        size = int(match[1]) * _UNITS[match[2].upper()] * factor
        size = math.ceil(size if of == "worker" else layout.share(size, of))
        out.put("resources.memory", write_size(size), given.line)


def _put_signal(options: _Options, out: Conversion) -> None:
    given = options.take("signal")
    if given is None:
        return
    name, _, before = given.value.rpartition(":")[2].partition("@")
    if not name.isalnum() or (before and not before.isdigit()):
        raise _wrong("signal", given, "a signal and a time such as USR1@60")
    if name.isdigit():
        out.note(given.line, "--signal is converted only by its name")
        return
    out.put("checkpoint.signal", name, given.line)
    if before:
        out.put("checkpoint.grace", f"{before}s", given.line)
    out.note(given.line, "--signal: sent when the job is stopped, for whatever reason")


def _put_script(lines: list[str], out: Conversion) -> None:
    kept = []
    for number, line in enumerate(lines, 1):
        if line.startswith(("#SBATCH", "#!")):
            continue
        kept.append(_without_srun(line, number, out))
    script = "\n".join(kept).strip("\n")
    if not any(line.strip() and not line.lstrip().startswith("#") for line in kept):
        raise Fault(len(lines), "the script runs nothing")
    if match := _SLURM.search(script):
        out.note(0, f"{match[0]} is not set here; use RANK, WORLD_SIZE, MASTER_ADDR")
    out.put("run", f"{script}\n")


def _without_srun(line: str, number: int, out: Conversion) -> str:
    if not _CALLS_SRUN.search(line):
        return line
    first, *rest = line.split(None, 1)
    if first == "srun" and rest and rest[0][0] != "-" and not _WORDY.search(rest[0]):
        out.note(number, "srun is dropped: the script runs in each worker already")
        return line[: line.index("srun")] + rest[0]
    out.note(number, "srun is left as it is; it must exist, or be removed")
    return line


def _range(given: _Given) -> tuple[int, int]:
    low, _, high = given.value.partition("-")
    if not re.fullmatch(r"[0-9]{1,5}", low) or not re.fullmatch(r"[0-9]{0,5}", high):
        raise _wrong("nodes", given, "a number of nodes such as 2 or 1-4")
    return max(1, int(low)), max(1, int(low), int(high or low))


def _duration(value: str) -> str | None:
    """Slurm's time: minutes, m:s, h:m:s, d-h, d-h:m or d-h:m:s; 0 and UNLIMITED are no limit."""
    if value.upper() in ("UNLIMITED", "INFINITE", "0"):
        return None
    match = _TIME.match(value)
    if match is None or len(value) > len("99999-23:59:59"):
        raise ValueError(value)
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == len(("h", "m", "s")):
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return f"{int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds}s"


def _wrong(name: str, given: _Given, expected: str) -> Fault:
    return Fault(given.line, f"--{name}: expected {expected}, found {given.value[:60]!r}", name)
