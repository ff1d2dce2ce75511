"""How much memory of this machine's GPUs is in use, and whether it came back."""

from __future__ import annotations

import subprocess
import time

from roost.errors import Fatal

_QUESTION = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
#: The driver gives memory back a moment after its process has ended, and keeps a little.
_BACK_S, _KEEPS_MIB = 30.0, 64


def used_mib() -> list[int]:
    """MiB in use on each GPU; raises Fatal where there is none."""
    try:
        told = subprocess.run(_QUESTION, capture_output=True, text=True, check=True)  # noqa: S603 - fixed
    except (OSError, subprocess.CalledProcessError) as error:
        raise Fatal(f"there is no GPU here: {error}") from None
    return [int(line) for line in told.stdout.split()]


def kept(before: list[int]) -> list[str]:
    """GPUs on which more is in use than before, after a while."""
    ends = time.monotonic() + _BACK_S
    while True:
        now = used_mib()
        found = [
            f"GPU {number} holds {is_now} MiB, and held {was} MiB before"
            for number, (was, is_now) in enumerate(zip(before, now, strict=True))
            if is_now > was + _KEEPS_MIB
        ]
        if not found or time.monotonic() > ends:
            return found
        time.sleep(0.5)
