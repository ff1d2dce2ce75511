"""How long a server says nothing: a process of its own asks ``/healthz`` again and again.

In a process of its own, because a client that is busy would take its own pauses for the server's.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from roost.errors import Fatal

_EVERY_S = 0.01
_PATIENCE_S = 300.0


class LongestSilence:
    """The longest time, in milliseconds, that an answer took; known once it was looked for."""

    ms = 0.0


@contextmanager
def listening(url: str) -> Iterator[LongestSilence]:
    """Look for the longest silence of a server while the block runs."""
    found = LongestSilence()
    command = [sys.executable, "-m", __name__, url]
    with subprocess.Popen(  # noqa: S603 - our own
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as prober:
        told, heard = prober.stdin, prober.stdout
        if told is None or heard is None:
            raise Fatal("the process that listens has no pipes")
        heard.readline()  # it has asked once
        try:
            yield found
        finally:
            told.close()
            found.ms = 1000 * float(heard.read() or "nan")


def _probe(url: str) -> None:
    """Ask until standard input ends; print the longest time that an answer took."""
    import select

    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=_PATIENCE_S)
    longest, first = 0.0, True
    while first or not select.select([sys.stdin], [], [], _EVERY_S)[0]:
        began = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        if first:
            print("there", flush=True)  # noqa: T201 - for the other process
        else:
            longest = max(longest, time.perf_counter() - began)
        first = False
    print(longest)  # noqa: T201 - as above


if __name__ == "__main__":
    _probe(sys.argv[1])
