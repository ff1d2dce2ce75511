"""Logs as a cluster keeps them: what is packed comes out again, and never too much of it."""

from __future__ import annotations

import base64
import gzip
import json
import random

from roost.kubernetes.objects.kept_logs import (
    MOST_BYTES,
    MOST_WORKERS,
    LogEnd,
    decode_logs,
    encode_logs,
)


def test_logs_come_back_as_they_were_main_workers_first() -> None:
    logs = {
        "ps-0": LogEnd(b"serving\n", is_whole=True),
        "worker-10": LogEnd(b"", is_whole=True),
        "worker-2": LogEnd(b"\xff\x00 odd\n", is_whole=False),
    }
    found = decode_logs({"binaryData": encode_logs(logs)})
    assert found == logs
    assert list(found) == ["worker-2", "worker-10", "ps-0"]


def test_of_a_long_log_the_last_whole_lines_are_kept() -> None:
    lines = b"".join(b"step %d\n" % n for n in range(100_000))
    packed = encode_logs({"worker-0": LogEnd(lines, is_whole=True)})
    (log,) = decode_logs({"binaryData": packed}).values()
    assert not log.is_whole
    assert lines.endswith(log.text)
    assert log.text.startswith(b"step ")
    assert MOST_BYTES - 20 < len(log.text) <= MOST_BYTES


def test_the_most_that_is_kept_fits_into_an_object() -> None:
    noise = random.Random(0).randbytes(4 * MOST_BYTES)
    logs = {f"worker-{n}": LogEnd(noise, is_whole=True) for n in range(40)}
    packed = encode_logs(logs)
    assert len(packed) == MOST_WORKERS
    assert len(json.dumps(packed)) < 1 << 20


def test_what_makes_no_sense_is_left_out_and_a_bomb_stays_small() -> None:
    bomb = base64.b64encode(gzip.compress(bytes(64 << 20))).decode()
    data = {
        "worker-0.gz": bomb,
        "worker-1.gz": "?",
        "worker-2.gz": base64.b64encode(b"not packed").decode(),
        "worker-3.gz": None,
        "notes": bomb,
    }
    found = decode_logs({"binaryData": data})
    assert list(found) == ["worker-0"]
    assert len(found["worker-0"].text) == MOST_BYTES
    assert decode_logs({}) == {}
