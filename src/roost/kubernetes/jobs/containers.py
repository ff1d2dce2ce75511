"""The containers of a job: what they execute, what they are told, and what they may not do.

A plain command runs as it is. Where there is more to do (a script, a repository to check out,
setup, another signal than SIGTERM), bash does it: it starts the worker in a process group of its
own, passes the signal on to all of the group, and ends with the worker's own status. The container
leaves a word behind if its setup failed, so that this is told from a worker that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.core.allocation import Seat
from roost.core.spec import WHOLE, Qos, Resources, Way
from roost.errors import InvalidSpec
from roost.jobfile.program import Program, Task
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.pods import encode_gpus

#: How a share of a GPU is asked for; see ``needs``.
SHARE, MEMORY = "roost.dev/gpu-share", "roost.dev/gpu-memory"
QOS, WAY = "roost.dev/gpu-qos", "roost.dev/gpu-way"


def share_notes(need: Resources) -> dict[str, str]:
    """How a pod says which part of a GPU it needs."""
    notes = {SHARE: f"{need.share_milli / WHOLE:g}"}
    if need.gpu_memory_mib:
        notes[MEMORY] = f"{need.gpu_memory_mib}Mi"
    if need.qos is not Qos.FIXED:
        notes[QOS] = need.qos.value
    if need.way is not Way.TEMPORAL:
        notes[WAY] = need.way.value
    return notes


def device_variables(seat: Seat, *, has_agent: bool = False) -> dict[str, str]:
    """Whole GPUs are the device plugin's; of a shared one, or of none, a container is told.

    Where Roost's agent is the plugin it gives out both.

    An image that was made for GPUs would see all of the node's otherwise.
    """
    if not seat.gpus:
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    if seat.share_milli >= WHOLE or has_agent:
        return {}
    return {"NVIDIA_VISIBLE_DEVICES": encode_gpus(seat.gpus)}


def contained() -> Object:
    """No privileges, and none to be had."""
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def from_secret(variable: str, secret: str, key: str) -> Object:
    """A variable with its value in a Secret."""
    return {
        "name": variable,
        "valueFrom": {"secretKeyRef": {"name": secret, "key": key}},
    }


def literal(text: str) -> str:
    """A text that means itself in a pod: Kubernetes would expand ``$(NAME)``, and halve ``$$``."""
    return text.replace("$", "$$")


#: The last message of a container after a failed setup.
SETUP_FAILED = "roost: setup"
#: Copies ``roost.train`` to where the job's container finds it. It is at the same place in both
#: images that ``deploy/Containerfile`` makes, and the smaller one has no Python.
INSTALL = ("cp", "-R", "/opt/roost-train/.", "/roost/lib")

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
