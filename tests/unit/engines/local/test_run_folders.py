"""Folders of runs, accounts, and what they say of a run."""

from __future__ import annotations

import binascii
import errno
import gc
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roost.core.allocation import Part
from roost.core.spec import JobId, NodeId, Qos, Resources, RunId
from roost.engines.local import accounts, processes, run_status
from roost.engines.local.accounts import Account
from roost.engines.local.run_folders import HomeFence, RunFolders
from roost.engines.local.run_record import RunRecord, slot_bytes
from roost.errors import Fatal, InvalidSpec, NotFound, Retryable

RUN = RunId(JobId("job"), 1)
STATE = RunRecord(
    RUN,
    "ab12",
    "ada",
    generation=1,
    parts=(Part(NodeId("n"), (0, 1), workers=2), Part(NodeId("n"), (), role="ps")),
    needs={"worker": Resources(kinds=("H200",), qos=Qos.EQUAL), "ps": Resources(gpus=0)},
    cpus={"worker-0": [0]},
)
WHO: dict[str, object] = {"token": STATE.token, "generation": 1, "boot": "b"}
START = {**WHO, "pid": 1, "ticks": 1, "phase": "running"}
EXIT = {**WHO, "time": 1.0, "uptime": 1, "ran_s": 2.5, "cause": "exit", "detail": "", "exits": []}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[RunFolders]:
    made = RunFolders(tmp_path / "home")
    yield made
    made.close()


def enter(runs: RunFolders, state: RunRecord) -> None:
    with runs.make(RUN, None) as folder:
        for name in ("run.json", "start.json", "exit.json"):
            folder.reserve(name, slot_bytes(4))
        folder.save("run.json", state.encode())


def say(runs: RunFolders, name: str, **more: object) -> None:
    with runs.open(RUN) as folder:
        folder.save(name, {**(START if name == "start.json" else EXIT), **more})


def test_a_state_comes_back_as_it_was() -> None:
    assert RunRecord.decode(STATE.encode()) == STATE
    assert [seat.gpus for seat in STATE.seats] == [(0,), (1,), ()]
    assert 1 << 62 <= STATE.mark < 1 << 63


@pytest.mark.parametrize("job", ["", "..", "a/b", "/etc", "a\0b", "a\nb", "x" * 200, ".hidden"])
def test_what_is_no_job_id_is_refused(runs: RunFolders, job: str) -> None:
    for use in (runs.open, runs.mark, lambda run: runs.make(run, None)):
        with pytest.raises(InvalidSpec, match="is no job id"):
            use(RunId(JobId(job), 1))
    with pytest.raises(InvalidSpec):
        runs.forget(JobId(job))


def test_folders_are_private(runs: RunFolders) -> None:
    enter(runs, STATE)
    folder = runs.path / "job" / "1"

    modes = {path.stat().st_mode & 0o777 for path in (runs.path, folder, folder / "work")}
    assert modes == {0o700}
    assert (folder / "run.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_behind_a_link_is_not_entered(runs: RunFolders, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/1").mkdir(parents=True)
    (runs.path / "job").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotFound):
        runs.open(RUN)
    with pytest.raises(OSError, match="job"):
        runs.make(RUN, None)
    assert list((tmp_path / "elsewhere/1").iterdir()) == []


def test_a_record_that_grows_keeps_what_it_says(runs: RunFolders) -> None:
    enter(runs, STATE)
    with runs.open(RUN) as folder:
        folder.reserve("run.json", slot_bytes(1000))
        body = folder.read("run.json")
        assert body is not None
        assert RunRecord.decode(body) == STATE
        folder.save("run.json", {"more": "x" * 100_000})


def test_another_version_is_refused(runs: RunFolders) -> None:
    enter(runs, STATE)
    with runs.open(RUN) as folder:
        folder.save("run.json", {**STATE.encode(), "version": 3})

    with pytest.raises(Fatal, match=r"written by a newer Roost \(format 3"):
        run_status.examine(runs, RUN)


def test_marks_remember_runs(runs: RunFolders) -> None:
    runs.mark(RUN)
    runs.mark(RUN)
    assert runs.marked() == [RUN]
    runs.unmark(RUN)
    runs.unmark(RUN)
    assert runs.marked() == []


def test_nothing_is_known_of_nothing(runs: RunFolders) -> None:
    assert run_status.examine(runs, RUN).kind == "nothing"
    runs.make(RUN, None).close()
    assert run_status.examine(runs, RUN).kind == "nothing"


def test_the_records_tell_what_is_true(runs: RunFolders) -> None:
    enter(runs, STATE)
    assert run_status.examine(runs, RUN)[:1] == ("nothing",)
    say(runs, "start.json")
    assert run_status.examine(runs, RUN).kind == "lost"
    with runs.open(RUN) as folder:
        lock = folder.lock()
        assert lock is not None
        assert run_status.examine(runs, RUN).kind == "alive"
        os.close(lock)
    say(runs, "exit.json", cause="stopped")
    assert run_status.examine(runs, RUN).kind == "over"


@pytest.mark.parametrize(
    ("intent", "cause", "kind"),
    [
        ("suspend", "stopped", "parked"),
        ("resize", "stopped", "between"),
        ("suspend", "exit", "over"),
        ("resize", "timeout", "over"),
    ],
)
def test_an_end_is_what_it_was_meant_for(
    runs: RunFolders, intent: str, cause: str, kind: str
) -> None:
    enter(runs, RunRecord.decode({**STATE.encode(), "intent": intent}))
    say(runs, "exit.json", cause=cause)

    found = run_status.examine(runs, RUN)

    assert found.kind == kind
    assert found.record is not None
    assert found.record.used_s == (0.0 if kind == "over" else 2.5)


def test_a_generation_that_did_not_begin_can_begin(runs: RunFolders) -> None:
    enter(runs, RunRecord.decode({**STATE.encode(), "generation": 2}))
    say(runs, "exit.json", cause="stopped")  # of the generation before

    found = run_status.examine(runs, RUN)

    assert found.kind == "between"
    assert found.record is not None
    assert found.record.generation == 1


def test_the_time_of_an_end_does_not_follow_the_clock() -> None:
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    end = {"cause": "exit", "detail": "", "exits": [["worker", 0, 0, None, False]]}
    here = {**end, "boot": processes.boot_id(), "uptime": uptime - 30, "time": 4_000_000_000.0}
    other = {**end, "boot": "another", "uptime": 5.0, "time": 900.0}

    assert run_status.ended(RUN, here, 1000.0).time == pytest.approx(970.0, abs=1)
    assert run_status.ended(RUN, other, 1000.0).time == 900.0
    assert run_status.ended(RUN, {**other, "time": 2000.0}, 1000.0).time == 1000.0


def test_an_account_is_not_missed_for_want_of_descriptors() -> None:
    script = """if True:
        import os, resource
        from roost.engines.local.accounts import look_up
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        try:
            while True:
                os.dup(0)
        except OSError:
            pass
        try:
            look_up("root")
        except OSError as error:
            os.write(1, error.strerror.encode())
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)  # noqa: S603 - our own
    assert done.stdout == b"Too many open files"


def test_accounts_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    other = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid not in {0, os.geteuid()})

    assert accounts.resolve("") is None
    assert accounts.resolve(me) is None
    with pytest.raises(InvalidSpec, match="no account"):
        accounts.resolve("no-such-account")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = accounts.resolve(other)
    assert found is not None
    assert found.gid in found.groups
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(InvalidSpec, match="does not run as root"):
        accounts.resolve(other)


def test_an_account_must_be_able_to_enter(tmp_path: Path) -> None:
    stranger = Account("stranger", 54321, 54321, (54321,), "/")
    owner = Account("owner", tmp_path.stat().st_uid, 54321, (54321,), "/")
    folder = tmp_path / "inner"
    folder.mkdir(mode=0o700)

    with pytest.raises(InvalidSpec, match=f"'stranger' cannot enter {folder}"):
        accounts.check_reach(stranger, folder)
    accounts.check_reach(owner, folder)


def test_a_result_is_refused_by_its_size_and_not_read(runs: RunFolders) -> None:
    enter(runs, STATE)
    path = runs.path / "job/1/io/result.pkl"
    with runs.open(RUN) as folder:
        assert folder.result(1000) is None
        path.write_bytes(b"x" * 1000)
        found = folder.result(1000)
        assert found is not None
        with found:
            assert (found.size(), found.read(998, 10)) == (1000, b"xx")
        os.truncate(path, 1 << 40)  # as large as can be, and costs nothing
        with pytest.raises(InvalidSpec, match="larger than 64 MiB"):
            folder.result(64 << 20)


def test_what_cannot_be_opened_now_is_not_what_is_not_there(
    runs: RunFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(runs, STATE)
    with runs.open(RUN) as folder:
        folder.make_logs(iter(["worker-0"]))

        def full(*_: object, **__: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr("roost.engines.local.run_folders.os.open", full)
        with pytest.raises(Retryable, match="cannot be read now: Too many open files"):
            folder.log("worker-0")
        with pytest.raises(Retryable, match="cannot be read now: Too many open files"):
            folder.result(1)
        with pytest.raises(OSError, match="Too many open files"):
            runs.open(RUN)
        with pytest.raises(OSError, match="Too many open files"):
            run_status.examine(runs, RUN)


def test_a_log_that_nobody_closes_is_closed(runs: RunFolders) -> None:
    enter(runs, STATE)
    with runs.open(RUN) as folder:
        folder.make_logs(iter(["worker-0"]))
        log = folder.log("worker-0")
        gc.collect()  # what other tests left is not to be counted
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        del log
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == files - 1  # noqa: PTH208
        with folder.log("worker-0") as log:
            pass
        log.close()


def test_what_is_no_record_is_not_there(runs: RunFolders) -> None:
    enter(runs, STATE)
    starts: list[dict[str, object]] = [
        {"pid": "1"},
        {"ticks": None},
        {"boot": 5},
        {"phase": ["running"]},
        {"token": "another"},
    ]
    ends: list[dict[str, object]] = [
        {"cause": "magic"},
        {"exits": [["worker", 0]]},
        {"exits": "all"},
        {"uptime": "x"},
        {"ran_s": None},
        {"detail": {}},
    ]
    for forged in starts:
        say(runs, "start.json", **forged)
        assert run_status.examine(runs, RUN).kind == "nothing", forged
    say(runs, "start.json")
    for forged in ends:
        say(runs, "exit.json", **forged)
        assert run_status.examine(runs, RUN).kind == "lost", forged
    say(runs, "exit.json", time=float("inf"))
    end = run_status.examine(runs, RUN).end
    assert end is not None
    assert run_status.ended(RUN, end, 7.0).time == 7.0


@pytest.mark.parametrize("body", [{"version": 1}, {**STATE.encode(), "parts": 5}])
def test_a_run_that_lives_is_alive_whatever_its_records_say(
    runs: RunFolders, body: dict[str, object]
) -> None:
    enter(runs, STATE)
    say(runs, "start.json")
    with runs.open(RUN) as folder:
        folder.save("run.json", body)
        lock = folder.lock()
        assert lock is not None
        assert run_status.examine(runs, RUN) == ("alive", None, START, None)
        os.close(lock)
    assert run_status.examine(runs, RUN) == ("nothing", None, None, None)


@pytest.mark.parametrize("text", [b"[", b"[1]", b"[" * 3000])
def test_a_checksum_alone_makes_no_record(runs: RunFolders, text: bytes) -> None:
    enter(runs, STATE)
    body = b"%010d %s" % (9, text)
    path = runs.path / "job/1/start.json"
    path.write_bytes((b"%08x %s\n" % (binascii.crc32(body), body)).ljust(8192, b"\0"))
    with runs.open(RUN) as folder:
        assert folder.read("start.json") is None


def test_however_deep_it_goes_away(runs: RunFolders) -> None:
    runs.make(RUN, None).close()
    work = runs.path / "job/1/work"
    (work / "locked").mkdir()
    (work / "locked/file").touch()
    (work / "link").symlink_to(runs.home)
    (work / "locked").chmod(0)
    inner = os.open(work, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=inner)
        inner, outer = os.open("d", os.O_RDONLY, dir_fd=inner), inner
        os.close(outer)
    os.close(inner)

    gone = runs.forget(RUN.job)
    assert gone is not None
    assert runs.jobs() == []
    runs.remove(gone)

    assert os.listdir(runs.path) == []  # noqa: PTH208
    assert (runs.home / "running").is_dir()


def test_what_was_to_be_removed_is_removed_by_the_next_server(runs: RunFolders) -> None:
    other = RunId(JobId("other"), 1)
    for run in (RUN, other):
        runs.make(run, None).close()
    assert runs.forget(RUN.job)
    assert runs.forget(RUN.job) is None

    runs.clean()

    assert os.listdir(runs.path) == ["other"]  # noqa: PTH208


def test_a_run_that_is_over_is_kept_small_and_says_the_same(runs: RunFolders) -> None:
    enter(runs, STATE)
    say(runs, "start.json")
    say(runs, "exit.json")
    with runs.open(RUN) as folder:
        folder.make_logs(iter(["worker-0"]))
        for name in ("wanted.json", "progress.json"):
            folder.reserve(name, slot_bytes(64))
        runs.give(folder, "payload.pkl", b"x" * 10_000, None)
        (folder.path / "work" / "model.pt").write_bytes(b"w" * 100)
    before, size = run_status.examine(runs, RUN), runs.size_bytes(RUN.job)
    assert before.kind == "over"
    assert not runs.is_compact(RUN.job)

    runs.compact(RUN.job)
    after = run_status.examine(runs, RUN)
    assert (after.kind, after.record, after.end) == ("over", before.record, before.end)
    assert runs.is_compact(RUN.job)
    assert runs.size_bytes(RUN.job) <= 40 << 10 < size
    assert (runs.path / "job" / "1" / "work" / "model.pt").read_bytes() == b"w" * 100
    with runs.open(RUN) as folder:
        assert folder.logs() == ("worker-0",)
    runs.compact(RUN.job)  # again changes nothing
    assert run_status.examine(runs, RUN) == after


def test_a_result_stays_when_a_run_is_made_small(runs: RunFolders) -> None:
    enter(runs, STATE)
    (runs.path / "job" / "1" / "io" / "result.pkl").write_bytes(b"42")
    runs.compact(RUN.job)
    with runs.open(RUN) as folder:
        found = folder.result(100)
        assert found is not None
        with found:
            assert found.read(0, 10) == b"42"


@pytest.mark.parametrize(
    ("home", "fence", "kind"),
    [
        ("a", HomeFence("a"), "lost"),
        ("b", HomeFence("a"), "nothing"),
        ("", HomeFence("a"), "lost"),
        ("", HomeFence("a", copied=True), "nothing"),
        ("b", HomeFence(), "lost"),
    ],
)
def test_a_run_of_another_home_is_nothing_here(
    tmp_path: Path, home: str, fence: HomeFence, kind: str
) -> None:
    runs = RunFolders(tmp_path / "home", fence)
    enter(runs, replace(STATE, home=home))
    say(runs, "start.json")
    assert run_status.examine(runs, RUN).kind == kind
    runs.close()
