"""Understanding failures: why a run ended, whose fault it is, and whether to try again.

Pure functions of what an engine reports, the ends of the workers' logs and what the job last said
of itself. The kinds of failure are in ``verdicts``, their signatures in ``signatures``, the reading
of a log in ``evidence``.

In a gang the first cause is looked for: a worker that says why it failed explains those that only
lost their connection to it, and those that were stopped because of it.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roost.engines import Ended, WorkerExit
from roost.jobfile.program import RetryRule
from roost.jobs.failures import evidence
from roost.jobs.failures.evidence import LogEvidence
from roost.jobs.failures.verdicts import KINDS, UNKNOWN, Tier, Verdict, sentence, verdict
from roost.jobs.redaction import Redactor

__all__ = ["RetryDecision", "Verdict", "classify", "decide", "sentence"]

#: Failures of the platform are not charged to the job; but they end somewhere.
PLATFORM_MAX = 10
DELAY_MAX_S = 600.0
#: A job whose own fault it is takes its neighbours with it each time.
SHARED_MAX = 3

_SETUP, _WORKER, _FIRST = "setup", "worker", "worker-0"
#: How much of a line stands in a sentence.
_FACT = 160


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What follows a failure: the end, or another try after ``delay_s``.

    ``charged``: it counts against the limit that the user set. ``tries``: it is the end because
    there were so many. ``unasked``: it is the end because no rule of the user's asks for more.
    """

    final: bool
    delay_s: float = 0.0
    charged: bool = True
    tries: int = 0
    unasked: bool = False

    def phrase(self) -> str:
        """In words, for the sentence."""
        if not self.final:
            return f"tried again in {self.delay_s:g} s" if self.delay_s else "tried again at once"
        if self.tries > 1:
            return f"all {self.tries} tries used"
        return "retry not asked for" if self.unasked else "not retried"


def classify(
    ended: Ended,
    tails: Mapping[str, bytes],
    loss: float | None = None,
    max_duration_s: float = math.inf,
    hide: Iterable[str] = (),
) -> Verdict | None:
    """Why a run ended; None if it succeeded.

    ``tails`` has the end of the log of each worker by its name. Values in ``hide`` (secrets) are
    blotted out of all that is told.
    """
    hidden = Redactor(hide)
    match ended.cause:
        case "stopped":
            return _by_problem(ended, hidden) or verdict("stopped")
        case "timeout":
            limit = "" if math.isinf(max_duration_s) else f" ({max_duration_s:g} s)"
            return verdict("timeout", advice=f"{KINDS['timeout'].advice}{limit}")
        case "bound":
            return verdict("disk-bound", evidence=_shown(ended.detail.encode(), hidden))
        case "lost":
            kind = "displaced" if DISPLACED in ended.detail else "node-lost"
            return verdict(kind, evidence=_shown(ended.detail.encode(), hidden))
        case "never-started":
            return _never_started(ended, tails, hidden)
        case "exit":
            first = first_cause(ended.exits, tails, loss)
            if first is None:
                return None
            theirs = KINDS[first.found.kind].whose == "user"
            fault = first.found.kind
            known = None if theirs else _by_problem(ended, hidden, first.exit, fault)
            return known or _told(first, hidden)


def decide(
    failed: Verdict, rule: RetryRule | None, failures: int = 0, platform_failures: int = 0
) -> RetryDecision:
    """Whether to try again, and when; the counts are of the failures before this one.

    Without a rule of the user's own, transient failures are retried by the default one, and those
    of unknown effect are not.
    """
    asked = rule if rule is not None else RetryRule()
    if failed.whose == "platform":
        if failed.retry == "never":
            return RetryDecision(final=True, charged=False)
        most = SHARED_MAX if failed.kind == "shared-fault" else PLATFORM_MAX
        if platform_failures >= most:
            return RetryDecision(final=True, charged=False, tries=platform_failures + 1)
        return RetryDecision(final=False, delay_s=_delay(asked, platform_failures), charged=False)
    named = failed.code is not None and failed.code in asked.on_exit_codes
    wanted = named or (rule is not None and not asked.on_exit_codes)
    if failed.retry == "never" or (failed.retry == "unknown" and not wanted):
        return RetryDecision(final=True, unasked=failed.retry == "unknown")
    if failures >= asked.max:
        return RetryDecision(final=True, tries=failures + 1)
    return RetryDecision(final=False, delay_s=_delay(asked, failures))


class RootCause(NamedTuple):
    """The worker with which a failure began, and what it says."""

    exit: WorkerExit
    found: LogEvidence


def first_cause(
    exits: Sequence[WorkerExit], tails: Mapping[str, bytes], loss: float | None = None
) -> RootCause | None:
    """Where the failure of a gang began; ``exits`` in the order in which the workers ended."""
    best: tuple[Tier, RootCause] | None = None
    first = True
    for ended in exits:
        if ended.code == 0:
            continue
        found = _explain(ended, _tail(ended, tails), loss)
        tier = found.tier
        if tier in (Tier.BARE, Tier.VICTIM) and not found.raised:
            # No worker had failed yet, so it was no consequence. Later ones may be.
            tier = Tier.GENERIC if first else Tier.VICTIM if _signal(ended) else tier
        if best is None or tier < best[0]:
            best = tier, RootCause(ended, found)
        first = False
    if best is None or (best[1].exit.role not in (_WORKER, _SETUP) and _served(exits)):
        return None
    return best[1]


def name(ended: WorkerExit) -> str:
    """The name of a worker, as its log has it."""
    return _SETUP if ended.role == _SETUP else f"{ended.role}-{ended.index}"


def _tail(ended: WorkerExit, tails: Mapping[str, bytes]) -> bytes:
    """The end of a worker's log; setup writes to that of the first worker."""
    return tails.get(name(ended)) or (tails.get(_FIRST, b"") if ended.role == _SETUP else b"")


def _served(exits: Sequence[WorkerExit]) -> bool:
    """Whether all main workers succeeded: the others are stopped when those are done."""
    main = [ended for ended in exits if ended.role == _WORKER]
    return bool(main) and all(ended.code == 0 for ended in main)


def _explain(ended: WorkerExit, tail: bytes, loss: float | None) -> LogEvidence:
    """Why one worker failed: what the kernel says, what its log says, what its status says."""
    if ended.oom:
        return LogEvidence("host-out-of-memory", evidence.last_line(tail), raised=True)
    found = evidence.read(tail)
    if ended.code == _USAGE and (found is None or found.tier > Tier.GENERIC):
        found = evidence.refused(tail) or found
    number = _signal(ended)
    kind = _BY_SIGNAL.get(number, "core-dump") if number else _BY_CODE.get(ended.code or 0, "")
    if kind and not _says_more(found, kind):
        line = found.line if found and found.kind == kind else evidence.last_line(tail)
        found = LogEvidence(kind, line)
    if found is None:
        found = LogEvidence("signature-unknown", evidence.last_line(tail))
    if loss is not None and not math.isfinite(loss) and found.kind in _VAGUE:
        return LogEvidence("diverged-loss", found.line, found.raised)
    return found


def _says_more(found: LogEvidence | None, kind: str) -> bool:
    """Whether a log explains an end better than the status of the process does."""
    if found is None:
        return False
    if kind in ("killed", "terminated"):
        # Lines of a log that was cut short are old news; tracebacks and kernel words are not.
        return (found.raised and found.tier <= Tier.GENERIC) or found.kind in _KILLERS
    if kind == "segfault":
        return found.tier <= Tier.CAUSE
    if kind == "core-dump":
        # C++ aborts on the way out of Python, and when a watchdog of its own gives up.
        return found.raised or found.tier in (Tier.HARDWARE, Tier.CAUSE, Tier.SYMPTOM)
    return found.kind in _SPAWN


def _signal(ended: WorkerExit) -> int:
    """The signal that ended a worker, or the one that its shell speaks of; 0 for none."""
    if ended.signal:
        return ended.signal
    number = (ended.code or 0) - 128
    return number if number in _BY_SIGNAL else 0


#: How the sentence begins when the API server refused to make or find something.
_REFUSED = ("Forbidden: ", "Unpermitted: ", "Conflict: ", "NotFound: ")


def _never_started(ended: Ended, tails: Mapping[str, bytes], hidden: Redactor) -> Verdict:
    setup = [failed for failed in ended.exits if failed.role == _SETUP]
    if setup:
        return _setup(setup[0], tails, hidden)
    detail = ended.detail.encode("utf-8", "replace")
    found = evidence.read(detail)
    kind = "never-started"
    if ended.detail.startswith("InvalidSpec: "):
        kind = "invalid-job"
    elif ended.detail.startswith(_REFUSED):
        kind = "pods-refused"  # no node had a part in it
    elif _NO_IMAGE.search(ended.detail):
        kind = "no-image"
    elif ended.detail.startswith("Trouble: "):
        pass  # of the machine, whatever it says of files and disks
    elif found is not None and found.tier == Tier.CAUSE:
        # A folder may be what is missing, too.
        program = not _NO_FOLDER.match(ended.detail)
        kind = _NO_PROGRAM.get(found.kind, found.kind) if program else found.kind
    line = _shown(detail, hidden)
    return verdict(kind, advice=_advice(kind, line), evidence=line)


def _setup(failed: WorkerExit, tails: Mapping[str, bytes], hidden: Redactor) -> Verdict:
    """Setup failed: its own kind, unless what it met goes away by itself."""
    cause = RootCause(failed, _explain(failed, _tail(failed, tails), None))
    if KINDS[cause.found.kind].retry == "yes" or cause.found.kind in _BEFORE:
        return _told(cause, hidden)
    return _told(RootCause(failed, cause.found._replace(kind="setup-failed")), hidden)


def _by_problem(
    ended: Ended, hidden: Redactor, exit_: WorkerExit | None = None, fault: str = ""
) -> Verdict | None:
    """What the engine knows of the devices explains an end without an apparent fault.

    ``fault`` is the kind that the log tells.
    """
    line = ended.problem.encode("utf-8", "replace")
    found = evidence.read(line)
    if found is None or (found.kind == "shared-fault" and fault not in _SHARED):
        return None
    if exit_ is not None:
        return _told(RootCause(exit_, found), hidden)
    shown = _shown(line, hidden)
    return verdict(found.kind, advice=_advice(found.kind, shown), evidence=shown)


def _told(cause: RootCause, hidden: Redactor) -> Verdict:
    own = KINDS[cause.found.kind].retry != "yes" and cause.found.kind not in _BEFORE
    if cause.exit.role == _SETUP and own:
        cause = cause._replace(found=cause.found._replace(kind="setup-failed"))
    kind, line = cause.found.kind, _shown(cause.found.line, hidden)
    return verdict(
        kind,
        advice=_advice(kind, line, hidden.out_of_text(cause.found.where)),
        worker=name(cause.exit),
        evidence=line,
        code=cause.exit.code,
        signal=_signal_name(cause.exit.signal),
    )


def _shown(line: bytes, hidden: Redactor) -> str:
    """A line without secrets: they are taken out before anything is cut."""
    return evidence.shown(hidden.out_of(line))


def _advice(kind: str, line: str, where: str = "") -> str:
    """What to do, with the one fact that it takes."""
    advice = KINDS[kind].advice
    if kind == UNKNOWN:
        return f"{advice} (its log ends with: {line[:_FACT]})" if line else advice
    detail = _DETAILS[kind].search(line) if kind in _DETAILS else None
    fact = where or (", line ".join(filter(None, detail.groups())) if detail else "")
    return f"{advice} ({fact})" if fact else advice


def _signal_name(number: int | None) -> str:
    if number is None:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _delay(rule: RetryRule, before: int) -> float:
    """Back-off: twice as long each time, up to a limit."""
    return min(rule.delay_s * 2.0 ** min(before, 64), DELAY_MAX_S)


_BY_SIGNAL: dict[int, str] = {
    signal.SIGINT: "interrupted",
    signal.SIGKILL: "killed",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "terminated",
    signal.SIGSEGV: "segfault",
    signal.SIGABRT: "core-dump",
    signal.SIGBUS: "core-dump",
    signal.SIGILL: "core-dump",
    signal.SIGFPE: "core-dump",
    signal.SIGXCPU: "resource-limit",
    signal.SIGXFSZ: "resource-limit",
    signal.SIGPIPE: "connection-lost",
}
_BY_CODE = {126: "not-executable", 127: "command-not-found"}
#: The exit code of a program that does not understand its arguments.
_USAGE = 2
#: What a shell's 126 and 127 may also mean, and what a limit's signal may be about.
_SPAWN = frozenset({"library-missing", "host-out-of-memory", "disk-full", "resource-limit"})
#: Faults that all have who share a GPU side by side.
_SHARED = frozenset({"illegal-memory-access", "cuda-failure", "cuda-init"})
#: What is behind a SIGKILL, if the log of the launcher tells.
_KILLERS = frozenset({"host-out-of-memory", "gpu-ecc", "gpu-lost"})
#: What keeps setup itself from running.
_BEFORE = frozenset({"image-missing"})
#: Kinds that a loss which is no number explains.
_VAGUE = frozenset({"python-error", "assertion", "signature-unknown"})
#: How a kubelet says that it has no image; and what is said of a pod that was made to go.
_NO_IMAGE = re.compile(r"\b(?:ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull)\b")
DISPLACED = "was displaced: "
_NO_FOLDER = re.compile(r"(?:[\w.-]{1,80}: )?cannot (?:run as |(?!run ))")
#: The program itself is what could not be found or executed.
_NO_PROGRAM = {"missing-file": "command-not-found", "permission": "not-executable"}

#: What to name in the advice, out of the line that tells.
_DETAILS = {
    "import-error": re.compile(r"(?:No module named|cannot import name) '?([\w.-]{1,80})"),
    "missing-file": re.compile(
        r"(?:directory: |open file )'([^']{1,160})'|cannot \w+ (\S{1,160}): "
    ),
    "permission": re.compile(r"denied: '([^']{1,160})'|cannot (?:enter|make) (\S{1,160}): "),
    "library-missing": re.compile(r"(lib[\w.+-]{1,80}\.so[\d.]{0,20})"),
    "syntax-error": re.compile(r"([^\s:]{1,160}): (?:line )?(\d{1,7}): "),
    "bad-arguments": re.compile(
        r"(?:[Ee]rror: |: (?=\w+ option|option requires))(\S.{1,160}?)\.?$"
    ),
    "command-not-found": re.compile(
        r"([\w./+-]{1,160})(?:: (?:command )?not found|: No such file or directory$)"
        r"|directory: '([^']{1,160})'"
    ),
    "not-executable": re.compile(
        r"([\w./+-]{1,160}): (?:Permission denied|Exec format error|cannot execute|Is a directory)"
        r"|denied: '([^']{1,160})'"
    ),
    "gpu-out-of-memory": re.compile(
        r"(Tried to allocate [\d.]{1,12} [KMGT]iB)"
        r"|(held \d{1,12} MiB of GPU memory, over its limit of \d{1,12} MiB)"
    ),
    "share-too-small": re.compile(
        r"(needs at least \d{1,12} MiB .{1,80} its share holds \d{1,12} MiB)"
    ),
    "share-lost": re.compile(r"(.{1,160})"),
    "shared-fault": re.compile(r"(it shared GPU .{1,120})"),
    "resume-failed": re.compile(r"back to its GPU: (.{1,160})"),
    "library-misuse": re.compile(r"Misuse: (.{1,160}?)\.?$"),
}
