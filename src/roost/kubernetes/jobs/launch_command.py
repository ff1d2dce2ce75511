"""What a container of a job executes: its command, and around it what prepares and ends it.

A plain command runs as it is. Where there is more to do (a script, a repository to check out,
setup, another signal than SIGTERM), bash does it: it starts the worker in a process group of its
own, passes the signal on to all of the group, and ends with the worker's own status. A setup that
failed is told from a worker that failed by the word that the container leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.errors import InvalidSpec
from roost.jobfile.program import Program, Task

#: What a container whose setup failed leaves as its last message.
SETUP_FAILED = "roost: setup"
#: Copies ``roost.train`` to where the job's container finds it.
INSTALL = ("python", "-m", "roost.train.pod", "--install", "/roost/lib")

_TERM = "SIGTERM"
_LAUNCH = f"""
url=$1 ref=$2 setup=$3 signal=$4
shift 4
prepare() {{
  set -e
  if [ -n "$url" ]; then
    git init -q .
    if git fetch -q --depth 1 "$url" "${{ref:-HEAD}}"; then git checkout -q FETCH_HEAD
    else git fetch -q "$url" '+refs/*:refs/fetched/*'; git checkout -q "$ref"; fi
  fi
  if [ -n "$setup" ]; then /bin/bash -eo pipefail -c "$setup"; fi
}}
(prepare)
code=$?
if [ $code -ne 0 ]; then
  [ -w /dev/termination-log ] && printf %s '{SETUP_FAILED}' > /dev/termination-log
  exit $code
fi
set -m
"$@" &
worker=$!
set +m
trap 'kill -s "$signal" -- "-$worker" 2>/dev/null' TERM
while kill -0 "$worker" 2>/dev/null; do wait "$worker"; done
wait "$worker"
"""


def argv_of(program: Program, role: str, wrapper: Sequence[str] = ()) -> list[str]:
    """What the container of a role executes; ``wrapper`` is what the worker itself runs under."""
    task = program.tasks.get(role)
    if task is None:
        raise InvalidSpec(f"role {role!r} has nothing to run")
    worker = [*wrapper, *_worker(task)]
    url, ref = program.git
    plain = not task.script and not url and not program.setup and program.stop_signal == _TERM
    if plain:
        return worker
    if url.startswith("-") or ref.startswith("-"):
        raise InvalidSpec(f"cannot check out {url!r} at {ref!r}")
    signal = program.stop_signal.removeprefix("SIG")
    return ["/bin/bash", "-c", _LAUNCH, "roost", url, ref, program.setup, signal, *worker]


def _worker(task: Task) -> list[str]:
    if task.script:
        return ["/bin/bash", "-eo", "pipefail", "-c", task.script]
    return list(task.command)
