"""Contents on their way to a server: for each part a line that says what it is, then its bytes.

<sha256> <offset> <length> <size> (end of line) <bytes>
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from roost.errors import InvalidSpec

_HEAD = re.compile(rb"([0-9a-f]{64}) ([0-9]{1,12}) ([0-9]{1,9}) ([0-9]{1,12})\n")


class BlobPart(NamedTuple):
    """Some bytes of a content, where they belong in it, and how long it is."""

    sha256: str
    offset: int
    body: memoryview
    size_bytes: int


def blob_parts(body: bytes) -> Iterator[BlobPart]:
    """The parts in the body of a request; raises InvalidSpec where they are none."""
    at, view = 0, memoryview(body)
    while at < len(body):
        head = _HEAD.match(body, at)
        if head is None:
            raise InvalidSpec("the body does not hold parts of files")
        sha256, offset, length, size = head[1].decode(), *map(int, head.groups()[1:])
        at = head.end() + length
        if at > len(body) or offset + length > size:
            raise InvalidSpec("a part of a file is cut short, or longer than its file")
        yield BlobPart(sha256, offset, view[head.end() : at], size)
