"""A process of its own: ``python -I -S`` and this folder, then ``daemon``.

It needs the standard library alone. The packages above this one are stood in for by empty ones,
so that nothing else of Roost is loaded: such a process starts at once, and an update of Roost does
not reach into one that runs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent


def main() -> None:
    """Be what the first argument says."""
    sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() != _HERE]
    sys.path.insert(0, str(_HERE.parents[3]))
    for depth, name in ((2, "roost.engines"), (1, "roost.engines.local")):
        bare = sys.modules[name] = ModuleType(name)
        bare.__path__ = [str(_HERE.parents[depth - 1])]
    what = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if what != "daemon":
        sys.exit("usage: python gpu daemon HOME")
    import_module("roost.engines.local.gpu.sharing_daemon").main()


if __name__ == "__main__":
    main()
