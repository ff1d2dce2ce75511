"""Logs as lines: how they are put together, and handed over."""

from __future__ import annotations

from roost.client.conversations import Emit, Read, RestReply, RestRequest
from roost.client.logs import LogCursor, logs, pieces


def test_the_lines_of_a_page_are_handed_over_together() -> None:
    talk = logs("birds-00000")
    next(talk)
    step = talk.send(RestReply(200, {"x-log-size": "14"}, b"one\r\ntwo\nthr"))
    assert step == Emit(["one", "two"])
    assert isinstance(next(talk), RestRequest)
    assert talk.send(RestReply(200, {"x-log-size": "14"}, b"ee")) == Emit([])
    assert next(talk) == Emit(["three"])


def test_what_is_left_of_an_attempt_belongs_to_it() -> None:
    place = LogCursor("birds-00000", "", 1)
    talk = pieces(place)
    next(talk)
    assert talk.send(RestReply(200, {})) == Read()
    told = (
        b'event: message\nid: 1-3\ndata: "a\\nb"\n\n'
        b'event: attempt\nid: 2-0\ndata: {"attempt": 2}\n\n'
        b'event: message\nid: 2-2\ndata: "c\\n"\n\n'
    )
    found = [talk.send(told), *(next(talk) for _ in range(2))]
    assert found == [Emit(((1, ["a"]),)), Emit(((1, ["b"]),)), Emit(((2, ["c"]),))]
    assert (place.attempt, place.offset) == (2, 2)
