from __future__ import annotations

import threading

import pytest

from roost.store.errors import StoreBusy
from roost.store.reader_pool import ReaderPool


class Connection:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_connections_are_used_again_and_never_shared() -> None:
    readers = ReaderPool(Connection, 2, 1.0)
    first, used = readers.take()
    second, _ = readers.take()
    assert (used, first is second) == (False, False)
    readers.give(first)
    assert readers.take() == (first, True)


def test_who_finds_all_of_them_lent_waits_a_bounded_time() -> None:
    readers = ReaderPool(Connection, 1, 0.01)
    lent, _ = readers.take()
    with pytest.raises(StoreBusy, match="all 1 readers"):
        readers.take()
    readers.give(lent)
    assert readers.take()[0] is lent


def test_a_connection_that_cannot_be_made_is_not_counted() -> None:
    def fail() -> None:
        raise ConnectionError

    readers = ReaderPool(fail, 1, 0.01)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            readers.take()


def test_a_discarded_one_makes_room() -> None:
    readers = ReaderPool(Connection, 1, 0.01)
    lent, _ = readers.take()
    readers.discard(lent)
    assert lent.closed
    assert readers.take()[1] is False


def test_draining_waits_for_those_that_are_lent() -> None:
    readers = ReaderPool(Connection, 2, 5.0)
    idle, _ = readers.take()
    lent, _ = readers.take()
    readers.give(idle)
    drained = list[bool]()
    thread = threading.Thread(target=lambda: drained.append(readers.drain()))
    thread.start()
    readers.give(lent)
    thread.join()
    assert drained == [True]
    assert idle.closed
    assert lent.closed
    assert readers.take()[1] is False


def test_draining_does_not_wait_for_ever() -> None:
    readers = ReaderPool(Connection, 1, 0.01)
    lent, _ = readers.take()
    assert not readers.drain()
    readers.give(lent)
    assert lent.closed, "it is from before"
    assert readers.take()[1] is False
