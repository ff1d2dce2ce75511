"""Reading the end of a log: which line best tells why the program ended.

The last traceback decides, if there is one: a message further up was survived. Where it says only
that another process died, or that a launcher gives up, the tracebacks before it are asked. Without
tracebacks the last lines are searched for the messages of ``signatures``.

Logs are hostile: any bytes, any length of line. Everything here is a search for fixed words, or an
expression that looks at a byte a bounded number of times; the time is linear in the log.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from roost.jobs.failures.signatures import EXCEPTIONS, HARMLESS, SIGNATURES, WRAPPERS
from roost.jobs.failures.verdicts import KINDS, Tier

#: How much of the end of a log is looked at.
TAIL_BYTES = 64 * 1024

_LINE_MAX = 2000
_SHOWN_MAX = 300
#: Bounds on the search: lines without a traceback, lines with one word, tracebacks, their lines.
_LINES, _TRIES, _TRACEBACKS, _FRAMES, _MESSAGE_LINES = 200, 16, 24, 400, 6

_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -Z\\^_])")
_TRACEBACK = b"Traceback (most recent call last):"
_EXCEPTION = re.compile(rb"((?:[A-Za-z_]\w*\.){0,12}[A-Za-z_]\w*)(?::(?:\s|$)|\s*$)")
_FILE = re.compile(rb'File "([^"\n]{1,160})", line (\d{1,7})')
_USUAL = (b"Error", b"Exception", b"Interrupt", b"Exit", b"Timeout", b"Failure", b"Warning")
_UNREACHED = b"after connection broken by"
_CHAINED = (
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
)


class LogEvidence(NamedTuple):
    """A kind of failure and the line that tells; ``raised``: it ended a program for certain.

    The line is whole, as it was printed: not yet fit for people. ``where`` is the place in the
    program, if lines above tell it.
    """

    kind: str
    line: bytes
    raised: bool = False
    where: str = ""

    @property
    def tier(self) -> Tier:
        """How well it explains an end."""
        return KINDS[self.kind].tier


def read(tail: bytes) -> LogEvidence | None:
    """The best explanation that the end of a log has."""
    text = clean(tail)
    low = text.lower()
    raised = _raised(text, low)
    if raised is None:
        return _printed(text, low, Tier.VICTIM)
    if raised.tier == Tier.GENERIC or raised.kind.startswith(("cuda", "illegal")):
        return _printed(text, low, Tier.HARDWARE) or raised
    if raised.tier > Tier.GENERIC:
        return _printed(text, low, Tier.CAUSE) or raised
    return raised


def refused(tail: bytes) -> LogEvidence | None:
    """What a program says that does not understand its arguments: its usage, then an error."""
    lines = clean(tail).split(b"\n")[-_LINES:]
    error = b""
    for line in reversed(lines):
        low = line[:_LINE_MAX].strip().lower()
        if low.startswith(b"usage:"):
            return LogEvidence("bad-arguments", error) if error else None
        if not error and (low.startswith(b"error: ") or b": error: " in low):
            error = line
    return None


def clean(tail: bytes) -> bytes:
    """The end of a log without colours, and with each redrawn line as a line of its own."""
    plain = _ANSI.sub(b"", tail[-TAIL_BYTES:])
    return plain.replace(b"\r", b"\n").replace(b"\0", b"")


def last_line(tail: bytes) -> bytes:
    """The last line that says anything."""
    text = clean(tail).rstrip()
    return text[text.rfind(b"\n") + 1 :]


def shown(line: bytes) -> str:
    """A line fit for people: text, no control characters, not too long."""
    text = line[:_LINE_MAX].decode("utf-8", "replace").strip()
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def _raised(text: bytes, low: bytes) -> LogEvidence | None:
    """What the last traceback ended with, or an earlier one that explains it."""
    last: LogEvidence | None = None
    end = len(text)
    for _ in range(_TRACEBACKS):
        at = text.rfind(_TRACEBACK, 0, end)
        if at < 0:
            break
        found = _exception(text, low, at, end)
        if last is None:
            last = found
        elif found is not None and found.tier < min(last.tier, Tier.BARE):
            return found
        if last is not None and (
            last.tier <= Tier.CAUSE or (last.tier == Tier.GENERIC and not _chained(text, at))
        ):
            return last
        end = at
    return last


def _chained(text: bytes, at: int) -> bool:
    """Whether the traceback there came of the one before it."""
    before = text[max(0, at - 200) : at]
    return any(words in before for words in _CHAINED)


def _exception(text: bytes, low: bytes, at: int, end: int) -> LogEvidence | None:
    """What the traceback there says at its end; None for a launcher's, which tells of others."""
    # Launchers put a rank or a time before each line: as wide on this one as on those below.
    column = at - (text.rfind(b"\n", 0, at) + 1)
    unusual: tuple[int, bytes] | None = None
    start = at
    for _ in range(_FRAMES):
        start = text.find(b"\n", start, end) + 1
        if start == 0:
            break
        inner = start + column
        match = _EXCEPTION.match(text[inner : min(inner + _LINE_MAX, _line_end(text, start))])
        if match is None:
            continue
        name = match[1].rpartition(b".")[2]
        if name.endswith(_USUAL) or name.decode() in EXCEPTIONS:
            return _named(text, low, inner, name)
        unusual = unusual or (inner, name)
    return _named(text, low, *unusual) if unusual else None


def _named(text: bytes, low: bytes, start: int, name: bytes) -> LogEvidence | None:
    """The kind of an exception, by its message or else by its name."""
    if name.decode() in WRAPPERS:
        return None
    end = start
    for _ in range(_MESSAGE_LINES):
        end = min(_line_end(text, end) + 1, len(text))
        if text.startswith((_TRACEBACK, b"\n"), end):
            break
    best = ""
    for kind, words in SIGNATURES:
        if best and KINDS[kind].tier >= KINDS[best].tier:
            continue
        if all(low.find(word, start, end) >= 0 for word in words):
            best = kind
    kind = best or EXCEPTIONS.get(name.decode(), "python-error")
    line = text[start : _line_end(text, start)]
    return LogEvidence(kind, line, raised=True, where=_where(kind, text, start))


def _printed(text: bytes, low: bytes, worst: Tier) -> LogEvidence | None:
    """The last of the last lines that has a signature, of the lowest tier there is."""
    first = 0 if worst == Tier.HARDWARE else _last_lines(low)
    best: tuple[Tier, int, int, str] | None = None
    for order, (kind, words) in enumerate(SIGNATURES):
        tier = KINDS[kind].tier
        if tier > worst or (best is not None and tier > best[0]):
            continue
        at = _last_line_with(low, words, first)
        if at >= 0 and (best is None or (tier, -at, order) < best[:3]):
            best = tier, -at, order, kind
    if best is None:
        return None
    at, kind = -best[1], best[3]
    if kind == "missing-package" and _UNREACHED in low:
        kind = "network"  # pip says that there is no such package when it can ask nobody, too
    return LogEvidence(kind, text[at : _line_end(text, at)], where=_where(kind, text, at))


def _where(kind: str, text: bytes, at: int) -> str:
    """The file and the line that Python names above a syntax error."""
    if kind != "syntax-error":
        return ""
    frames = _FILE.findall(text, max(0, at - _LINE_MAX), at)
    return shown(b"%b, line %b" % frames[-1]) if frames else ""


def _last_lines(low: bytes) -> int:
    """Where the last lines begin."""
    start = len(low)
    for _ in range(_LINES):
        start = low.rfind(b"\n", 0, start)
        if start < 0:
            return 0
    return start


def _last_line_with(low: bytes, words: tuple[bytes, ...], first: int) -> int:
    """Where the last line with all these words begins, harmless ones left out; -1 for none."""
    end = len(low)
    for _ in range(_TRIES):
        at = low.rfind(words[0], first, end)
        if at < 0:
            return -1
        begin = max(low.rfind(b"\n", 0, at) + 1, at - _LINE_MAX // 2)
        line = low[begin : min(_line_end(low, at), at + _LINE_MAX // 2)]
        if all(word in line for word in words) and not any(word in line for word in HARMLESS):
            return begin
        end = max(begin, first)
    return -1


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return len(text) if end < 0 else end
