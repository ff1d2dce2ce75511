"""A function and its arguments as bytes, and what it left, each behind a readable header.

    ROOST1
    {"python": "3.11.7", ...}
    the pickle

The header is JSON, read before anything is unpickled: a job checks its environment by it, and a
client learns from it how a function ended. Unpickling runs code; only the submitter's own job
loads a payload, and only the submitter's client loads its result.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

from roost.errors import InvalidSpec

MAGIC = b"ROOST1\n"
#: As much as the server takes.
LIMIT_BYTES = 10 * 1024 * 1024


class Packed(NamedTuple):
    """A header, and the pickle behind it."""

    header: Mapping[str, Any]
    body: bytes

    def load(self) -> Any:
        """What was pickled; runs its code."""
        return pickle.loads(self.body)  # noqa: S301 - see the module


def pack(header: Mapping[str, Any], body: bytes) -> bytes:
    """Header and pickle as one."""
    return MAGIC + json.dumps(header).encode() + b"\n" + body


def unpack(content: bytes) -> Packed:
    """The two parts again; nothing is unpickled."""
    line, newline, body = content.removeprefix(MAGIC).partition(b"\n")
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not content.startswith(MAGIC) or not newline or not isinstance(header, dict):
        raise InvalidSpec("that is not something a Roost client packed")
    return Packed(header, body)
