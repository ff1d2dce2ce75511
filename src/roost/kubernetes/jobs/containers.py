"""Parts of the containers of a job: what they are told, and what they may not do."""

from __future__ import annotations

from roost.core.allocation import Seat
from roost.core.spec import WHOLE, Qos, Resources, Way
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.plans import encode_gpus

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


def device_variables(seat: Seat) -> dict[str, str]:
    """Whole GPUs are the device plugin's; of a shared one, or of none, a container is told.

    An image that was made for GPUs would see all of the node's otherwise.
    """
    if not seat.gpus:
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    if seat.share_milli >= WHOLE:
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
    """A variable whose value is in a Secret."""
    return {
        "name": variable,
        "valueFrom": {"secretKeyRef": {"name": secret, "key": key}},
    }


def literal(text: str) -> str:
    """A text that means itself in a pod: Kubernetes would expand ``$(NAME)``, and halve ``$$``."""
    return text.replace("$", "$$")
