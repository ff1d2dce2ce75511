"""What a pod keeps until it can be told."""

from __future__ import annotations

import json

from roost.train.operator_client import Outbox, PodIdentity


def waiting(outbox: Outbox) -> list[str]:
    found = []
    while batch := outbox.batch():
        found += [line for _, line in batch]
        outbox.done(batch)
    return found


def report(step: int) -> str:
    return json.dumps({"step": step})


def test_lines_stay_until_they_have_arrived_and_keep_their_numbers() -> None:
    outbox = Outbox()
    outbox.put(report(1))
    first = outbox.batch()
    outbox.put(report(2))
    assert outbox.batch() == [*first, (2, report(2))]
    outbox.done(first)
    assert outbox.batch() == [(2, report(2))]
    assert not outbox.is_empty
    outbox.done(outbox.batch())
    assert outbox.is_empty


def test_the_oldest_reports_are_dropped_and_nothing_about_members() -> None:
    outbox = Outbox()
    words = [json.dumps({"joined": version, "member": "0"}) for version in range(50)]
    for number in range(5000):
        outbox.put(report(number))
        if number % 100 == 0:
            outbox.put(words[number // 100])
    found = waiting(outbox)
    assert [line for line in found if "joined" in line] == words
    assert [line for line in found if "step" in line] == [report(n) for n in range(4744, 5000)]


def test_what_is_said_again_is_kept_once_and_comes_last() -> None:
    outbox = Outbox()
    over, joined = '{"over": true, "member": "0"}', '{"joined": 2, "member": "0"}'
    for line in (over, joined, over):
        outbox.put(line)
    assert waiting(outbox) == [joined, over]


def test_all_that_holds_is_said_again_to_somebody_new() -> None:
    outbox = Outbox()
    elastic = '{"elastic": true, "member": "0"}'
    for line in (elastic, '{"joined": 1, "member": "0"}', report(1)):
        outbox.put(line)
    outbox.put('{"joined": 2, "member": "0"}')
    waiting(outbox)
    outbox.again()
    assert waiting(outbox) == [elastic, '{"joined": 2, "member": "0"}']


def test_what_is_kept_does_not_grow() -> None:
    outbox = Outbox()
    for number in range(20_000):
        outbox.put(json.dumps({"ready": str(number)}))
        outbox.put(report(number))
    found = waiting(outbox)
    assert len(found) == 4096 + 256
    assert '{"ready": "19999"}' in found


def test_a_batch_is_small() -> None:
    outbox = Outbox()
    for number in range(4000):
        outbox.put(json.dumps({"ready": str(number), "much": "x" * 3000 if number < 100 else ""}))
    sizes = []
    while batch := outbox.batch():
        sizes.append((len(batch), sum(len(line) for _, line in batch)))
        outbox.done(batch)
    assert max(count for count, _ in sizes) <= 500
    assert max(size for _, size in sizes) <= 32 * 1024


def test_outside_of_roost_there_is_nobody_to_call() -> None:
    assert PodIdentity.here({"ROOST_JOB": "a"}) is None
    found = PodIdentity.here(
        {
            "ROOST_MEETING": "http://there:1/",
            "ROOST_JOB": "ns.a/b",
            "ROOST_ATTEMPT": "3",
            "ROOST_MEMBER": "7",
            "ROOST_RUN_TOKEN": "x",
        }
    )
    assert found == PodIdentity("http://there:1", "/runs/ns.a%2Fb/3", "7", "x")
