"""What many short jobs leave on the disk, where only so many are kept."""

from __future__ import annotations

import time
from collections.abc import Iterator

from roost.demo.server import ScratchServer, scratch_server
from roost.errors import Fatal
from roost.files import tree_bytes
from roost_bench.live.command import Figure, Say, Sizes, below
from roost_bench.live.jobs import submit_all
from roost_bench.live.server import client_of

_SLOTS = 4
_ROUNDS = 4
_PATIENCE_S = 300.0
_POLL_S = 0.1
_KIB, _MIB = 1 << 10, 1 << 20


def soak(sizes: Sizes, say: Say) -> Iterator[Figure]:
    """Rounds of jobs that end at once; after each all but a few are forgotten.

    A home that is bounded has after the last round what it had after the second: the first one
    fills the pages of the database that later ones use again.
    """
    after: list[int] = []
    with scratch_server("bench", _SLOTS, policy="backfill") as server:
        server.start()
        job = {"name": "soak", "run": "echo done"}
        for number in range(1, _ROUNDS + 1):
            say(f"round {number} of {_ROUNDS}: {sizes.soaked} jobs, {sizes.kept} kept")
            submit_all(server, [job] * sizes.soaked)
            _await_end(server)
            _prune(server, sizes.kept)
            after.append(tree_bytes(server.home))
        each = tree_bytes(server.home / "runs") / sizes.kept
        server.stop()
    yield below("soak-job", each / _KIB, "KiB", 64)
    yield below("soak-disk", after[-1] / _MIB, "MiB")
    yield below("soak-growth", max(after[-1] - after[1], 0) / sizes.soaked / _KIB, "KiB/job", 8)


def _await_end(server: ScratchServer) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    with client_of(server) as client:
        while client.page(state=["queued", "starting", "running"], limit=1).total:
            if time.monotonic() > deadline:
                raise Fatal(f"the jobs do not end within {_PATIENCE_S:g} s")
            time.sleep(_POLL_S)


def _prune(server: ScratchServer, kept: int) -> None:
    with client_of(server) as client:
        while client.prune(keep_jobs=kept)["more"]:
            pass
        if (left := client.page(limit=1).total) > kept:
            raise Fatal(f"{left} jobs are kept instead of {kept}")
    # Files are removed on another thread, once the jobs are gone from the list.
    deadline = time.monotonic() + _PATIENCE_S
    while any(one.name.startswith(".gone-") for one in (server.home / "runs").iterdir()):
        if time.monotonic() > deadline:
            raise Fatal("the files of forgotten jobs are not removed")
        time.sleep(_POLL_S)
