"""Roost, a deep-learning cluster manager: one scheduling core in three worlds.

What a training script or a notebook needs is here: ``roost.job``, ``roost.submit``,
``roost.Client`` and ``roost.AsyncClient``. They are loaded when they are used.
"""

from __future__ import annotations

# Not that of typing, which takes long to load: every command and every training comes by here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.client import AsyncClient, Client, job, submit

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "__version__", "job", "submit"]


def __getattr__(name: str) -> Any:
    if name not in {"AsyncClient", "Client", "job", "submit"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    # By name: what is below must not seem to depend on what is above.
    return getattr(import_module("roost.client"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
