"""The ends of logs that outlive their pods, in one ConfigMap for each attempt of a Job.

    worker-0.gz         all that the worker printed
    worker-0.tail.gz    the end of it, where there was more

The Job owns the ConfigMap: it goes with the Job. The operator writes it (``jobs.log_keeper``), and
``roost logs`` reads it where a pod is gone (``gateway.outputs``). How much there can be is bounded:
so many workers and bytes of each fit into an object of the API server even if nothing can be
compressed.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from roost.kubernetes.client.kinds import Object

#: Workers of a run whose logs are kept, bytes of each, and attempts of a Job.
MOST_WORKERS, MOST_BYTES, MOST_ATTEMPTS = 8, 64 << 10, 3
_KEY = re.compile(r"(?P<worker>.+?-(?P<number>\d{1,9}))(?P<tail>\.tail)?\.gz")
_GZIP = zlib.MAX_WBITS | 16


class LogEnd(NamedTuple):
    """The output of a worker; ``is_whole``: all of it, not its end alone."""

    text: bytes
    is_whole: bool

    def bounded(self) -> LogEnd:
        """As much of its end as is kept, from the beginning of a line on."""
        if len(self.text) <= MOST_BYTES:
            return self
        text = self.text[-MOST_BYTES:]
        return LogEnd(text[text.find(b"\n") + 1 :], is_whole=False)


def kept_name(job: str, attempt: int) -> str:
    """What the ConfigMap with the logs of an attempt is called."""
    return f"{job}-{attempt}-log"


def encode_logs(logs: Mapping[str, LogEnd]) -> dict[str, str]:
    """The ``binaryData`` of a ConfigMap with logs, given by worker; the first ones count."""
    kept = list(logs.items())[:MOST_WORKERS]
    return dict(_encoded(worker, log.bounded()) for worker, log in kept)


def decode_logs(found: Object) -> dict[str, LogEnd]:
    """The logs in a ConfigMap, main workers first; what makes no sense is left out."""
    logs: dict[tuple[bool, str, int], tuple[str, LogEnd]] = {}
    for key, value in (found.get("binaryData") or {}).items():
        named = _KEY.fullmatch(key)
        text = _decoded(value) if named is not None else None
        if named is None or text is None:
            continue
        worker, number = named["worker"], int(named["number"])
        role = worker.rpartition("-")[0]
        logs[role != "worker", role, number] = worker, LogEnd(text, not named["tail"])
    return dict(logs[place] for place in sorted(logs))


def _encoded(worker: str, log: LogEnd) -> tuple[str, str]:
    packed = gzip.compress(log.text, mtime=0)
    key = f"{worker}.gz" if log.is_whole else f"{worker}.tail.gz"
    return key, base64.b64encode(packed).decode()


def _decoded(value: object) -> bytes | None:
    # People can write ConfigMaps, too: whatever is packed there, no more than so much comes out.
    try:
        packed = base64.b64decode(str(value), validate=True)
        return zlib.decompressobj(_GZIP).decompress(packed, MOST_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return None
