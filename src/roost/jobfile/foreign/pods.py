"""The part of Kubernetes that jobs have in common: metadata, pod templates, containers, quantities.

The first container is the job; its command, environment and limits are converted. Whatever else a
pod says is noted.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Any, NamedTuple

from roost.jobfile import grammar, yaml
from roost.jobfile.fields import QUEUE, RESERVED, VARIABLE
from roost.jobfile.foreign.conversion import Conversion, ForeignFields, named
from roost.jobfile.yaml import YamlNode

GPU = "nvidia.com/gpu"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)(m|[kKMGTP]i?)?\Z")
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class ForeignContainer(NamedTuple):
    """The needs of a container, in the words of a job file."""

    line: int
    task: dict[str, Any]
    image: str
    workdir: str
    resources: dict[str, Any]


def put_metadata(top: ForeignFields, out: Conversion) -> None:
    """Name and labels; a queue if a label names one."""
    metadata = top.part("metadata")
    given = metadata.text("name") or metadata.text("generateName")
    if given:
        out.put("name", named(given), metadata.line_of("name"))
    if given and named(given) != given:
        out.note(metadata.line_of("name"), f"the name {given[:80]!r} becomes {named(given)!r}")
    labels = metadata.part("labels")
    kept = {key: labels.text(key) for key in labels.names()}
    queue = kept.pop(_QUEUE_LABEL, "")
    if queue and QUEUE.match(queue):
        out.put("queue", queue, labels.line_of(_QUEUE_LABEL))
    if kept:
        out.put("labels", kept, metadata.line_of("labels"))
    top.drop("apiVersion", "kind", "status")


def read_template(replica: ForeignFields, out: Conversion) -> ForeignContainer:
    """The first container of a pod template; its environment joins that of the job."""
    pod = replica.part("template").part("spec")
    containers = pod.parts("containers")
    if not containers:
        raise pod.fault("containers", "at least one container")
    return read_container(containers[0], out)


def read_container(
    fields: ForeignFields, out: Conversion, resources: str = "resources"
) -> ForeignContainer:
    """Read a container: its command, environment and resources."""
    fields.drop("name", "imagePullPolicy")
    arguments = [*fields.texts("command"), *fields.texts("args")]
    line = fields.line_of("command" if "command" in fields else "args")
    if "command" not in fields or not arguments:
        raise fields.fault("command", "a command; that of the image is not known here")
    _put_env(fields, out)
    return ForeignContainer(
        line,
        _task(arguments),
        fields.text("image"),
        fields.text("workingDir"),
        read_resources(fields.part(resources)),
    )


def read_resources(fields: ForeignFields) -> dict[str, Any]:
    """Limits, and requests where there is no limit."""
    limits, requests = fields.part("limits"), fields.part("requests")
    found: dict[str, Any] = {"gpu": 0}
    for key, name in ((GPU, "gpu"), ("cpu", "cpu"), ("memory", "memory")):
        requests.drop(key) if key in limits else limits.drop(key)
        source = limits if key in limits else requests
        if (node := source.take(key)) is not None:
            found[name] = _amount(name, source, key, node)
    return found


def times(resources: dict[str, Any], count: int) -> dict[str, Any]:
    """The resources of several containers together."""
    found = dict(resources)
    found["gpu"] = resources["gpu"] * count
    if "cpu" in found:
        found["cpu"] = resources["cpu"] * count
    if "memory" in found:
        found["memory"] = grammar.write_size(grammar.read_size(resources["memory"]) * count)
    return found


def put_container(container: ForeignContainer, prefix: str, out: Conversion) -> None:
    """Write a container into the job, or into one of its roles."""
    for key, value in container.task.items():
        out.put(f"{prefix}{key}", value, container.line)
    out.put(f"{prefix}resources", dict(container.resources), container.line)
    if prefix:
        return
    if container.image:
        out.put("image", container.image, container.line)
    if container.workdir:
        out.put("workdir", container.workdir, container.line)


def _task(arguments: list[str]) -> dict[str, Any]:
    if not any(_REFERENCE.search(argument) for argument in arguments):
        return {"command": arguments}
    # $(NAME) is filled in by Kubernetes; here by the shell.
    return {"run": f"exec {' '.join(_quoted(argument) for argument in arguments)}"}


def _quoted(argument: str) -> str:
    pieces = enumerate(_REFERENCE.split(argument))  # texts and names in turn
    words = [f'"${{{piece}}}"' if at % 2 else shlex.quote(piece) for at, piece in pieces if piece]
    return "".join(words) or "''"


def _put_env(fields: ForeignFields, out: Conversion) -> None:
    for item in fields.parts("env"):
        name = item.text("name")
        if not VARIABLE.match(name) or name in RESERVED or name.startswith("ROOST_"):
            out.note(item.line, f"the variable {name[:80]!r} is not converted; Roost sets it")
            item.drop(*item.names())
        elif "valueFrom" in item:
            _put_reference(name, item.part("valueFrom"), out)
        else:
            _put_variable(name, item.text("value"), item.line, out)


def _put_variable(name: str, value: str, line: int, out: Conversion) -> None:
    known = out.job.setdefault("env", {})
    if known.get(name, value) != value:
        out.note(line, f"the variable {name} has one value for all roles; the first one is kept")
    if _REFERENCE.search(value):
        out.note(line, f"the variable {name} refers to others; $(...) in it is not filled in")
    known.setdefault(name, value)
    out.lines.setdefault("env", line)


def _put_reference(name: str, source: ForeignFields, out: Conversion) -> None:
    if "secretKeyRef" not in source:
        return  # left, and so noted
    secret = source.part("secretKeyRef")
    secret.drop(*secret.names())
    names = out.job.setdefault("secrets", [])
    if name not in names:
        names.append(name)
        out.note(source.line, f"the secret {name} is not copied; give its value anew")


def _amount(name: str, source: ForeignFields, key: str, node: YamlNode) -> Any:
    text = yaml.plain(node, as_text=True)
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if match is None:
        raise source.fault(key, "a quantity such as 2, 500m or 16Gi", node)
    unit = match[2] or ""
    power = " kMGTP".index(unit[0].replace("K", "k")) if unit and unit != "m" else 0
    number = float(match[1]) * (1024 if unit.endswith("i") else 1000) ** power
    number = number / 1000 if unit == "m" else number
    if name == "memory":
        return grammar.write_size(max(1, math.ceil(number)))
    return int(number) if number == int(number) else number
