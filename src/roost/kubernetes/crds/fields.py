"""How each field of a job file is written in a Job object: its type, its bounds, its sentence.

A custom resource knows one type per field, or an integer beside a text, and a job file is looser:
``workers`` may be a mapping, ``retry`` a number alone. Here stands, field by field, the one
spelling that an object has. It is always a spelling that a job file may have, too, so that no
second reader is needed. Rules between fields are in ``rules``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from roost.jobfile import fields, grammar

Schema = dict[str, Any]

#: The longest name of a job: "<job>-<attempt>-<role>-<index>" is a pod's, and has at most 63.
MAX_NAME: Final = 40
#: The most ConfigMaps that a folder which was sent can be in.
MAX_PARCELS: Final = 96
_MAX_SHORT: Final = 64
_MAX_ROLES: Final = 20
_MAX_ENV: Final = 1_000
_MAX_LABELS: Final = 100
_MAX_KINDS: Final = 32


def anchored(pattern: re.Pattern[str]) -> str:
    r"""A pattern of the job file for the API server, which knows ``$`` and not ``\Z``."""
    return f"^(?:{pattern.pattern})$".replace(r"\Z", "$")


def text(most: int, description: str, **more: Any) -> Schema:
    """A bounded text."""
    return {"type": "string", "maxLength": most, "description": description, **more}


def whole(low: int, high: int, description: str, **more: Any) -> Schema:
    """A bounded whole number."""
    return {
        "type": "integer",
        "format": "int32",
        "minimum": low,
        "maximum": high,
        "description": description,
        **more,
    }


def listed(items: Schema, most: int, description: str, **more: Any) -> Schema:
    """A bounded list whose order counts."""
    return {
        "type": "array",
        "items": items,
        "maxItems": most,
        "description": description,
        "x-kubernetes-list-type": "atomic",
        **more,
    }


def either(pattern: str, description: str, expected: str, **more: Any) -> Schema:
    """A whole number, or a short text of that pattern; anything else is told what was expected."""
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": _MAX_SHORT,
        "description": description,
        "x-kubernetes-validations": [
            {
                "rule": f"type(self) != string || string(self).matches('{_quoted(pattern)}')",
                "message": f"expected {expected}",
            }
        ],
        **more,
    }


def short(pattern: str, description: str, expected: str) -> Schema:
    """A short text of that pattern; anything else is told what was expected."""
    return {
        **text(_MAX_SHORT, description),
        "x-kubernetes-validations": [
            {"rule": f"self.matches('{_quoted(pattern)}')", "message": f"expected {expected}"}
        ],
    }


def _quoted(pattern: str) -> str:
    return pattern.replace("\\", "\\\\")


_NUMBER = r"[0-9]+(\.[0-9]+)?"
_UNIT = r"([KMGTPkmgtp][Ii]?[Bb]?|[Ii]?[Bb])"
_SIZE = rf"{_NUMBER} *{_UNIT}"
_SIZES = rf"{_SIZE}(\.\.({_SIZE})?)?"
_KIND = r"[A-Za-z][A-Za-z0-9 ._/-]{0,62}"
#: At least one GPU, or a share of one above nothing.
_SOME = r"(0\.[0-9]*[1-9][0-9]*|[1-9][0-9]{0,3}(\.\.[1-9][0-9]{0,3})?)"
_COUNT = rf"(0|{_SOME})"
_DURATION = rf"^({_NUMBER}|({_NUMBER} *[smhdw] *)+)$"


def duration(description: str, **more: Any) -> Schema:
    """Seconds, or a text such as 15m."""
    such = "90 (seconds), 90s, 15m, 1h30m or 2d"
    bounds = {"minimum": 0, "maximum": int(grammar.MAX_SECONDS), **more}
    return either(
        _DURATION, f"{description} Such as {such}.", f"a duration such as {such}", **bounds
    )


def size(description: str, *, ranges: bool = False) -> Schema:
    """Bytes with a unit."""
    such = "24GB, 16Gi or 24GB.." if ranges else "24GB or 16Gi"
    pattern = f"^{_SIZES if ranges else _SIZE}$"
    return short(pattern, f"{description} Such as {such}.", f"a size with its unit, such as {such}")


def gpus(description: str) -> Schema:
    """Devices of a worker as a plain number."""
    return {
        "type": "number",
        "minimum": 0,
        "maximum": grammar.MAX_GPUS,
        "description": description,
        "x-kubernetes-validations": [
            {
                "rule": "self >= 1.0 ? self == double(int(self)) : self == 0.0 || self >= 0.001",
                "message": "whole GPUs, or a share of one between 0.001 and 0.999",
            }
        ],
    }


#: The fields of ``resources``, of the job and of each role.
RESOURCES: dict[str, Schema] = {
    "gpu": either(
        rf"^({_COUNT}|{_SIZES}(:{_COUNT})?|{_KIND}(:{_SIZES})?(:{_SOME})?)$",
        "GPUs of each worker with their kind or memory, such as H100:2, A100:0.5 or 40GB:1; a"
        " plain number is simpler as gpus.",
        "GPUs such as 2, H100:2, A100:0.5 or 40GB:1; whole ones, or a share of one",
        minimum=0,
        maximum=grammar.MAX_GPUS,
    ),
    "any_of": listed(
        short(
            rf"^{_KIND}(:{_SIZES})?(:{_SOME})?$",
            "A kind and a count.",
            "a kind and a count such as A100:1",
        ),
        _MAX_KINDS,
        "GPU kinds that will do, with the same count each, such as [A100:1, H100:1].",
        minItems=1,
    ),
    "cpu": either(
        rf"^{_NUMBER}(\.\.({_NUMBER})?)?$",
        'CPUs of each worker, such as 8, "0.5" or 8.. for at least 8.',
        'CPUs such as 8, "0.5" or 8..',
        minimum=1,
        maximum=grammar.MAX_CPUS,
    ),
    "memory": size("Memory of each worker.", ranges=True),
    "shm_size": size("Shared memory of each worker, mounted at /dev/shm."),
}

_ENV = text(fields.MAX_ARGUMENT, "Its value.", nullable=True)
_LABEL = text(fields.MAX_ARGUMENT, "Its value.")


def _mapping(values: Schema, most: int, description: str) -> Schema:
    return {
        "type": "object",
        "additionalProperties": values,
        "maxProperties": most,
        "description": description,
    }


def _count(description: str) -> Schema:
    return whole(1, grammar.MAX_COUNT, description)


def _amount(description: str) -> Schema:
    return {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": grammar.MAX_COUNT,
        "description": description,
    }


def _command(description: str) -> Schema:
    argument = text(fields.MAX_ARGUMENT, "An argument.")
    return listed(argument, fields.MAX_ITEMS, description, minItems=1)


#: What the job file's model does not say by itself, by dotted path.
OWN: dict[str, Schema] = {
    "kind": {"description": "For people; the environment is the same for all kinds."},
    "python": text(
        *(fields.MAX_LINE, "The interpreter, as a path in the image; its folder leads PATH."),
        minLength=1,
    ),
    "image": text(
        *(fields.MAX_LINE, "The container image of the workers."), minLength=1, pattern=r"^\S+$"
    ),
    "workdir": {"description": "The folder to run in, or a repository to check out."},
    "workdir.path": text(fields.MAX_LINE, "A folder in the image or a volume.", minLength=1),
    "workdir.git": text(
        *(1_400, "The address of a repository to check out; no password in it."),
        pattern=anchored(fields.URL),
    ),
    "workdir.ref": text(
        *(200, "A branch, tag or commit of it."),
        pattern=anchored(fields.REF),
    ),
    "workdir.sent": text(
        *(64, "The SHA-256 of a folder that was sent; roost submit writes it."),
        pattern=anchored(fields.DIGEST),
    ),
    "workdir.parcels": listed(
        text(63, "A ConfigMap.", pattern=r"^roost-folder-[0-9a-f]{20}$"),
        MAX_PARCELS,
        "The ConfigMaps of this namespace that have its files.",
        minItems=1,
    ),
    "setup": text(fields.MAX_SCRIPT, "A script that runs once in each pod before the worker."),
    "run": text(fields.MAX_SCRIPT, "A script for bash -eo pipefail, in every worker."),
    "command": _command("A program with its arguments, without a shell."),
    "env": _mapping(_ENV, _MAX_ENV, "Variables of the workers; values are texts."),
    "secrets": listed(
        text(128, "A variable.", pattern=anchored(fields.VARIABLE)),
        100,
        "Names of variables whose values are in the Secret that secrets_from names.",
    ),
    "mounts": listed(
        text(63, "A claim.", pattern=anchored(fields.MOUNT)),
        100,
        "PersistentVolumeClaims of this namespace, each mounted at /mnt/<name>.",
    ),
    "workers": either(
        r"^[0-9]{1,5}(\.\.[0-9]{1,5})?$",
        "How many workers: a number, or a range such as 1..4 for an elastic job.",
        "a number of workers such as 4, or a range such as 1..4",
        minimum=1,
        maximum=grammar.MAX_WORKERS,
    ),
    "sharing.mem": size("The most GPU memory of a worker; otherwise in proportion."),
    "sharing.cores": either(
        r"^([1-9][0-9]?|100)%?$",
        "The percentage of one GPU, if gpus does not say.",
        "a percentage from 1 to 100",
        minimum=1,
        maximum=100,
    ),
    "sharing.way": {"description": "By turns (temporal), or side by side (spatial)."},
    "sharing.policy": {"description": "What the share means while neighbours are idle or busy."},
    "roles": {"maxProperties": _MAX_ROLES, "description": "Further workers, by role."},
    "roles.*.workers": either(
        r"^[0-9]{1,3}(\.\.[0-9]{1,3})?$",
        "How many workers the role has: a number, or a range such as 1..4.",
        "a number of workers such as 2, or a range such as 1..4",
        minimum=1,
        maximum=grammar.MAX_ROLE,
    ),
    "roles.*.run": text(fields.MAX_SCRIPT, "What they run; otherwise what the job runs."),
    "roles.*.command": _command("What they run, without a shell."),
    **{f"resources.{name}": schema for name, schema in RESOURCES.items()},
    **{f"roles.*.resources.{name}": schema for name, schema in RESOURCES.items()},
    "training": {"description": "How the job learns, as far as is known beforehand."},
    "training.batch": _count("Samples of a step, of all workers, for which it was tuned."),
    "training.batch_max": _count("The largest batch that it may choose by itself."),
    "training.epochs": _amount("Passes over the data in all."),
    "training.steps": _count("Steps in all, at that batch."),
    "training.local_min": _count("The fewest samples that a GPU takes at once."),
    "training.local_max": _mapping(
        _count("Samples."), _MAX_KINDS, "The most samples that a GPU takes at once, by its kind."
    ),
    "training.alone": _mapping(
        _amount("Samples per second."), _MAX_KINDS, "What one GPU of a kind does by itself."
    ),
    "training.pipeline": _count("Stages over which the GPUs of a worker are split."),
    "training.micro": _count("Samples of a micro-batch of the pipeline."),
    "rates": _mapping(
        _amount("Work per second."), _MAX_KINDS, "How fast it is with its least workers, by kind."
    ),
    "within": {"description": "All workers inside one socket, node, switch, block or zone."},
    "queue": text(
        *(63, "The Queue of this namespace in which the job waits."),
        pattern=anchored(fields.QUEUE),
    ),
    "cell": text(
        *(fields.MAX_LINE, "A cell that its queue is promised by name, and in which it has to be."),
        minLength=1,
    ),
    "guest": {"description": "Whether it runs only on what is left, and makes room for others."},
    "priority": whole(0, 100, "Higher goes first within a queue."),
    "max_duration": duration("The job is stopped after that."),
    "keep": duration("How long a server keeps the job when it is over; not used on a cluster."),
    "run_time": duration("An estimate of how long it runs with its least workers."),
    "min_run": duration("It is not displaced earlier."),
    "preemptible": {"description": "Whether it may be displaced at all."},
    "retry": {"description": "When a failed job is tried again."},
    "retry.max": whole(0, 100, "How often."),
    "retry.on_exit_codes": listed(
        whole(1, fields.MAX_CODE, "An exit code."), 255, "After which exit codes; any if empty."
    ),
    "retry.delay": duration("After which pause."),
    "checkpoint": {"description": "Where and how often it saves itself, and how it is stopped."},
    "checkpoint.path": text(
        *(fields.MAX_LINE, "A folder of a volume, as ROOST_CHECKPOINT_DIR."), minLength=1
    ),
    "checkpoint.every": duration("How often it saves itself."),
    "checkpoint.signal": {
        "type": "string",
        "enum": list(fields.SIGNALS),
        "description": "What tells it to stop.",
    },
    "checkpoint.grace": duration("How long it then has, at most an hour.", maximum=3_600),
    "checkpoint.restart": duration("What a restart costs."),
    "suspend": {"description": "What a suspended job does: freeze where it is, or stop."},
    "labels": _mapping(_LABEL, _MAX_LABELS, "For finding jobs."),
    "application": text(
        *(fields.MAX_LINE, "Jobs of one application take similar times; otherwise the name."),
        minLength=1,
    ),
    "ports": listed(either("^.+$", "A port.", "a port"), 100, "Ports of each worker."),
    "notify": listed(text(fields.MAX_LINE, "Somebody.", minLength=1), 100, "Kept, not honoured."),
}
