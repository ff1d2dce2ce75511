"""Compression that viewers share: a message is compressed once, and sent to all who want it so.

A gzip stream is a header, then blocks. What is compressed with a full flush ends at a byte and
needs nothing of what came before it: such blocks follow a header in any order, in any number.
So every viewer has a stream of its own, made of the same pieces. It has no end and no checksum: it
ends when the connection does, as streams of events do anyway.
"""

from __future__ import annotations

import zlib
from functools import cached_property

#: What a gzip stream begins with: no name, no time, an unknown system.
HEADER = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))
#: Messages are sent once a second or so: little time, and most of what can be had.
_LEVEL = 4


class SharedMessage:
    """A message as it is, and compressed when somebody first asks for that."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain

    def __len__(self) -> int:
        return len(self.plain)

    @cached_property
    def zipped(self) -> bytes:
        """The message as blocks of a gzip stream."""
        return zipped(self.plain)


def zipped(content: bytes) -> bytes:
    """Some content as blocks of a gzip stream."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
