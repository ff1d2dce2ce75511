"""What the operator tells of jobs and queues, as the API server keeps it."""

from __future__ import annotations

from roost.core import JobState
from roost.kubernetes.crds.fields import Schema, listed, text, whole

_MANY = 2**31 - 1
_CONDITION: Schema = {
    "type": "object",
    "description": "One thing that is so, or not.",
    "required": ["type", "status"],
    "properties": {
        "type": text(316, "What."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Is it?"},
        "reason": text(1_024, "Why, in a word for programs."),
        "message": text(32_768, "Why, in a sentence for people."),
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "Since when.",
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "Of which generation of the object.",
        },
    },
}


def job_status() -> Schema:
    """The schema of a Job's status; more than is listed is kept, for programs."""
    return _status(
        "What became of the job.",
        state={
            "type": "string",
            "enum": [state.value for state in JobState],
            "description": "Where it is in its life.",
        },
        reason=text(32_768, "Why it waits or ended, in a sentence."),
        cause=text(256, "The same in a word."),
        workers={
            "type": "object",
            "description": "How many workers it has, and may have.",
            "properties": {
                "now": whole(0, _MANY, "At this moment."),
                "min": whole(0, _MANY, "At least."),
                "max": whole(0, _MANY, "At most."),
            },
        },
        replicas=whole(0, _MANY, "The workers that it has, for kubectl scale."),
        selector=text(1_024, "The labels of its workers' pods, for kubectl scale."),
        gpus={"type": "number", "minimum": 0, "description": "The GPUs that it holds."},
        attempt=whole(0, _MANY, "How often it was started."),
        failures=whole(0, _MANY, "How often it failed."),
        nodes=listed(text(253, "A node."), 10_000, "Where it runs."),
        progress={"type": "number", "description": "How far it is, from 0 to 1.", "nullable": True},
        view={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "Everything, as the REST API shows it.",
        },
    )


def queue_status() -> Schema:
    """The schema of the status of a Queue and of a ClusterQueue."""
    return _status(
        "What it holds, and who waits.",
        used={"type": "number", "minimum": 0, "description": "GPUs that its jobs hold."},
        waiting=whole(0, _MANY, "Jobs that wait in it."),
        running=whole(0, _MANY, "Jobs that run from it."),
    )


def _status(description: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "Of which generation of the object this tells.",
            },
            **properties,
            "conditions": {
                "type": "array",
                "items": _CONDITION,
                "maxItems": 32,
                "description": "What is so, each with a reason.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }
