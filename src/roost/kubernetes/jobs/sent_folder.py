"""The folder that a job was sent with, in its pods: parcels in, the work folder out.

The kubelet puts the parcels (``objects.folder_parcels``) into a volume. An init container with the
job's own image unpacks them into the work folder: so the files belong to the account that the job
runs under, whatever it is. All it needs of the image is a Python.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import resources

from roost.jobfile.model import JobFile
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.containers import contained, literal

CONTAINER = "roost-folder"
#: The key of a run's config map that has the program.
SCRIPT = "unpack.py"

_PARCELS = "/roost/folder"
#: How the runtimes of containers say that there is no such program.
_NO_PROGRAM = (126, 127, 128)


@functools.cache
def script() -> str:
    """The program that unpacks."""
    return resources.files(__package__).joinpath("unpack_folder.py").read_text(encoding="utf-8")


def parcels_volume(parcels: Iterable[str]) -> Object:
    """All parcels in one folder: their keys are unlike, or the same content."""
    sources = [{"configMap": {"name": name}} for name in parcels]
    return {"name": CONTAINER, "projected": {"sources": sources}}


def unpacker(file: JobFile, needs: Object, more: Object) -> Object:
    """The init container; ``needs`` are its resources, ``more`` what else containers are told."""
    sent = file.program().sent
    python = file.python or "python3"
    places = {"work": "/roost/work", "config": "/roost/config", "folder": _PARCELS}
    return {
        "name": CONTAINER,
        "image": file.image,
        **more,
        "command": [
            *(literal(python), "-I", f"{places['config']}/{SCRIPT}", _PARCELS, places["work"], sent)
        ],
        "resources": needs,
        "securityContext": contained(),
        # What it says of its failure becomes the job's.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": f"roost-{name}", "mountPath": path} for name, path in places.items()
        ],
    }


def why_not_unpacked(status: Object) -> str:
    """What was wrong, by the status of a pod; empty if nothing was."""
    for one in status.get("initContainerStatuses") or ():
        ended: Object = (one.get("state") or {}).get("terminated") or {}
        if one.get("name") != CONTAINER or not ended.get("exitCode"):
            continue
        said = str(ended.get("message") or "").strip()
        if ended["exitCode"] in _NO_PROGRAM:
            return (
                "the image has no python3, which unpacks the folder that was sent: name its "
                "interpreter (python: /path), or send no folder (roost submit --no-send)"
                + (f" [{said}]" if said else "")
            )
        return said or f"the folder that was sent was not unpacked (exit {ended['exitCode']})"
    return ""
