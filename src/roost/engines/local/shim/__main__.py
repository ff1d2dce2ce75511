"""Read the order, and see it through.

Run as ``python -I -S`` and this file. The modules are imported from here as a package of their own,
so that they come compiled and nothing of Roost is loaded.
"""

from __future__ import annotations

import os
import sys

_FIRST_FREE = 6


def main() -> None:
    """Become the parent of a run."""
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    from shim import gang, hints, light, spawn  # type: ignore[import-not-found]  # noqa: PLC0415

    del sys.path[0]
    os.closerange(_FIRST_FREE, 1 << 20)
    with open(0, "rb", closefd=False) as order_file:
        order = light.loads(order_file.read().decode())
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    lock, folder, home = 3, 4, 5
    for fd in (0, 1, 2, lock, folder, home):
        os.set_inheritable(fd, False)  # noqa: FBT003 - its only parameter
    order["pid"] = os.getpid()
    spawn.adopt_orphans()
    gang.Gang(order, folder, hints.Hints(order, folder, home)).run()


if __name__ == "__main__":
    main()
