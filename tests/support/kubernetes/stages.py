"""What KWOK makes of the pods on nodes that exist only as objects.

A pod that is bound runs at once; one with the annotation ``roost.dev/pretend`` ends at once:
``succeeds``, or ``fails`` (exit code 1). One that is deleted is gone as soon as KWOK sees it. With
``roost.dev/pretend: stays`` it keeps Pending, and when it is deleted it never goes: a node that
does not answer. Annotations may be added to a running pod. Nodes bring their own status with them
(``nodes``); one that an autoscaler made says nothing, and becomes ready.
"""

from __future__ import annotations

import json
from typing import Any

#: Nodes with this label are KWOK's, and the annotation that says what a pod on them does.
LABEL = {"type": "kwok"}
PRETEND = "roost.dev/pretend"

_ANNOTATION = f'.metadata.annotations["{PRETEND}"]'
_RUNNING = """
{{ $now := Now }}
phase: Running
hostIP: 127.0.0.1
podIP: 127.0.0.1
startTime: {{ $now | Quote }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""
_READY = """
{{ $now := Now }}
conditions:
- type: Ready
  status: "True"
  reason: Registered
  lastTransitionTime: {{ $now | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
"""
_ENDED = """
{{ $now := Now }}
phase: %(phase)s
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: %(code)d
      reason: %(reason)s
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""


def stages() -> str:
    """KWOK's configuration file: documents of JSON, for that is YAML, too."""
    gone = ("DoesNotExist", ".metadata.deletionTimestamp")
    stays = ("NotIn", _ANNOTATION, "stays")
    succeeded = _ENDED % {"phase": "Succeeded", "code": 0, "reason": "Completed"}
    failed = _ENDED % {"phase": "Failed", "code": 1, "reason": "Error"}
    made = [
        _stage("run", [gone, stays, ("DoesNotExist", ".status.startTime")], _RUNNING),
        _stage("succeed", [gone, _RUNS, ("In", _ANNOTATION, "succeeds")], succeeded),
        _stage("fail", [gone, _RUNS, ("In", _ANNOTATION, "fails")], failed),
        _stage("delete", [stays, ("Exists", ".metadata.deletionTimestamp")], None),
        _stage("join", [("DoesNotExist", _CONDITIONS)], _READY, kind="Node"),
    ]
    return "\n---\n".join(json.dumps(stage) for stage in made)


_RUNS = ("In", ".status.phase", "Running")
_CONDITIONS = ".status.conditions.[].type"


def _stage(
    name: str, conditions: list[tuple[str, ...]], status: str | None, *, kind: str = "Pod"
) -> dict[str, Any]:
    expressions = [_expression(operator, key, *values) for operator, key, *values in conditions]
    what: dict[str, Any] = {"delete": True, "finalizers": {"empty": True}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"{kind.lower()}-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": what if status is None else {"statusTemplate": status},
        },
    }


def _expression(operator: str, key: str, *values: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": key, "operator": operator}
    return {**expression, "values": list(values)} if values else expression
