"""The local engine: real processes, CPU slots or GPUs of this machine.

The engine is loaded when it is used: what guards GPUs (``gpu``) needs the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]


def __getattr__(name: str) -> Any:
    if name != "LocalEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("roost.engines.local.engine").LocalEngine
