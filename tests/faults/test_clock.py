"""Clocks that jump and machines that pause, under a real ``roost up``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.faults.faults import running, script, trial, until
from tests.support import oracles
from tests.support.trial import SHIM, Trial, kill_exactly, shim_of

#: Adds the number in a file to the wall clock of a process, and to nothing else.
SHIFT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    long found = 0;
    const char *name = getenv("CLOCK_SHIFT");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &found) != 1) found = 0;
        fclose(file);
    }
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (out) *out = fine.tv_sec;
    return fine.tv_sec;
}
"""
HOUR = 3600
#: Fails in a way that is worth another try, after a pause.
FAILS_ONCE = 'test "$ROOST_ATTEMPT" -gt 1 || { echo "Connection reset by peer" >&2; exit 75; }'
AGAIN = {"max": 2, "delay": 2, "on_exit_codes": [75]}
STUBBORN = "trap '' TERM; sleep 60 & wait; wait"
#: How long the machine pauses, in seconds.
PAUSE_S = float(os.environ.get("ROOST_TEST_PAUSE_S", "5"))
#: To the other side of the 19th of January 2038, when 32 bits of seconds end.
TO_2038 = 2_147_483_648 + HOUR - int(time.time())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clock")
    (folder / "shift.c").write_text(SHIFT)
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", "shift.so", "shift.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - our own
    return folder / "shift.so"


def began_shifted(one: Trial, library: Path, seconds: int) -> Path:
    """Start a server whose wall clock is wrong by so much; the file that says how much."""
    wrong = one.folder / "shift"
    wrong.write_text(str(seconds))
    one.server.start(env={"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(wrong)})
    assert one.server.ready(), one.server.said()
    return wrong


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@needs_gcc
def test_a_wall_clock_that_jumps_moves_no_limit(library: Path, tmp_path: Path) -> None:
    with trial(tmp_path, seed=20) as one:
        wrong = began_shifted(one, library, 0)
        goes_on = running(one, 120.0)
        for jump in (HOUR, -HOUR, TO_2038):
            limited = one.submit(script(one, "sleep 60", max_duration=2))
            failing = one.submit(script(one, FAILS_ONCE, retry=AGAIN))
            stubborn = one.submit(script(one, STUBBORN, checkpoint={"grace": 1}))
            one.until(limited, "running")
            one.until(stubborn, "running")
            assert until(lambda job=failing: one.view(job)["not_before"])  # type: ignore[misc]
            began = time.monotonic()
            one.command(stubborn, "cancel")
            wrong.write_text(str(jump))
            assert one.submit(script(one, "true")).id
            one.until(limited, "failed")
            one.until(stubborn, "cancelled")
            assert one.until(failing, "succeeded", "failed")["state"] == "succeeded"
            assert 1.0 < time.monotonic() - began < HOUR
        assert one.view(goes_on)["state"] == "running"
        one.command(goes_on, "cancel")
        one.settle()
        assert one.check() == []
        in_order(one)


@needs_gcc
def test_servers_with_other_clocks_follow_each_other(library: Path, tmp_path: Path) -> None:
    with trial(tmp_path, seed=22) as one:
        assert one.begin()
        goes_on = running(one, 120.0)
        for jump in (TO_2038, -HOUR, 0):
            one.server.kill()
            began_shifted(one, library, jump)
            assert one.view(goes_on)["attempt"] == 1
            one.until(one.submit(script(one, "true")), "succeeded")
        one.command(goes_on, "cancel")
        one.settle()
        assert one.check() == []
        in_order(one)


def in_order(one: Trial) -> None:
    """The journal's times never go back."""
    times = [entry.time for entry in one.server.journal().entries]
    assert times == sorted(times)
    for row in one.server.journal().rows.values():
        assert row.submitted_at <= (row.started_at or row.submitted_at) <= (row.finished_at or 0)


def test_a_machine_that_pauses_loses_nothing(tmp_path: Path) -> None:
    with trial(tmp_path, seed=21) as one:
        assert one.begin()
        limited = one.submit(script(one, "sleep 60", max_duration=30))
        jobs = [running(one, 60.0), limited]
        one.until(limited, "running")
        workers = [process.pid for process in oracles.carrying(one.mark)]
        shims = {shim_of(pid) for pid in workers}
        paused = [(pid, one.mark.encode(), "environ") for pid in workers]
        paused += [(pid, SHIM, "cmdline") for pid in shims]
        paused.append((one.server.pid, b"roost", "cmdline"))
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid, wanted, where in paused:
                assert kill_exactly(pid, wanted, where, number)
            if number == signal.SIGSTOP:
                time.sleep(PAUSE_S)
        assert one.server.ready()
        for job in jobs:
            view = one.view(job)
            assert (view["state"], view["attempt"], view["preemptions"]) == ("running", 1, 0)
            assert one.command(job, "cancel")
        one.settle()
        assert one.check() == []
