"""What a job saved is kept as a whole and given to another; nothing else is, and nothing half."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local_world import PYTHON, World, apart, clear, run_id, shell, world
from tests.integration.test_resize import begin, puppet

from roost.core.actions import Launch
from roost.core.events import Started
from roost.core.spec import JobSpec
from roost.engines import Ended, RunOrder, SnapshotInfo
from roost.engines.local import accounts, folder_copy, snapshots
from roost.errors import Conflict, NotFound, Retryable

RUN = run_id("job")
SAVES = """
cd "$ROOST_CHECKPOINT_DIR"
if [ -e model ]; then echo "has $(cat model sub/more)"; ls -l --time-style=+%s | tail -n +2
else mkdir sub; echo one > model; echo two > sub/more; ln -s sub/more latest
touch -d @1000 model; echo half > .model.abc.tmp; fi
echo saved; exec sleep 600
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="snapshots-"))
    place.chmod(0o711)
    monkeypatch.setenv("HOME", str(place))
    yield place
    clear(place)
    shutil.rmtree(place)


def keep(here: World, into: Path, timeout_s: float = 60.0) -> SnapshotInfo:
    return here.loop.run_until_complete(here.engine.snapshot(RUN, into, timeout_s))


def launch(here: World, script: str, **more: Any) -> None:
    here.launch("job", shell(script, **more))
    here.until(Started, RUN)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_was_saved_is_kept_and_starts_another_job(home: Path) -> None:
    into = home / "kept" / "first"
    with world(home) as here:
        launch(here, SAVES)
        here.follow(RUN, "saved")
        kept = keep(here, into)
        (home / "runs/job/checkpoints/model").write_text("later")
        with pytest.raises(Conflict, match="there already"):
            keep(here, into)
        other = run_id("other")
        here.order(Launch(other, JobSpec(), here.place(1)), shell(SAVES), restore=into)
        here.until(Started, other)
        log = here.follow(other, "saved")
        here.end(other)
        here.end(RUN)

    assert kept == SnapshotInfo(3, 8, fresh=False)
    assert contents(into) == {"model": "one\n", "sub/more": "two\n", "latest": "two\n"}
    assert "has one\ntwo" in log
    assert " 1000 model" in log
    assert str((into / "latest").readlink()) == "sub/more"
    assert sorted(path.name for path in into.parent.iterdir()) == ["first"]


def test_a_job_that_can_saves_itself_first(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0)
        first, second = keep(here, home / "a"), keep(here, home / "b")
        here.end(RUN)
        third = keep(here, home / "c")

    assert (first.fresh, second.fresh, third.fresh) == (True, True, False)
    assert contents(home / "b") == contents(home / "c") == {"state": "save 2"}


def test_a_job_that_does_not_answer_is_not_waited_for_long(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0)
        (home / "runs/job/checkpoints/state").write_text("old")
        (home / "runs/job/1/io/members.json").unlink()
        (home / "runs/job/1/io/members.json").mkdir()  # it will not hear of it
        kept = keep(here, home / "a", 0.2)
        here.end(RUN)

    assert kept == SnapshotInfo(1, 3, fresh=False)


def test_nothing_saved_is_nothing_to_keep(home: Path) -> None:
    with world(home) as here:
        launch(here, "exec sleep 600")
        with pytest.raises(Conflict, match="has not saved anything yet"):
            keep(here, home / "kept")
        with pytest.raises(NotFound):
            here.loop.run_until_complete(
                here.engine.snapshot(run_id("unknown"), home / "kept", 1.0)
            )
        here.end(RUN)

    assert not (home / "kept").exists()


@pytest.mark.parametrize(
    ("trick", "why"),
    [
        ("ln -s /etc/passwd x", "x is a link that leads out of the folder"),
        ("mkdir d; ln -s ../../x d/x", "d/x is a link that leads out"),
        ("mkfifo x", "x is neither a file nor a folder"),
        ("d=.; for i in $(seq 70); do d=$d/d; done; mkdir -p $d", "deeper than 64 folders"),
    ],
)
def test_what_leads_elsewhere_is_refused(home: Path, trick: str, why: str) -> None:
    with world(home) as here:
        launch(here, f'cd "$ROOST_CHECKPOINT_DIR"; {trick}; echo saved; exec sleep 600')
        here.follow(RUN, "saved")
        with pytest.raises(Conflict, match=why):
            keep(here, home / "kept" / "a")
        here.end(RUN)

    assert list((home / "kept").iterdir()) == []


def test_a_job_may_have_a_checkpoint_folder_of_its_own(home: Path) -> None:
    mine, other = home / "mine", run_id("other")
    (home / "disk").mkdir()
    mine.symlink_to(home / "disk")
    with world(home) as here:
        launch(here, SAVES, checkpoint_dir=str(mine))
        here.follow(RUN, "saved")
        kept = keep(here, home / "kept")
        again = Launch(other, JobSpec(), here.place(1))
        here.order(again, shell(SAVES, checkpoint_dir=str(mine)), restore=home / "kept")
        refused = here.until(Ended, other)
        third = run_id("third")
        here.order(
            Launch(third, JobSpec(), here.place(1)),
            shell(SAVES, checkpoint_dir=f"{mine}-2"),
            restore=home / "kept",
        )
        here.follow(third, "has one")
        with here.engine._runs.open(third) as folder:  # as if a server had been killed after it
            snapshots.restore(
                home / "kept", folder, f"{mine}-2", snapshots.CopyContext(None, PYTHON)
            )
        here.end(third)
        here.end(RUN)

    assert kept.files == 3
    assert refused.cause == "never-started"
    assert "is not empty: give the new job a checkpoint folder of its own" in refused.detail


def test_a_snapshot_that_is_gone_starts_nothing(home: Path) -> None:
    with world(home) as here:
        order = RunOrder(
            Launch(RUN, JobSpec(), here.place()), shell("exit 0"), restore=home / "never"
        )
        here.loop.run_until_complete(here.engine.perform(order))
        ended = here.until(Ended, RUN)

    assert (ended.cause, ended.detail) == (
        "never-started",
        "the snapshot to start from is gone: never",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs under other accounts")
def test_a_job_has_nothing_read_for_it_that_it_may_not_read(home: Path) -> None:
    secret = home / "secret"
    secret.mkdir(0o700)
    (secret / "key").write_text("hidden")
    with world(home) as here:
        here.launch("job", shell("exec sleep 600", checkpoint_dir=str(secret)), unix="nobody")
        here.until(Started, RUN)
        with pytest.raises(Conflict, match="Permission denied"):
            keep(here, home / "kept")
        here.end(RUN)

    assert not (home / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs under other accounts")
def test_the_files_of_an_account_stay_its_own(home: Path) -> None:
    other = run_id("other")
    with world(home) as here:
        here.launch("job", shell(SAVES), unix="nobody")
        here.follow(RUN, "saved")
        kept = keep(here, home / "kept")
        order = Launch(other, JobSpec(), here.place(1))
        here.order(order, shell(SAVES), restore=home / "kept", unix="nobody")
        here.follow(other, "has one")
        here.end(RUN)
        owner = (home / "runs/other/checkpoints/sub/more").stat().st_uid
        account = (home / "runs/job/checkpoints/model").stat().st_uid

    assert kept.files == 3
    assert owner == account != 0
    assert (home / "kept").stat().st_uid == 0


def test_a_full_disk_leaves_nothing_half(home: Path) -> None:
    disk = home / "disk"
    disk.mkdir()

    def story() -> None:
        with world(home) as here:
            launch(
                here,
                'head -c 3000000 /dev/zero > "$ROOST_CHECKPOINT_DIR/model"; echo saved; sleep 600',
            )
            here.follow(RUN, "saved")
            with pytest.raises(Retryable, match="No space left on device; nothing was left"):
                keep(here, disk / "kept")
            assert list(disk.iterdir()) == []
            here.end(RUN)

    assert apart(story, tmpfs=(disk, "1m")) == 0


def test_sockets_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(source / "socket"))
        with pytest.raises(Conflict, match="socket is neither a file nor a folder"):
            snapshots.take(source, tmp_path / "kept", snapshots.CopyContext(None, ""))


def saved(folder: Path) -> Path:
    folder.mkdir()
    (folder / "model").write_text("one")
    return folder


@pytest.mark.parametrize("script", ["kill -STOP $$", "exec sleep 600"])
def test_a_copy_that_does_not_go_on_is_given_up(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_LOOK_S", 0.05)
    monkeypatch.setattr(snapshots, "_STILL_S", 0.5)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    here = accounts.Account("me", os.getuid(), os.getgid(), (), str(tmp_path))
    by = snapshots.CopyContext(here, str(program))
    with pytest.raises(Conflict, match="cannot be kept: copying"):
        snapshots.take(saved(tmp_path / "given"), tmp_path / "shelf" / "kept", by)
    assert not list((tmp_path / "shelf").iterdir())


def test_a_copy_is_given_up_when_the_engine_closes(tmp_path: Path) -> None:
    by = snapshots.CopyContext(None, PYTHON, threading.Event())
    by.closing.set()
    with pytest.raises(Conflict, match="given up"):
        snapshots.take(saved(tmp_path / "given"), tmp_path / "shelf" / "kept", by)
    assert not list((tmp_path / "shelf").iterdir())


def test_holes_stay_holes(tmp_path: Path) -> None:
    given = saved(tmp_path / "given")
    with (given / "model").open("r+b") as file:
        file.truncate(1 << 38)
        file.seek(1 << 37)
        file.write(b"two")
    kept = snapshots.take(given, tmp_path / "kept", snapshots.CopyContext(None, PYTHON))
    status = (tmp_path / "kept" / "model").stat()
    assert status.st_size == 1 << 38
    assert status.st_blocks * 512 < 1 << 20
    assert kept.size_bytes < 1 << 20
    with (tmp_path / "kept" / "model").open("rb") as file:
        assert file.read(3) == b"one"
        file.seek(1 << 37)
        assert file.read(4) == b"two\0"


def test_folders_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_copy, "_MANY", 10)
    given = saved(tmp_path / "given")
    for number in range(12):
        (given / str(number)).mkdir()
    with pytest.raises(Conflict, match="more than 10 files and folders"):
        snapshots.take(given, tmp_path / "kept", snapshots.CopyContext(None, PYTHON))


def test_a_copy_for_a_server_that_is_gone_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    target = os.open(tmp_path / "kept", os.O_RDONLY)
    try:
        order = {"source": str(saved(tmp_path / "given")), "target_fd": target, "above": gone.pid}
        told = subprocess.run(  # noqa: S603 - our own
            [PYTHON, "-I", "-S", folder_copy.__file__],
            input=json.dumps({**order, "account": None}).encode(),
            capture_output=True,
            pass_fds=(target,),
            check=True,
        )
    finally:
        os.close(target)
    assert json.loads(told.stdout)["refused"] == "it was given up"
    assert not list((tmp_path / "kept").iterdir())
