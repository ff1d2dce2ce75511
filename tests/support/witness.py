"""The job that chaos submits: it keeps a lock and a ledger, so that two copies of it are seen.

Each worker takes a lock of its own job and rank and passes it on to everything it starts: while any
process of its tree lives, a second tree finds the lock taken and says so in the ledger.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import roost

#: The variable that marks every process of these jobs, beside Roost's own.
MARK = "CHAOS"

_PROGRAM = """\
# usage: witness.sh FOLDER MODE SECONDS CODE
say() { echo "$1 $ROOST_JOB $ROOST_ROLE-$RANK $ROOST_ATTEMPT $$" >> "$folder/ledger"; }
folder=$1 mode=$2 seconds=$3 code=$4
exec 9>> "$folder/locks/$ROOST_JOB.$ROOST_ROLE-$RANK"
flock -n -E 75 9
case $? in
0) say start ;;
75) say clash; exit 99 ;;
*) exit 98 ;;  # flock itself was killed: nobody knows
esac
case $mode in
polite) trap 'say stop; exit 143' TERM ;;
stubborn) trap '' TERM ;;
leaver) setsid sleep 60 & ;;
flaky) if [ "$ROOST_ATTEMPT" -lt 2 ]; then
    echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
    say stop
    exit 1
fi ;;
esac
sleep "$seconds" &
wait $!
say stop
exit "$code"
"""

#: Seconds of a step of an elastic witness.
STEP_S = 0.01
_HELD_MIB = 256
#: Of a GPU, for each worker: three elastic jobs fit on one, with all their workers.
_SHARE = 0.1
_ELASTIC = Path(__file__).with_name("elastic_witness.py")
#: The elastic witness imports ``roost.train``, from where this process has it.
_SOURCES = str(Path(roost.__file__).parents[1])

#: How often a witness stops when asked, does not, leaves a process behind, fails once.
_MODES = {"polite": 6, "stubborn": 1, "leaver": 1, "flaky": 1}


def install(folder: Path) -> None:
    """Put the program, its locks and its ledger into a folder."""
    for name in ("locks", "steps"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "witness.sh").write_text(_PROGRAM, encoding="utf-8")


def document(
    folder: Path, chance: random.Random, seconds: float | None = None, *, gpu: bool = False
) -> dict[str, Any]:
    """A job file, as JSON: some witness or other, or one that just takes so many seconds.

    On a ``gpu`` every worker has a share of it, by turns with the others.
    """
    mode, code, takes = "polite", 0, seconds
    if takes is None:
        mode = chance.choices(list(_MODES), list(_MODES.values()))[0]
        code = chance.choices((0, 3), (9, 1))[0]
        takes = round(chance.uniform(0.0, 1.5), 2)
    found: dict[str, Any] = {
        "name": "chaos",
        "command": ["sh", str(folder / "witness.sh"), str(folder), mode, str(takes), str(code)],
        "env": {MARK: str(folder)},
        "retry": {"max": 2, "delay": 0},
        "checkpoint": {"grace": 0.2},
        "priority": chance.randrange(3),
    }
    if seconds is None:
        found |= chance.choice(
            (
                {},
                {},
                {"workers": 2},
                {"workers": "1..3"},
                {"workers": "1..3"},
                {"max_duration": 0.4},
                {"gpus": 0.5},
                {"suspend": "stop"},
                elastic(folder, 2 * takes, gpu=gpu),
                elastic(folder, 2 * takes, gpu=gpu),
            )
        )
    return found | {"gpus": _SHARE if "workers" in found else 2 * _SHARE} if gpu else found


def elastic(folder: Path, seconds: float, *, gpu: bool = False) -> dict[str, Any]:
    """What makes of a witness one that changes its size while it runs; it holds GPU memory."""
    steps = str(max(1, round(seconds / STEP_S)))
    mib = [str(_HELD_MIB)] if gpu else []
    found: dict[str, Any] = {
        "command": [sys.executable, "-P", str(_ELASTIC), str(folder), steps, *mib],
        "env": {MARK: str(folder), "PYTHONPATH": _SOURCES},
        "workers": "1..3",
    }
    return found | {"gpus": _SHARE} if gpu else found


def is_elastic(document: Mapping[str, Any]) -> bool:
    """Whether a job file is that of an elastic witness."""
    return str(_ELASTIC) in document.get("command", ())


def steps_of(document: Mapping[str, Any]) -> int:
    """How many steps an elastic witness has to take."""
    return int(document["command"][4])


def run_beside(folder: Path, document: Mapping[str, Any], env: Mapping[str, str]) -> int:
    """Run a witness by hand, as if it were that worker; its exit status."""
    command = [*document["command"][:-2], "0", "0"]
    return subprocess.run(command, cwd=folder, env={**os.environ, **env}, check=False).returncode  # noqa: S603 - our own
