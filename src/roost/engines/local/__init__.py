"""The local engine: real processes, CPU slots or GPUs of this machine."""

from roost.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
