"""Alnair's UnifiedJob: a script, and the least and most GPUs it can use.

Horovod and PyTorch kinds get one worker per GPU; a BaseJob is one process that sees all of them.
A job that may be rescheduled is told its checkpoint folder, as Alnair does.
"""

from __future__ import annotations

import shlex

from roost.jobfile.foreign import pods
from roost.jobfile.foreign.conversion import Conversion, ForeignFields
from roost.jobfile.yaml import YamlNode

KIND = "UnifiedJob"
_ONE_PROCESS = "BaseJob"
_ELASTIC = ("EHJob", "EPJob")
_RIGID = ("HJob",)


def convert(root: YamlNode) -> Conversion:
    """A UnifiedJob as a job file."""
    out = Conversion()
    top = out.read(root)
    pods.put_metadata(top, out)
    spec = top.part("spec")
    work = spec.part("jobSpec")
    kind, line = top.text("jobType"), top.line_of("jobType")
    if kind not in (_ONE_PROCESS, *_ELASTIC, *_RIGID):
        raise top.fault("jobType", f"one of {', '.join((_ONE_PROCESS, *_RIGID, *_ELASTIC))}")
    _put_size(kind, spec.part("replicaSpec"), out)
    # The documentation has the flag in jobSpec, the type in spec.
    moves = [fields.truth("reschedulable") for fields in (spec, work)]
    _put_task(work, out, saves=True in moves)
    if False in moves:
        out.put("preemptible", value=False, line=line)
    if kind.endswith("HJob"):
        out.note(line, "horovodrun is not used: each worker is started with RANK and WORLD_SIZE")
    return out.finish()


def _put_size(kind: str, replicas: ForeignFields, out: Conversion) -> None:
    low = max(1, replicas.whole("minReplicas") or 1)
    high = max(low, replicas.whole("maxReplicas") or low)
    replicas.drop("targetReplicas")
    if kind == _ONE_PROCESS:
        out.put("gpus", low if low == high else f"{low}..{high}", replicas.line)
        return
    out.put("kind", "pytorch" if kind == "EPJob" else "task")
    out.put("workers", f"{low}..{high}" if kind in _ELASTIC else low, replicas.line)
    if kind in _RIGID and high > low:
        out.note(replicas.line, "HJob does not grow: minReplicas counts")


def _put_task(work: ForeignFields, out: Conversion, *, saves: bool) -> None:
    arguments, line = work.texts("unifiedArgs"), work.line_of("unifiedArgs")
    if not arguments:
        raise work.fault("unifiedArgs", "a script and its arguments")
    if image := work.text("image"):
        out.put("image", image, work.line_of("image"))
    if not saves:
        out.put("command", ["python", *arguments], line)
        return
    script = shlex.join(["python", *arguments])
    out.put("run", f'exec {script} --checkpoint-dir "$ROOST_CHECKPOINT_DIR"', line)
    out.put("checkpoint", {}, line)
