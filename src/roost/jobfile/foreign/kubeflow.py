"""Kubeflow's training jobs: PyTorchJob, TFJob and MPIJob of v1, TrainJob of v2.

A PyTorchJob's master and workers become one group of workers. A TFJob's chief, parameter servers
and evaluator become roles. An MPIJob's launcher becomes the one worker, with the devices of all of
its workers on one machine. The environment of the first container becomes that of the job.
"""

from __future__ import annotations

from typing import NamedTuple

from roost.jobfile.foreign import pods
from roost.jobfile.foreign.conversion import Conversion, ForeignFields
from roost.jobfile.foreign.pods import ForeignContainer
from roost.jobfile.yaml import YamlNode

KINDS = ("PyTorchJob", "TFJob", "MPIJob", "TrainJob")
_MAX_RETRIES = 100


class _Replica(NamedTuple):
    """A group of equal pods."""

    pods: int
    line: int
    container: ForeignContainer


def convert(root: YamlNode) -> Conversion:
    """A training job as a job file."""
    out = Conversion()
    top = out.read(root)
    kind = top.text("kind")
    pods.put_metadata(top, out)
    spec = top.part("spec")
    _put_policy(spec.part("runPolicy"), out)
    _put_policy(spec, out)
    match kind:
        case "PyTorchJob":
            _put_pytorch(spec, out)
        case "TFJob":
            _put_tensorflow(spec, out)
        case "MPIJob":
            _put_mpi(spec, out)
        case _:
            _put_train(spec, out)
    return out.finish()


def _put_pytorch(spec: ForeignFields, out: Conversion) -> None:
    replicas = _replicas(spec, "pytorchReplicaSpecs", out)
    master, worker = replicas.pop("Master", None), replicas.pop("Worker", None)
    main = worker or master
    if main is None or replicas:
        raise spec.fault("pytorchReplicaSpecs", "Master and Worker")
    out.put("kind", "pytorch")
    pods.put_container(main.container, "", out)
    others = main.pods
    if master and worker:
        if master.container.task == worker.container.task:
            others += master.pods
            if master.container.resources != worker.container.resources:
                out.note(master.line, "the master gets the resources of a worker")
        else:
            out.put("roles.master.workers", master.pods, master.line)
            pods.put_container(master.container, "roles.master.", out)
            out.note(master.line, "the master runs another command: it becomes a role of its own")
    out.put("workers", others, main.line)
    _put_elastic(spec.part("elasticPolicy"), others - main.pods, out)


def _put_elastic(policy: ForeignFields, masters: int, out: Conversion) -> None:
    low, high = policy.whole("minReplicas", 1), policy.whole("maxReplicas", 1)
    if low is None and high is None:
        return
    low = low or 1
    out.put("workers", f"{low + masters}..{max(low, high or low) + masters}", policy.line)
    if (restarts := policy.whole("maxRestarts")) is not None:
        out.put("retry", min(restarts, _MAX_RETRIES), policy.line_of("maxRestarts"))


def _put_tensorflow(spec: ForeignFields, out: Conversion) -> None:
    replicas = _replicas(spec, "tfReplicaSpecs", out)
    order = ("Worker", "Chief", "Master", "PS", "Evaluator")
    main = next((name for name in order if name in replicas), None)
    if main is None or set(replicas) - set(order):
        raise spec.fault("tfReplicaSpecs", "Chief, PS, Worker and Evaluator")
    out.put("kind", "tensorflow")
    for name, replica in replicas.items():
        role = {"Master": "chief"}.get(name, name.lower())
        prefix = "" if name == main else f"roles.{role}."
        out.put(f"{prefix}workers", replica.pods, replica.line)
        pods.put_container(replica.container, prefix, out)


def _put_mpi(spec: ForeignFields, out: Conversion) -> None:
    specs = spec.part("mpiReplicaSpecs")
    launcher, worker = specs.part("Launcher"), specs.part("Worker")
    if not launcher.names():
        raise specs.fault("Launcher", "a launcher")
    first = _replica(launcher, out)
    count = worker.whole("replicas", 1) or 1
    spec.drop("slotsPerWorker")
    _put_restarts(worker, out)
    resources = _worker_resources(worker)
    out.put("kind", "mpi")
    out.put("workers", 1, first.line)
    pods.put_container(first.container, "", out)
    out.put("resources", pods.times(resources, count), worker.line)
    out.note(
        first.line,
        f"the launcher runs with the devices of all {count} workers on one machine;"
        " its mpirun must be installed there",
    )


def _worker_resources(worker: ForeignFields) -> dict[str, object]:
    containers = worker.part("template").part("spec").parts("containers")
    if not containers:
        return {"gpu": 0}
    # Workers only wait to be called; the launcher has the command.
    containers[0].drop("name", "image", "imagePullPolicy", "command", "args", "env")
    return pods.read_resources(containers[0].part("resources"))


def _put_train(spec: ForeignFields, out: Conversion) -> None:
    trainer = spec.part("trainer")
    if not trainer.names():
        raise spec.fault("trainer", "a trainer with a command; that of the runtime is not known")
    nodes = trainer.whole("numNodes", 1)
    line = trainer.line_of("numNodes")
    container = pods.read_container(trainer, out, "resourcesPerNode")
    runtime = spec.part("runtimeRef")
    name = runtime.text("name")
    runtime.drop("kind", "apiGroup")
    out.put("kind", "mpi" if "mpi" in name else "pytorch" if "torch" in name else "task")
    out.put("workers", nodes or 1, line)
    pods.put_container(container, "", out)
    if name:
        out.note(runtime.line, f"what the runtime {name[:80]!r} adds is not known here")


def _replicas(spec: ForeignFields, key: str, out: Conversion) -> dict[str, _Replica]:
    specs = spec.part(key)
    return {name: _replica(specs.part(name), out) for name in specs.names()}


def _replica(fields: ForeignFields, out: Conversion) -> _Replica:
    count = fields.whole("replicas", 1) or 1
    _put_restarts(fields, out)
    return _Replica(count, fields.line, pods.read_template(fields, out))


def _put_restarts(fields: ForeignFields, out: Conversion) -> None:
    policy, line = fields.text("restartPolicy"), fields.line_of("restartPolicy")
    if policy == "Never" and "retry" not in out.job:
        out.put("retry", 0, line)
    elif policy == "ExitCode":
        out.note(line, "restartPolicy ExitCode: Roost decides by what happened whether to retry")


def _put_policy(policy: ForeignFields, out: Conversion) -> None:
    """How long, how often and in which queue; v2 says it in the spec itself."""
    if seconds := policy.whole("activeDeadlineSeconds"):
        out.put("max_duration", f"{seconds}s", policy.line_of("activeDeadlineSeconds"))
    if (retries := policy.whole("backoffLimit")) is not None:
        out.put("retry", min(retries, _MAX_RETRIES), policy.line_of("backoffLimit"))
    scheduling = policy.part("schedulingPolicy")
    if queue := scheduling.text("queue"):
        out.put("queue", queue, scheduling.line_of("queue"))
    if policy.truth("suspend"):
        out.note(policy.line_of("suspend"), "suspend: the job is submitted to run; suspend it then")
