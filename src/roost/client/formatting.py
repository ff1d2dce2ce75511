"""What is told to people, whatever they look at: times and amounts, and texts without tricks."""

from __future__ import annotations

import time
from collections.abc import Iterable

from roost.client.views import STATES, JobView, VerdictView

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def clean(text: object) -> str:
    """A text that cannot move the cursor, change colours or hide: what does not print is named."""
    told = str(text)
    if told.isprintable():
        return told
    return "".join(letter if letter.isprintable() else _named(letter) for letter in told)


def span(seconds: float | None) -> str:
    """A duration in at most two units: 42s, 5m10s, 3h12m, 2d4h."""
    if seconds is None:
        return "-"
    whole = max(0, round(seconds))
    for above, below, name, smaller in ((_DAY, _HOUR, "d", "h"), (_HOUR, _MINUTE, "h", "m")):
        if whole >= above:
            big, rest = divmod(whole, above)
            return f"{big}{name}{rest // below}{smaller}" if rest // below else f"{big}{name}"
    if whole >= _MINUTE:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes}m{rest}s" if rest and minutes < 10 else f"{minutes}m"  # noqa: PLR2004
    return f"{whole}s"


def ago(moment: float | None, now: float) -> str:
    """How long ago; nothing is said of what was not."""
    return "-" if moment is None else f"{span(now - moment)} ago"


def ahead(moment: float | None, now: float) -> str:
    """How soon: now, or in about so long."""
    if moment is None:
        return "unknown"
    return "now" if moment - now < 1 else f"in ~{about(moment - now)}"


def about(seconds: float) -> str:
    """A duration that was guessed: without seconds from a minute on."""
    return span(seconds if seconds < _MINUTE else round(seconds / _MINUTE) * _MINUTE)


def clock(moment: float | None) -> str:
    """The date and time here, to the second."""
    if moment is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
    except (OverflowError, ValueError, OSError):
        return f"{moment:.0f} s after 1970"


def amount(value: float) -> str:
    """A number of GPUs: whole, or with the digits that a share needs."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def gpus(value: float) -> str:
    """So many GPUs: 2 GPUs, 1 GPU, 0.5 GPU."""
    return f"{amount(value)} GPU{'' if 0 < value <= 1 else 's'}"


def ran(view: JobView, now: float) -> float | None:
    """How long a job's processes were up, in all its runs; ``None`` before it started."""
    if view.started_at is None:
        return None
    since = now if view.running_since is None else view.running_since
    return view.ran_s + max(0.0, now - since)


def workers(view: JobView) -> str:
    """Workers now and allowed: 2/1..4, or 1/1."""
    low, high, now = view.workers.min, view.workers.max, view.workers.now
    return f"{now}/{low}" if low == high else f"{now}/{low}..{high}"


def places(view: JobView) -> str:
    """The nodes of a job with the GPUs it holds there, and which part of them: n1:0,1 n2:3@0.5."""
    return " ".join(
        clean(place.node)
        + (f":{','.join(map(str, place.gpus))}" if place.gpus else "")
        + (f"@{amount(place.share)}" if place.gpus and place.share < 1 else "")
        for place in view.placement
    )


#: A line of a log with fewer letters than this may stand in a sentence by chance.
_TELLING = 20


def sharing(view: JobView) -> str:
    """How a job shares its GPUs: at 0.5 of GPU 0 (temporal, fixed); empty if it does not."""
    if view.share >= 1 or not view.way:
        return ""
    held = dict.fromkeys(gpu for place in view.placement for gpu in place.gpus)
    where = f" of GPU {', '.join(map(str, held))}" if held else " of a GPU"
    verb = "running at" if view.state == "running" else "at"
    return f"{verb} {amount(view.share)}{where} ({clean(view.way)}, {clean(view.qos)})"


def memory(view: JobView) -> str:
    """GPU memory of a worker: 3.1 of 8.0 GiB, predicted 2.9 GiB."""
    limit, seen = view.memory_limit_mib, view.memory_mib
    told = []
    if seen is not None:
        one, unit = mib(seen).split(" ")
        same = limit and mib(limit).endswith(unit)
        told.append(f"{one if same else mib(seen)}{f' of {mib(limit)}' if limit else ''}")
    if view.predicted_mib is not None:
        more = ", more than it may have" if limit and view.predicted_mib > limit else ""
        told.append(f"predicted {mib(view.predicted_mib)}{more}")
    if not told and limit:
        told.append(f"at most {mib(limit)}")
    return ", ".join(told)


def training(view: JobView) -> str:
    """What a job says of its training: 0.12 s a step, 2,048 samples/s, 3 workers together."""
    told = []
    if view.step_s is not None:
        told.append(f"{moment(view.step_s)} a step")
    if view.samples_per_s is not None:
        told.append(f"{figure(view.samples_per_s)} samples/s")
    if (view.world or 0) > 1 and view.state in ("running", "resizing"):
        told.append(f"{count(view.world or 0, 'worker')} together")
    if view.noise is not None:
        told.append(f"gradient noise {figure(view.noise)} samples")
    return ", ".join(told)


def figure(value: float) -> str:
    """A number with three digits, or all those of a large one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def mib(size: float) -> str:
    """A size in MiB, and from a GiB up in GiB with one decimal: 512 MiB, 3.1 GiB."""
    gib = size / 1024
    return f"{gib:.1f} GiB" if gib >= 1 else f"{size:.0f} MiB"


def moment(seconds: float) -> str:
    """A short time with three digits: 12.5 ms, 0.125 s, 3.2 s."""
    short = 0.1
    return f"{seconds:.3g} s" if seconds >= short else f"{1000 * seconds:.3g} ms"


def file_size(size: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004 - of each in the next
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count(number: int, what: str) -> str:
    """So many of something: 1 job, 1,200 jobs."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def why(view: JobView) -> str:
    """The sentence on why a job is where it is: the verdict on a failure, or its reason."""
    if view.cancelling and not view.over:
        return "being cancelled"
    if view.verdict is not None and view.state == "failed" and view.verdict.phrase:
        return _headline(view.verdict)
    return clean(view.reason)


def verdict(view: JobView, *, evidence: bool = False) -> str:
    """Why it failed, in the sentence of the server; with the line of the log that tells."""
    told = view.verdict
    if told is None:
        return ""
    advice = f": {clean(told.advice)}" if told.advice else ""
    said = clean(told.sentence) or _headline(told) + advice
    line = clean(told.evidence)
    known = len(line) >= _TELLING and line.rpartition(": ")[2] in said
    return f"{said} [{line[:160]}]" if evidence and line and not known else said


def footer(views: Iterable[JobView]) -> str:
    """How many jobs in each state, in the order of STATES."""
    states = [view.state for view in views]
    known = [state for state in STATES if state in states]
    return ", ".join(f"{states.count(state)} {state}" for state in known)


def _headline(told: VerdictView) -> str:
    """How it ended, and what that means: exit 1, import error."""
    how = told.signal or ("" if told.code is None else f"exit {told.code}")
    return ", ".join(clean(text) for text in (how, told.phrase or told.kind) if text)


def _named(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
