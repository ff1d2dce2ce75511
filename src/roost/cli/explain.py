"""``roost explain``: why a job is where it is, what is in the way, when it starts, what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Verb

_NAMED = 4
_EXACT_S = 60.0


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost explain resnet-x7k2p
  roost explain resnet-x7k2p -o json""",
)
@click.argument("job", shell_complete=connection.complete_jobs)
@connection.output_option
def explain(job: str, output: str) -> None:
    """Say why the job JOB is where it is.

    First a word for the cause and a sentence; then the jobs that go first, those that hold what it
    needs and until when, when it will start as far as a simulation of the present cluster can
    tell, and the smallest changes that would start it now.
    """
    with connection.connect() as client:
        found = client.job(job).explain()
    if not connection.printed(found, output):
        for line in lines(found, connection.now(), wide=output == "wide"):
            click.echo(line)


def lines(found: dict[str, Any], now: float, *, wide: bool = False) -> Iterator[str]:
    """The explanation as lines of text."""
    from roost.client.formatting import ago, clean, clock

    cause = clean(found.get("cause") or found.get("state", ""))
    yield f"{click.style(cause, bold=True)}  {clean(found.get('reason', ''))}".rstrip()
    facts = {
        "behind": _ahead(found, wide=wide),
        "held by": _holders(found, now),
        "since": "" if not found.get("since") else ago(found["since"], now),
        "next try": "" if not found.get("not_before") else clock(found["not_before"]),
        "start": _start(found, now),
        "end": "" if not found.get("ends_at") else f"~{_clock(found['ends_at'], now)}",
    }
    for name, text in facts.items():
        if text:
            yield connection.fact(name, text)
    for number, remedy in enumerate(found.get("remedies") or ()):
        change = clean(remedy.get("change", ""))
        yield connection.fact("or" if number else "now if", change)
    assumed = [
        text for text in found.get("assumptions") or () if wide or text.startswith("an estimate")
    ]
    for number, text in enumerate(assumed):
        yield connection.fact("" if number else "assumed", clean(text))


def _ahead(found: dict[str, Any], *, wide: bool) -> str:
    jobs = found.get("ahead") or []
    if not jobs:
        return ""
    most = len(jobs) if wide else _NAMED
    named = [f"{_named(job)} ({_gpus(job)})" for job in jobs[:most]]
    more = int(found.get("ahead_count", len(jobs))) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more > 0 else "")


def _holders(found: dict[str, Any], now: float) -> str:
    """The jobs that hold what it needs, and until when: the first to end come first."""
    told = []
    for job in found.get("held_by") or ():
        end = job.get("ends_at")
        until = "" if end is None else f", until ~{_clock(end, now)}"
        told.append(f"{_named(job)} ({_gpus(job)}{until})")
    return ", ".join(told)


def _named(job: dict[str, Any]) -> str:
    from roost.client.formatting import clean

    return clean(job.get("job") or "another job")


def _gpus(job: dict[str, Any]) -> str:
    from roost.client.formatting import gpus

    return gpus(float(job.get("gpus", 0)))


def _start(found: dict[str, Any], now: float) -> str:
    """When it starts: at about that time, and how sure that is."""
    from roost.client.formatting import about, ahead

    if found.get("state") not in ("queued", "suspended", "starting"):
        return ""
    at = found.get("starts_at")
    if at is None:
        return "not within the time that was looked at" if found.get("assumptions") else ""
    low, high = found.get("starts_between") or [at, at]
    told = f"{_clock(at, now)} ({ahead(at, now)})" if at - now >= 1 else "now"
    if low is None or high is None:
        return f"{told}, or much later"
    spread = max(high - at, at - low)
    return told if spread < _EXACT_S else f"{told}, give or take {about(spread)}"


def _clock(moment: float, now: float) -> str:
    """The time of day, with its date where that is another one."""
    from roost.client.formatting import clock

    told = clock(moment)
    return told[11:16] if told[:10] == clock(now)[:10] else told[:16]
