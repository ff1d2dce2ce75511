"""The Python SDK: the same nouns and verbs as the command line, over REST.

``Client`` and ``AsyncClient`` talk to a server, ``job`` makes a function submittable, handles wait,
follow logs and give results. Names are loaded when they are used: a job that runs a submitted
function (``roost.client.call``) starts without an HTTP library. This package knows the REST API
and the job file, and nothing of what is behind them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.client.clients import AsyncClient, Client, submit
    from roost.client.errors import (
        CertificateRefused,
        NoServer,
        RemoteError,
        RequestRefused,
        Unauthenticated,
    )
    from roost.client.function import Function, job
    from roost.client.handles import AsyncJobHandle, JobHandle
    from roost.client.views import (
        EventView,
        JobView,
        Page,
        SnapshotView,
        UsageRowView,
        UsageView,
    )

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "CertificateRefused",
    "Client",
    "EventView",
    "Function",
    "JobHandle",
    "JobView",
    "NoServer",
    "Page",
    "RemoteError",
    "RequestRefused",
    "SnapshotView",
    "Unauthenticated",
    "UsageRowView",
    "UsageView",
    "job",
    "submit",
]

_HOMES = {
    "clients": ("AsyncClient", "Client", "submit"),
    "errors": (
        *("CertificateRefused", "NoServer"),
        *("RequestRefused", "RemoteError", "Unauthenticated"),
    ),
    "function": ("Function", "job"),
    "handles": ("AsyncJobHandle", "JobHandle"),
    "views": ("EventView", "JobView", "Page", "SnapshotView", "UsageRowView", "UsageView"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"roost.client.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
