from __future__ import annotations

import zlib

from roost.server.shared_gzip import HEADER, SharedMessage, zipped


def test_pieces_make_a_stream_in_any_order_and_can_be_read_one_by_one() -> None:
    messages = [SharedMessage(b"%d " % number * 500) for number in range(5)]
    for chosen in (messages, messages[::-1], messages[2:3] * 3):
        reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert reader.decompress(HEADER) == b""
        for message in chosen:
            assert reader.decompress(message.zipped) == message.plain
        assert reader.decompress(zipped(b"bye")) == b"bye"
    assert messages[0].zipped is messages[0].zipped
    assert len(messages[0].zipped) < len(messages[0]) / 10
