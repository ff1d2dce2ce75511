"""What waits to be told is kept, is bounded, and is told once under each id."""

from __future__ import annotations

from pathlib import Path

from roost.live.notifications.delivery_queue import MOST, Delivery, DeliveryQueue


def delivery(name: str) -> Delivery:
    return Delivery(name, "https://example.com", {"id": name}, 1.0)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    outbox = DeliveryQueue.load(tmp_path / "outbox.json")
    outbox.add(delivery("a"))
    outbox.add(delivery("a"))
    outbox.seq = 7
    outbox.save(outbox.text())

    again = DeliveryQueue.load(tmp_path / "outbox.json")

    assert again == outbox
    assert list(again.pending) == ["a"]
    assert (tmp_path / "outbox.json").stat().st_mode & 0o077 == 0


def test_it_is_bounded_and_counts_what_it_gives_up(tmp_path: Path) -> None:
    outbox = DeliveryQueue(tmp_path / "outbox.json")
    for number in range(MOST + 5):
        outbox.add(delivery(str(number)))

    assert len(outbox.pending) == MOST
    assert outbox.dropped == 5
    assert "0" not in outbox.pending


def test_a_damaged_file_does_not_keep_a_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "outbox.json").write_text('{"pending": 3')

    assert DeliveryQueue.load(tmp_path / "outbox.json").pending == {}
