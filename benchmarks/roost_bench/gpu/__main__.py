"""``python -m roost_bench.gpu``, or ``python`` and this folder where nothing is installed.

In the second case the packages are taken from the checkout in which this folder lies. The packages
of Roost above ``engines.local.gpu`` are replaced by empty ones, because what they import may be
missing on a machine that has PyTorch and nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_BENCHMARKS = _HERE.parents[1]


def main() -> None:
    """Find the packages, then measure."""
    if not __package__:  # this folder as a program
        sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() != _HERE]
        source = _BENCHMARKS.parent / "src"
        sys.path[:0] = [str(_BENCHMARKS), str(source)]
        for name in ("roost.engines", "roost.engines.local"):
            bare = sys.modules[name] = ModuleType(name)
            bare.__path__ = [str(source.joinpath(*name.split(".")))]
    import_module("roost_bench.gpu.program").main()


if __name__ == "__main__":
    main()
