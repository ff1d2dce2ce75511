"""Trains with the example trainer, interrupted at random moments, until it is done.

    python nursery.py FOLDER STEPS INTERRUPTIONS SIZES SEED

Everything is imported once and each attempt is a fork, so that fifty of them take seconds. SIZES
are worker counts, such as 1 or 1,2,3, of which each attempt takes one at random. An interruption is
a worker killed, all of them asked to stop, or all of them frozen for a moment. The last line says
how many there were and how many attempts it took.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import roost.train.example.trainer  # noqa: E402, F401 - numpy, after its settings
from roost.train.example import __main__ as example  # noqa: E402 - after its settings


def attempt(folder: Path, steps: int, size: int) -> list[int]:
    """Workers that begin to train; their process ids."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_PORT": str(port)}
            os.environ["ROOST_CHECKPOINT_DIR"] = str(folder)
            status = 1
            try:
                status = example.main(["--size", "4", "--steps", str(steps), "--save-every", "0"])
            finally:
                sys.stdout.flush()
                os._exit(status)
        workers.append(pid)
    return workers


def interrupt(workers: list[int], chance: random.Random) -> None:
    time.sleep(chance.uniform(0.0, 0.06))
    how = chance.choice(("kill", "kill", "stop", "freeze"))
    if how == "freeze":
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.005)
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        interrupt(workers, chance)
        return
    if how == "kill":
        os.kill(chance.choice(workers), signal.SIGKILL)
        time.sleep(chance.uniform(0.0, 0.01))
    for pid in workers:  # as Roost does when one is lost
        os.kill(pid, signal.SIGTERM)


def main() -> None:
    folder, steps, wanted = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sizes, chance = [int(size) for size in sys.argv[4].split(",")], random.Random(sys.argv[5])
    interruptions, attempts, codes = 0, 0, [1]
    while any(codes):
        workers = attempt(folder, steps, chance.choice(sizes))
        attempts += 1
        if interruptions < wanted:
            interrupt(workers, chance)
            interruptions += 1
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
        assert attempts < wanted + 10, codes
    sys.stdout.write(f"{interruptions} {attempts}\n")


main()
