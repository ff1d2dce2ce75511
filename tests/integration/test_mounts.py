"""Folders that an administrator has given names, in jobs of a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.faults import trial
from tests.unit.cli.told import roost


def test_a_job_finds_its_mounts_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, closed = tmp_path / "data", tmp_path / "closed"
    for folder in (data, closed):
        folder.mkdir()
    (data / "birds.txt").write_text("robin")
    config = tmp_path / "roost.yaml"
    config.write_text(
        f"mount:\n- birds-2={data}:ro\n"
        f"- {{name: nightly, path: {closed}, queues: [night]}}\n"
        f"- {{name: hers, path: {closed}, users: [grace]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    with trial(tmp_path, seed=46) as one:
        one.server.start(options=("--config", str(config)))
        assert one.server.ready(), one.server.said()
        monkeypatch.setenv("ROOST_HOME", str(one.server.home))
        file = tmp_path / "job.yaml"
        file.write_text("run: cat $ROOST_MOUNT_BIRDS_2/birds.txt\nmounts: [birds-2]\n")
        done = roost("submit", file, "-y", "-f")
        assert (done.status, "robin" in done.out) == (0, True), done
        told = roost("whoami").out
        assert f" birds-2: {data} (read-only)\n" in told
        assert f" nightly: {closed} (in queue night)\n" in told
        assert "hers" not in told

        for name, said in (
            ("bird-2", "did you mean 'birds-2'"),
            ("hers", "unknown mount 'hers'"),
            ("nightly", "is for jobs in 'night', not in 'default'"),
        ):
            file.write_text(f"run: 'true'\nmounts: [{name}]\n")
            assert said in roost("submit", file, "-y").error

        # A folder that is away is waited for: its job has done nothing wrong.
        data.rename(tmp_path / "away")
        later = one.submit({"run": "cat $ROOST_MOUNT_BIRDS_2/birds.txt", "mounts": ["birds-2"]})
        assert one.wait(lambda: "no folder here now" in one.view(later)["reason"], 60.0)
        (tmp_path / "away").rename(data)
        found = one.until(later, "succeeded", "failed")
        assert (found["state"], found["attempt"], found["failures"]) == ("succeeded", 1, 0)
