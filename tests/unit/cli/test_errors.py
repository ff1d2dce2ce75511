"""Errors: one line that names the thing and the nearest choice, status 2, nothing left behind."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.told import roost, write_jobs

HEADER = "id,submitted_at,work_s,gpus\n"
FILES = {
    "empty.csv": b"",
    "header.csv": HEADER.encode(),
    "negative.csv": f"{HEADER}a,0,-5,1\n".encode(),
    "nan.csv": f"{HEADER}a,0,nan,1\n".encode(),
    "infinite.csv": f"{HEADER}a,inf,5,1\n".encode(),
    "twice.csv": f"{HEADER}a,0,5,1\na,1,5,1\n".encode(),
    "wide.csv": f"{HEADER}narrow,0,5,1\nwide,0,5,9\n".encode(),
    "foreign.csv": b"some,other,table\n1,2,3\n",
    "binary.csv": b"\x00\x01\xff",
    "damaged.csv.gz": gzip.compress(HEADER.encode())[:-4],
    "twins.csv": b"id,gpus\nn0,8\nn0,8\n",
    "log.jsonl": b'{"kind":"event Woke","time":0.0}\n',
    "deep.jsonl": b"[" * 100_000 + b"\n",
}
SIMULATE = "simulate jobs.csv --nodes 1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a good trace and many bad files."""
    monkeypatch.chdir(tmp_path)
    write_jobs(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "wrong", "right"),
    [
        ("simulat jobs.csv", "command 'simulat'", "'simulate'"),
        ("bench simm", "'simm'", "'sim'"),
        (f"{SIMULATE} --polcy fifo", "'--polcy'", "'--policy'"),
        (f"{SIMULATE} -p fifoo", "policy 'fifoo'", "'fifo'"),
        (f"{SIMULATE} -p zzz", "policy 'zzz'", "one of: allox, alnair, backfill, bundles"),
        (f"{SIMULATE} --placer packk", "placer 'packk'", "'pack'"),
        ("compare jobs.csv --nodes 1 -p fifo,srtff", "policy 'srtff'", "'srtf'"),
        ("compare jobs.csv --nodes 1 --placer spred", "placer 'spred'", "'spread'"),
        ("bench sim --trace jobs.csv --nodes 1 --policies fifo,lass", "policy 'lass'", "'las'"),
        ("bench sim --trace jobs.csv --nodes 1 --placer firstfit", "'firstfit'", "'first-fit'"),
        ("bench decide --nodes 2 --jobs 4 --policies firo", "policy 'firo'", "'fifo'"),
        ("policies tiresia", "policy 'tiresia'", "'tiresias'"),
        ("policies tiresia -o json", "policy 'tiresia'", "'tiresias'"),
        (f"{SIMULATE} -p tiresias:limts=5", "policy 'tiresias': 'limts'", "'limits'"),
        (f"{SIMULATE} -p fifo:depth=5", "'depth=5'", "policy 'fifo' has no parameters"),
        (f"{SIMULATE} --queue q:wieght=2", "queue 'q': 'wieght'", "'weight'"),
        (f"{SIMULATE} --spread nod=0.5", "level 'nod'", "'node'"),
        (f"{SIMULATE} --format phily-csv", "trace format 'phily-csv'", "'philly-csv'"),
        (f"{SIMULATE} -o jsn", "'jsn'", "'table', 'json', 'csv'"),
        ("simulate --synthetic job=5", "--synthetic: 'job'", "'jobs'"),
        ("simulate --synthetic arrivals=diurnl", "'arrivals' of --synthetic", "poisson, diurnal"),
        ("generate new.csv --set lode=1", "--set: 'lode'", "'load'"),
        ("inspect jobs.csv --format rost", "trace format 'rost'", "'roost'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(
    typed: str, wrong: str, right: str
) -> None:
    told = roost(*typed.split())

    assert wrong in told.error
    assert right in told.error
    assert told.out == ""


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("simulate wide.csv --nodes 1", ["'wide'", "9 GPUs", "1 node", "8 GPUs", "--skip-impo"]),
        (f"{SIMULATE} --gpus-per-node 2", ["'b'", "4 GPUs", "--skip-impossible"]),
        (f"{SIMULATE} --queue default:limit_milli=3000", ["'b'", "4 GPUs", "'default'", "3"]),
        ("compare wide.csv --nodes 1 -p fifo,srtf -j 2", ["'wide'", "9 GPUs", "8 GPUs"]),
        ("simulate negative.csv --nodes 1", ["negative.csv, line 2", "'work_s'", "'-5'"]),
        ("simulate nan.csv --nodes 1", ["nan.csv, line 2", "'work_s'", "'nan'"]),
        ("simulate infinite.csv --nodes 1", ["infinite.csv, line 2", "'submitted_at'", "'inf'"]),
        ("simulate twice.csv --nodes 1", ["twice.csv, line 3", "'id'", "'a'"]),
        ("simulate empty.csv --nodes 1", ["empty.csv", "empty"]),
        ("simulate header.csv --nodes 1", ["header.csv", "empty"]),
        ("simulate nan.csv --skip-bad-rows --nodes 1", ["nan.csv", "empty", "skipped"]),
        ("simulate foreign.csv --nodes 1", ["foreign.csv", "philly-csv"]),
        ("simulate binary.csv --nodes 1", ["binary.csv", "not a text file"]),
        ("simulate damaged.csv.gz --nodes 1", ["damaged.csv.gz", "damaged gzip"]),
        ("simulate none.csv --nodes 1", ["no such file", "none.csv"]),
        ("simulate . --nodes 1", [". is a folder"]),
        ("simulate jobs.csv --cluster none.csv", ["no such file", "none.csv"]),
        ("simulate jobs.csv --cluster twins.csv", ["twins.csv, line 3", "'n0'"]),
        ("inspect none.csv", ["no such file", "none.csv"]),
        ("inspect header.csv", ["header.csv", "empty"]),
        ("inspect nan.csv --skip-bad-rows", ["nan.csv", "empty"]),
        ("bench sim --trace none.csv --nodes 1", ["no such file", "none.csv"]),
        ("bench sim --trace nan.csv --nodes 1 --policies fifo", ["nan.csv, line 2", "'nan'"]),
        ("bench sim --trace jobs.csv --nodes 1 --first 9", ["no job", "'jobs'"]),
        ("simulate --resume none.roost", ["no such file", "none.roost"]),
        ("simulate --resume jobs.csv", ["jobs.csv", "not a saved simulation"]),
        ("simulate --resume .", [". is a folder"]),
        ("diff log.jsonl none.jsonl", ["no such file", "none.jsonl"]),
        ("diff log.jsonl jobs.csv", ["jobs.csv, line 1", "event log"]),
        ("diff log.jsonl binary.csv", ["binary.csv", "event log"]),
        ("diff log.jsonl deep.jsonl", ["deep.jsonl, line 1", "event log"]),
        ("diff . log.jsonl", ["cannot read .", "Is a directory"]),
    ],
)
def test_what_cannot_be_read_or_run_is_named(typed: str, says: list[str]) -> None:
    told = roost(*typed.split())

    assert all(part in told.error for part in says), told
    assert told.out == ""


@pytest.mark.parametrize("number", ["nan", "-1", "-0.5", "inf", "1e999", "x", ""])
@pytest.mark.parametrize(
    "option",
    [
        *("--restart", "--resize", "--checkpoint-cost"),
        *("--node-mtbf", "--node-mttr", "--gpu-mtbf", "--gpu-mttr"),
        *("--scaling", "--interference", "--estimate-error"),
        *("--nodes", "--gpus-per-node", "--nodes-per-switch", "--sockets", "--limit", "--seed"),
    ],
)
def test_a_number_that_is_none_is_refused_with_the_option_it_is_for(
    option: str, number: str
) -> None:
    told = roost("simulate", "jobs.csv", "--nodes", "1", f"{option}={number}")

    assert option in told.error
    assert number in told.error
    assert told.out == ""


@pytest.mark.parametrize("number", ["nan", "-1", "soon", ""])
@pytest.mark.parametrize("option", ["--checkpoint-every", "--min-run", "--stop-at"])
def test_times_that_may_be_without_end_are_still_times(option: str, number: str) -> None:
    assert f"'{option}'" in roost(*SIMULATE.split(), option, number).error
    assert roost(*SIMULATE.split(), option, "inf").status == 0


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (f"{SIMULATE} --speed gpu=nan", ["'gpu'", "nan"]),
        (f"{SIMULATE} --speed gpu=0", ["'gpu'", "0"]),
        (f"{SIMULATE} --speed gpu", ["--speed", "'gpu'"]),
        (f"{SIMULATE} --speed gpu=1,gpu=2", ["--speed", "'gpu'", "twice"]),
        (f"{SIMULATE} --spread node=-1", ["'node'", "-1"]),
        (f"{SIMULATE} --queue q:weight=nan", ["'weight'", "'q'", "'nan'"]),
        (f"{SIMULATE} --queue q:weight=-1", ["q", "weight", "-1"]),
        (f"{SIMULATE} --queue q --queue q:weight=2", ["queue 'q'", "twice"]),
        (f"{SIMULATE} --queue :weight=2", ["--queue", "NAME"]),
        (f"{SIMULATE} -p tiresias:limits=60/nan", ["'limits'", "'tiresias'", "60/nan"]),
        (f"{SIMULATE} -p tiresias:limits=60,limits=70", ["'limits'", "'tiresias'", "twice"]),
        (f"{SIMULATE} -p tiresias:limits=", ["'limits'", "'tiresias'", "needs a value"]),
        (f"{SIMULATE} -p tiresias:promote=-1", ["promote", "-1"]),
        (f"{SIMULATE} -p conservative:depth=0", ["depth", "at least 1", "0"]),
        (f"{SIMULATE} -p backfill:depth=-1", ["depth", "-1"]),
        (f"{SIMULATE} -p las:quantum_s=1e-9", ["quantum_s", "1e-09"]),
        (f"simulate --synthetic jobs={10**30}", ["jobs", str(10**30)]),
        ("simulate --synthetic jobs=0", ["jobs", "1", "got 0"]),
        ("simulate --synthetic jobs=-3", ["jobs", "1", "got -3"]),
        ("simulate --synthetic load=nan", ["'load'", "'nan'"]),
        ("simulate --synthetic gpu_weights=1/2", ["'gpu_weights'", "1:2/3:4", "'1/2'"]),
        ("compare jobs.csv --nodes 1 -p ,", ["at least one policy"]),
        ("compare jobs.csv --nodes 1 --seeds 0", ["--seeds", "0"]),
        ("compare jobs.csv --nodes 1 -j 0", ["--processes", "0"]),
        ("bench sim --trace jobs.csv --nodes 1 --count -1", ["--count", "'-1'"]),
        ("bench sim --trace jobs.csv --nodes 1 --sizes 1,two", ["--sizes", "'two'"]),
        ("bench sim --trace jobs.csv --nodes 1 --policies ,", ["at least one policy"]),
    ],
)
def test_settings_that_make_no_sense_are_named(typed: str, says: list[str]) -> None:
    told = roost(*typed.split())

    assert all(part in told.error for part in says), told
    assert told.out == ""


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("simulate", "give a trace file, --synthetic jobs=1000,... to generate one, or --from"),
        (
            "simulate jobs.csv --synthetic jobs=5",
            "give a trace file, --synthetic jobs=1000,... to generate one, or --from",
        ),
        ("simulate jobs.csv", "give --nodes N or --cluster"),
        ("simulate jobs.csv --gpus-per-node 4", "--gpus-per-node needs --nodes"),
        ("simulate jobs.csv --nodes 2 --cluster n.csv", "--nodes does not go with --cluster"),
        ("simulate jobs.csv --kind A100 --cluster n.csv", "--kind does not go with --cluster"),
        ("simulate --synthetic jobs=5 --limit 3", "--limit is about trace files"),
        ("simulate --synthetic jobs=5 --skip-bad-rows", "--skip-bad-rows is about trace files"),
        ("simulate jobs.csv --resume x", "TRACE does not go with --resume"),
        ("simulate -p srtf --resume x", "--policy does not go with --resume"),
        ("simulate --seed 3 --resume x", "--seed does not go with --resume"),
        ("simulate --nodes 3 --resume x", "--nodes does not go with --resume"),
        (f"{SIMULATE} --throughputs x", "'roost' have no option 'throughputs'"),
        (f"{SIMULATE} more", "more"),
    ],
)
def test_what_does_not_go_together_is_refused_and_not_ignored(typed: str, says: str) -> None:
    assert says in roost(*typed.split()).error


@pytest.mark.parametrize(
    "typed",
    [
        f"{SIMULATE} --report",
        f"{SIMULATE} --save",
        f"{SIMULATE} --events",
        "compare jobs.csv --nodes 1 -p fifo --report",
        "demo policies --report",
        "generate",
        "inspect jobs.csv --to",
    ],
)
@pytest.mark.parametrize(
    ("place", "says"),
    [("none/out", "no folder"), ("jobs.csv/out", "no folder"), (".", "."), ("", "")],
    ids=["no such folder", "a file as folder", "a folder", "no name"],
)
def test_where_nothing_can_be_written_nothing_is_run(
    typed: str, place: str, says: str, folder: Path
) -> None:
    before = sorted(folder.iterdir())

    told = roost(*typed.split(), place)

    assert says in told.error
    assert place in told.error
    assert told.out == ""
    assert sorted(folder.iterdir()) == before


def test_names_with_line_breaks_do_not_break_the_line() -> None:
    assert "no such file" in roost("simulate", "two\nlines\r\nthree", "--nodes", 1).error


def test_bytes_that_are_no_text_may_be_in_the_name_of_a_file(folder: Path) -> None:
    name = b"j\xff.csv".decode(errors="surrogateescape")
    write_jobs(folder, name=name)

    told = roost("simulate", name, "--nodes", 1, "--report", "page.html", "-o", "json")

    assert told.status == 0
    assert "\udcff" not in (folder / "page.html").read_text()


def test_no_command_at_all_shows_what_there_is() -> None:
    for told in (roost(), roost("--help"), roost("bench")):
        assert told.status == 0
        assert told.out.startswith("Usage: roost")
        assert told.err == ""


@pytest.mark.parametrize(
    ("number", "status", "told"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "interrupted\n")],
)
def test_an_exit_dropped_by_the_interpreter_is_asked_for_again(
    number: int, status: int, told: str
) -> None:
    script = f"""
import os, threading, time
from roost import cli

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), {int(number)})
        while True:  # until the signal is handled here, and its exit dropped
            time.sleep(0.01)

start = threading.Thread.start

def slowly(thread):  # as on a busy machine: the interpreter is still dropping the first
    start(thread)
    time.sleep(0.2)

threading.Thread.start = slowly

def drop(*_, **__):
    Dropped()
    time.sleep(50)

cli.cli.main = drop
raise SystemExit(cli.main())
"""
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (status, told)
