"""The kinds of failure of a run: whose fault they are, and what to tell the user.

Each kind says whether a retry can help and how much it tells about the devices it ran on. How a
kind is recognised in a log is in ``signatures``; which one applies to a run is for ``failures``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Literal

Whose = Literal["user", "platform", "unknown"]
Retry = Literal["never", "yes", "unknown"]


class Tier(IntEnum):
    """How well a kind explains the end of a gang: the lowest among its workers is the cause."""

    HARDWARE = 0
    CAUSE = 1
    GENERIC = 2
    BARE = 3  # an exit code or a signal, and no word about why
    SYMPTOM = 4  # what a worker says when another one has died
    VICTIM = 5  # ended by the stop that follows the first failure


class Blame(IntEnum):
    """What a failure says about the node, or about the devices, on which it happened."""

    NONE = 0
    NODE = 1
    WEAK = 2
    STRONG = 3


@dataclass(frozen=True, slots=True)
class FailureKind:
    """A kind of failure, as users read it."""

    phrase: str
    whose: Whose
    retry: Retry
    advice: str
    tier: Tier = Tier.CAUSE
    blame: Blame = Blame.NONE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run failed: what happened, whose fault it is, whether a retry can help, what to do.

    ``worker`` is where it began, ``evidence`` the line of its log that tells, ``code`` and
    ``signal`` how that worker ended.
    """

    kind: str
    phrase: str
    whose: Whose
    retry: Retry
    advice: str
    worker: str = ""
    evidence: str = ""
    code: int | None = None
    signal: str = ""

    def document(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return asdict(self)


_REPORT = "if it happens again, tell your administrator"

#: Every kind, by the name that the API and the tables use.
KINDS: dict[str, FailureKind] = {
    # The device, the node, Roost itself.
    "gpu-ecc": FailureKind(
        "GPU memory error (ECC)",
        "platform",
        "yes",
        "the device is avoided; the job is tried again elsewhere",
        Tier.HARDWARE,
        Blame.STRONG,
    ),
    "gpu-lost": FailureKind(
        "GPU lost",
        "platform",
        "yes",
        "the device no longer answers and is avoided; the job is tried again elsewhere",
        Tier.HARDWARE,
        Blame.STRONG,
    ),
    "node-lost": FailureKind(
        "the run was lost with its node or its supervisor",
        "platform",
        "yes",
        "tried again from the last checkpoint",
        Tier.HARDWARE,
    ),
    "displaced": FailureKind(
        "its pods had to make room",
        "platform",
        "yes",
        "another scheduler, a drain or a node in need took them; tried again from the last"
        " checkpoint",
        Tier.HARDWARE,
    ),
    "no-image": FailureKind(
        "its image cannot be had",
        "user",
        "yes",
        "check the name of the image, and that the cluster may pull it",
        Tier.HARDWARE,
    ),
    "pods-refused": FailureKind(
        "the cluster did not let its pods be made",
        "platform",
        "yes",
        "a quota, a webhook, a missing right, or a namespace that is about to go",
        Tier.HARDWARE,
    ),
    "never-started": FailureKind(
        "the run could not be started", "platform", "yes", _REPORT, Tier.HARDWARE, Blame.NODE
    ),
    "share-lost": FailureKind(
        "its share of the GPU could no longer be held",
        "platform",
        "yes",
        f"tried again from the last checkpoint; {_REPORT}",
        Tier.HARDWARE,
    ),
    "shared-fault": FailureKind(
        "a fault on a GPU that it shared side by side",
        "platform",
        "yes",
        "there the fault of one job ends all, and nothing tells whose it was; tried again from the"
        " last checkpoint. Jobs that share by turns (temporal) have faults of their own",
        Tier.HARDWARE,
    ),
    "resume-failed": FailureKind(
        "it could not be brought back to its GPU",
        "platform",
        "yes",
        "it had saved nothing that Roost knows of, so what it did is lost; tried again from the"
        " beginning",
        Tier.HARDWARE,
    ),
    "stopped": FailureKind(
        "stopped by Roost", "platform", "yes", "goes on from its last checkpoint", Tier.VICTIM
    ),
    # Memory.
    "gpu-out-of-memory": FailureKind(
        "GPU out of memory",
        "user",
        "never",
        "peak near the device's limit; try a smaller batch or more GPUs",
    ),
    "share-too-small": FailureKind(
        "its share of the GPU cannot hold the training",
        "user",
        "never",
        "ask for a larger share or more GPU memory, or use a smaller batch",
    ),
    "host-out-of-memory": FailureKind(
        "host out of memory",
        "user",
        "never",
        "ask for more memory, or use fewer data loaders and smaller buffers",
    ),
    "shared-memory": FailureKind(
        "shared memory exhausted",
        "user",
        "never",
        "the data loaders need more of /dev/shm than there is; use fewer of them",
    ),
    # The program and what it needs.
    "library-misuse": FailureKind(
        "roost.train is used wrongly", "user", "never", "change the script"
    ),
    "library-missing": FailureKind(
        "a shared library is missing or too old",
        "user",
        "never",
        "install it, or put its folder in LD_LIBRARY_PATH",
    ),
    "import-error": FailureKind(
        "import error",
        "user",
        "never",
        "install the package in the environment that the job runs in, or fix the import",
    ),
    "missing-package": FailureKind(
        "a package to be installed was not found",
        "user",
        "never",
        "check its name and version, and that it is made for this version of Python",
    ),
    "syntax-error": FailureKind("syntax error", "user", "never", "fix the line it names"),
    "bad-arguments": FailureKind(
        "bad command-line arguments",
        "user",
        "never",
        "check the command against the program's --help",
    ),
    "command-not-found": FailureKind(
        "command not found",
        "user",
        "never",
        "check the spelling and PATH; name the program by its full path",
    ),
    "not-executable": FailureKind(
        "the command cannot be executed",
        "user",
        "never",
        "make it executable (chmod +x) in folders that the job's account may enter, "
        "or name its interpreter",
    ),
    "invalid-job": FailureKind(
        "the job asks for something that cannot be", "user", "never", "change the job file"
    ),
    "missing-file": FailureKind(
        "file not found", "user", "never", "check the path as seen from the job's working directory"
    ),
    "permission": FailureKind(
        "permission denied",
        "user",
        "never",
        "the job's account may not do that; check owner and mode of the path",
    ),
    "image-missing": FailureKind(
        "the container image cannot be had",
        "user",
        "never",
        "check its name and tag, and whether the server's machine may pull it",
    ),
    "setup-failed": FailureKind(
        "the setup script failed",
        "user",
        "unknown",
        "read the log of setup; the workers were not started",
    ),
    # What it reads and writes.
    "data-error": FailureKind(
        "bad or missing data",
        "user",
        "never",
        "the data set is damaged, incomplete or not what the program expects",
    ),
    "checkpoint-error": FailureKind(
        "checkpoint cannot be used",
        "user",
        "never",
        "it is damaged or of another model; remove it or start from an older one",
    ),
    "disk-full": FailureKind(
        "disk full", "unknown", "never", "free space, or write to another disk"
    ),
    "disk-quota": FailureKind(
        "disk quota exceeded", "user", "never", "delete old files, or ask for a larger quota"
    ),
    "resource-limit": FailureKind(
        "a limit on files, processes or threads was reached",
        "user",
        "never",
        "use fewer workers or open files, or have the limit (ulimit) raised",
    ),
    "network": FailureKind(
        "a remote service could not be reached",
        "unknown",
        "yes",
        "a download or an API call failed; keep a local copy of what the job needs",
    ),
    "port-in-use": FailureKind(
        "port already in use",
        "unknown",
        "yes",
        "use the port in MASTER_PORT instead of a fixed one",
    ),
    # The model.
    "diverged-loss": FailureKind(
        "the loss diverged",
        "user",
        "never",
        "try a lower learning rate, gradient clipping or another precision",
    ),
    "shape-mismatch": FailureKind(
        "tensors do not fit together",
        "user",
        "never",
        "shapes, types or devices of two tensors differ at the line it names",
    ),
    "device-assert": FailureKind(
        "an index is out of range on the GPU",
        "user",
        "never",
        "check labels and embedding indices; CUDA_LAUNCH_BLOCKING=1 shows the line",
    ),
    # CUDA.
    "cuda-version-mismatch": FailureKind(
        "CUDA version mismatch",
        "user",
        "never",
        "install a build that fits the driver and this kind of GPU",
    ),
    "cuda-init": FailureKind(
        "CUDA could not be initialised",
        "unknown",
        "unknown",
        f"no usable GPU was seen by the job; {_REPORT}",
        blame=Blame.WEAK,
    ),
    "illegal-memory-access": FailureKind(
        "illegal memory access on the GPU",
        "unknown",
        "unknown",
        f"usually a bug in a kernel, seldom the device; {_REPORT}",
        blame=Blame.WEAK,
    ),
    "cuda-failure": FailureKind(
        "CUDA failure", "unknown", "yes", f"a call to the GPU failed; {_REPORT}", blame=Blame.WEAK
    ),
    # Python and the rest of the program's own errors.
    "assertion": FailureKind(
        "an assertion failed", "user", "unknown", "read the last traceback of the log", Tier.GENERIC
    ),
    "python-error": FailureKind(
        "the program raised an error",
        "user",
        "unknown",
        "read the last traceback of the log",
        Tier.GENERIC,
    ),
    "segfault": FailureKind(
        "segmentation fault",
        "unknown",
        "unknown",
        "native code failed; check the versions of compiled packages",
        Tier.GENERIC,
    ),
    "core-dump": FailureKind(
        "native code aborted",
        "unknown",
        "unknown",
        "the lines above the abort in the log say why",
        Tier.GENERIC,
    ),
    # Ends without a word.
    "disk-bound": FailureKind(
        "stopped at the bound on its user's disk space",
        "user",
        "never",
        "free space with roost delete (roost whoami says what there is), or ask an administrator "
        "for more (roost users set NAME --disk-max SIZE)",
    ),
    "timeout": FailureKind(
        "its time limit was reached",
        "user",
        "never",
        "raise max_duration, or save checkpoints and submit the rest",
    ),
    "killed": FailureKind(
        "killed from outside",
        "unknown",
        "yes",
        "somebody sent SIGKILL, or the machine ran out of memory",
        Tier.BARE,
    ),
    "interrupted": FailureKind(
        "interrupted", "user", "never", "somebody sent SIGINT", Tier.SYMPTOM
    ),
    "signature-unknown": FailureKind(
        "no known cause",
        "unknown",
        "unknown",
        "print more, or run it by hand",
        Tier.BARE,
    ),
    # What the others of a gang say when one has died.
    "nccl-failure": FailureKind(
        "NCCL failure",
        "unknown",
        "yes",
        "workers lost each other; NCCL_DEBUG=INFO tells more",
        Tier.SYMPTOM,
        Blame.WEAK,
    ),
    "gloo-failure": FailureKind(
        "gloo failure",
        "unknown",
        "yes",
        "workers could not reach each other; check MASTER_ADDR and the interface",
        Tier.SYMPTOM,
    ),
    "mpi-failure": FailureKind(
        "MPI failure",
        "unknown",
        "yes",
        "mpirun ended the job; the log of the rank that failed first says why",
        Tier.SYMPTOM,
    ),
    "connection-lost": FailureKind(
        "connection to another worker lost",
        "unknown",
        "yes",
        "another worker died or could not be reached",
        Tier.SYMPTOM,
    ),
    "terminated": FailureKind(
        "terminated from outside", "unknown", "yes", "somebody sent SIGTERM", Tier.VICTIM
    ),
}

#: The worker that need not be named: most jobs have no other.
_ONLY = "worker-0"

_WHOSE = {"user": "yours", "platform": "not yours", "unknown": "cause unclear"}
#: The kind with a phrase that says already that the cause is unclear.
UNKNOWN = "signature-unknown"
_RETRY = {"never": "not retried", "yes": "worth a retry", "unknown": "retried only if asked"}


def verdict(kind: str, **fields: Any) -> Verdict:
    """A verdict of that kind; ``fields`` are those that the kind does not give."""
    known = KINDS[kind]
    given = {"advice": known.advice, **fields}
    return Verdict(kind, known.phrase, known.whose, known.retry, **given)


def sentence(verdict: Verdict, again: str = "") -> str:
    """The one sentence that a user reads; ``again`` says what was decided, if it was."""
    how = verdict.signal or (f"exit {verdict.code}" if verdict.code is not None else "")
    if how and verdict.worker not in ("", _ONLY):
        how = f"{how} in {verdict.worker}"
    head = f"{how}, {verdict.phrase}" if how else verdict.phrase
    whose = "" if verdict.kind == UNKNOWN else f"{_WHOSE[verdict.whose]}, "
    return f"{head} ({whose}{again or _RETRY[verdict.retry]}): {verdict.advice}"
