"""Read the order, and see it through.

Run as ``python -I -S`` and this file. The packages above are stood in for by empty ones, so that
the modules come compiled and nothing of Roost is loaded but what they name themselves.
"""

from __future__ import annotations

import os
import sys

#: The first file that does not belong to a shim: lock, folder and home are 3, 4 and 5.
_FIRST_FREE = 6
#: Packages whose own modules would load much that a shim does not need.
_BARE = ("roost", "roost.engines", "roost.engines.local")


def main() -> None:
    """Become the parent of a run."""
    _import_light()
    from roost.engines.local.shim import spawn, status, stdlib_subset, supervisor  # noqa: PLC0415

    # Files of the server that came along would keep its sockets and locks alive.
    os.closerange(_FIRST_FREE, 1 << 20)
    with open(0, "rb", closefd=False) as order_file:
        order = stdlib_subset.loads(order_file.read().decode())
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    lock, folder, home = 3, 4, 5
    # No worker inherits the lock: it is free as soon as this process has ended.
    for fd in (0, 1, 2, lock, folder, home):
        os.set_inheritable(fd, False)  # noqa: FBT003 - its only parameter
    order["pid"] = os.getpid()
    # Before the first fork: no descendant can be missed.
    spawn.adopt_orphans()
    supervisor.Supervisor(order, folder, status.ShimRecords(order, folder, home)).run()


def _import_light() -> None:
    """Let modules be found below packages that are empty here."""
    above = os.path.abspath(__file__).rsplit("/", 5)[0]  # noqa: PTH100 - pathlib is slow to import
    for name in _BARE:
        bare = sys.modules[name] = type(sys)(name)
        bare.__path__ = [f"{above}/{name.replace('.', '/')}"]


if __name__ == "__main__":
    main()
