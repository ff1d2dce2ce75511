"""From an order to a running process: account, limits, cores, folder, and then its own program."""

from __future__ import annotations

import errno
import os
import resource

from roost.engines.local.shim import process_tree
from roost.engines.local.shim.stdlib_subset import ignoring, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_START = "cannot start"
_OFFERED = 3
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: Above what a server has, so that short memory costs a worker and not the server.
_OOM_SCORE = "300"

#: Signals that this process handles, and that a worker gets back as they were.
HANDLED = (
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def spawn(order: dict[str, Any], what: dict[str, Any], out: int) -> tuple[int, int]:
    """Start a process in a session of its own; its number, and a pipe that tells how it went."""
    heard, tell = os.pipe()
    leaf = _leaf(order.get("cgroup", ""), what)
    # Fork, not posix_spawn: limits, account and session are set in the child. This process has one
    # thread, so the child finds no lock held.
    pid = os.fork()
    if pid:
        os.close(tell)
        return pid, heard
    step = _START
    try:
        # A session of its own: signals to its group reach its children, and no other worker.
        os.setsid()
        _reset_signals()
        # Into the cgroup and under the limits while still root; then the account is given up.
        if leaf:
            process_tree.write(f"{leaf}/cgroup.procs", "0")
        _connect(out)
        step = "cannot set limits"
        _limit(order, what)
        account = None if what.get("as_server") else order.get("account")
        step = f"cannot run as {account['name']}" if account else step
        _become(account)
        # After the change of account, which would reset it. The parent may have died before that:
        # then no signal would come, so the child looks once itself.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != order["pid"]:
            os._exit(127)
        os.umask(0o022)
        for folder in what.get("make", ()):
            step = f"cannot make {folder}"
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        if what.get("env_file"):
            _offer(what["env_file"].encode())
        step = f"cannot enter {what['cwd']}"
        os.chdir(what["cwd"])
        step = f"cannot run {what['argv'][0]}"
        os.execvpe(what["argv"][0], what["argv"], what["env"])  # noqa: S606 - this is its purpose
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        why, number = getattr(error, "strerror", None) or repr(error), getattr(error, "errno", 0)
        # What is done before the program has its account and its folder is no fault of the job.
        short = number if step == _START or number == errno.ENFILE else 0
        os.write(tell, f"{short or 0} {what['name']}: {step}: {why}".encode()[:1000])
    finally:
        os._exit(127)


def outcome(heard: int) -> tuple[str, int]:
    """Wait until a process runs its program; why it does not, or nothing.

    With it goes the number of an error that is the machine's, not the job's; 0: it is not. The pipe
    is closed by ``exec``: its end without a word means that all went well.
    """
    text = b""
    try:
        while more := os.read(heard, 4096):
            text += more
    finally:
        os.close(heard)
    number, _, why = text.decode(errors="replace").partition(" ")
    return why, int(number) if number.isdigit() else 0


def oom_killed(cgroup: str, name: str) -> bool:
    """Whether the kernel killed processes of a worker for its memory limit."""
    try:
        with open(f"{cgroup}/{name}/memory.events") as file:  # noqa: PTH123
            fields = dict(line.split() for line in file)
    except (OSError, ValueError):
        return False
    return int(fields.get("oom_kill", "0")) > 0


def _leaf(cgroup: str, what: dict[str, Any]) -> str:
    if not cgroup:
        return ""
    leaf, limits = f"{cgroup}/{what.get('leaf') or what['name']}", what.get("cgroup", {})
    try:
        os.makedirs(leaf, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        for file, text in limits.items():
            process_tree.write(f"{leaf}/{file}", text)
    except OSError:
        if limits:
            raise
        return ""  # it would only have helped to clean up
    return leaf


def _offer(text: bytes) -> None:
    """Leave a text open for a container's runtime, where its arguments say (``containers``)."""
    # Memory, not a file: there are secrets in it.
    given = os.memfd_create("env")
    while text:
        text = text[os.write(given, text) :]
    os.dup2(given, _OFFERED)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _connect(out: int) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def _limit(order: dict[str, Any], what: dict[str, Any]) -> None:
    with ignoring(OSError):
        process_tree.write("/proc/self/oom_score_adj", _OOM_SCORE)
    if what.get("cpus"):
        os.sched_setaffinity(0, what["cpus"])
    if what.get("data_bytes"):
        resource.setrlimit(resource.RLIMIT_DATA, (what["data_bytes"], what["data_bytes"]))
    if order.get("mark"):
        # The limit for real-time threads, so high that it never matters: a mark that is
        # inherited, outlives a change of environment, and tells to which run a process belongs. A
        # job that means to hide can lower it: then only a cgroup tells.
        with ignoring(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (order["mark"], order["mark"]))


def _become(account: dict[str, Any] | None) -> None:
    if account:
        os.setgroups(account["groups"])
        os.setgid(account["gid"])
        os.setuid(account["uid"])


def _prctl(option: int, value: int) -> None:
    import ctypes  # noqa: PLC0415 - slow to import, and not needed before

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
