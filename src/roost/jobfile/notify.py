"""Who is told what becomes of a job: lines such as ``failed,started https://hooks.example.com/x``.

A line has a target, a URL or a mail address, and before it the moments of which the target is told;
without any, it is told of the end.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from roost.errors import InvalidSpec

#: What a target can be told of; ``ended`` is any end, ``alert`` a rule that found something.
MOMENTS = ("started", "succeeded", "failed", "cancelled", "ended", "alert")
_ENDS = frozenset({"succeeded", "failed", "cancelled"})
_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\Z")
_MAX_LETTERS = 1000


class NotifyRule(NamedTuple):
    """A URL or a mail address, and the moments of which it is told."""

    target: str
    moments: frozenset[str]

    def applies(self, moment: str) -> bool:
        """Whether it is told of a moment of a job."""
        return moment in self.moments or (moment in _ENDS and "ended" in self.moments)


def read_rule(line: str) -> NotifyRule:
    """The rule that a line tells; raises InvalidSpec."""
    before, _, target = line.strip().rpartition(" ")
    moments = [word for word in re.split(r"[,\s]+", before) if word]
    if wrong := [word for word in moments if word not in MOMENTS]:
        raise InvalidSpec(f"{wrong[0]!r} is none of: {', '.join(MOMENTS)}")
    check_target(target)
    return NotifyRule(target, frozenset(moments or ("ended",)))


def check_target(target: str) -> None:
    """Refuse what is neither a URL nor a mail address."""
    if len(target) > _MAX_LETTERS or not target.isascii() or not target.isprintable():
        raise InvalidSpec("a target has at most 1000 printable ASCII letters")
    if is_mail(target):
        return
    try:
        url = urlsplit(target)
        fits = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fits = False
    if not fits or url.username is not None:
        raise InvalidSpec(f"{target!r} is neither a URL such as https://... nor a mail address")


def is_mail(target: str) -> bool:
    """Whether a target is a mail address."""
    return _MAIL.match(target) is not None


def as_lines(section: dict[str, Any]) -> Any:
    """The lines of ``{to: [...], on: [...]}``; anything else is left as it is."""
    to, on = section.get("to"), section.get("on", ())
    targets = [to] if isinstance(to, str) else to
    moments = [on] if isinstance(on, str) else on
    if not isinstance(targets, list | tuple) or not isinstance(moments, list | tuple):
        return section
    if not section.keys() <= {"to", "on"}:
        return section
    return [" ".join(filter(None, (",".join(map(str, moments)), str(one)))) for one in targets]
