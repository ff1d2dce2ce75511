"""Random commands and random kills against a real server: the promises hold, and are checked."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.support import gpu_memory, oracles, witness
from tests.support.chaos import Chaos, main, play

from roost.errors import Fatal


def test_servers_killed_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    chaos = play(11, 0, (), tmp_path, kills=4)
    assert chaos.problems == []
    assert any(told.command == "submit" for told in chaos.told)
    assert oracles.read_ledger(chaos.folder / "ledger")


def test_a_witness_sees_its_double(tmp_path: Path) -> None:
    """Two trees of one job and rank, which Roost would never start, are seen in the ledger."""
    chaos = Chaos(tmp_path / "double", random.Random(1))
    try:
        chaos.server.start()
        assert chaos.server.ready()
        document = witness.document(chaos.folder, chaos.chance, seconds=30.0)
        chaos.submit(document)
        assert chaos.wait(lambda: bool(oracles.read_ledger(chaos.folder / "ledger")), 30.0)
        (line,) = oracles.read_ledger(chaos.folder / "ledger")
        double = {"ROOST_JOB": line.job, "ROOST_ATTEMPT": "1", "ROOST_ROLE": "worker", "RANK": "0"}
        witness.run_beside(chaos.folder, document, double)
        assert oracles.overlaps(oracles.read_ledger(chaos.folder / "ledger"))
        assert oracles.leftovers(chaos.mark, ())
    finally:
        chaos.close()
    assert not list(oracles.carrying(chaos.mark))


@pytest.mark.parametrize("damage", [False, True], ids=["sound", "damaged"])
def test_a_kept_journal_replays(
    damage: bool,  # noqa: FBT001 - a case of the table
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chaos = Chaos(tmp_path / "kept", random.Random(2))
    try:
        chaos.submit(witness.document(chaos.folder, chaos.chance, seconds=0.0))  # no server yet
        chaos.settle()
        assert chaos.check() == []
    finally:
        chaos.close()
    entries = chaos.server.journal().entries
    if damage:
        made = next(entry for entry in entries if "Submitted" in str(entry.body["events"]))
        entries = [*entries, made]  # the job, a second time
    oracles.save_journal(tmp_path / "journal", entries, {"seed": 2})
    assert main(["--replay", str(tmp_path / "journal")]) == int(damage)
    assert ("all is well" in capsys.readouterr().out) != damage


@pytest.mark.parametrize(
    ("after", "wrong"), [([100, 8], []), ([100, 900], ["GPU 1 holds 900 MiB"])]
)
def test_gpu_memory_that_stays_is_seen(
    after: list[int], wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "used_mib", lambda: after)
    monkeypatch.setattr(gpu_memory, "_BACK_S", 0.0)
    assert [text.partition(",")[0] for text in gpu_memory.kept([100, 0])] == wrong


def test_without_a_gpu_chaos_on_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "_QUESTION", ("no-such-program",))
    with pytest.raises(Fatal, match="there is no GPU here"):
        main(["--gpu"])


def test_no_life_begins_when_the_time_is_over(tmp_path: Path) -> None:
    chaos = play(12, 0, ("command.received",), tmp_path, until=0.0)
    assert chaos.problems == []
    assert chaos.hits.total() == 0
