"""Keeping secrets out of what is told: their values, in the forms in which programs print them.

A value may be printed as it is, in a traceback as Python writes a text, in JSON, in an address, in
base64, or one line of it at a time. Whatever is left of a secret in a line must be found before
the line is cut or tidied: afterwards it is not the same any more.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

_HIDDEN = b"***"
#: A part of a secret, or another form of it, that is shorter could be anything.
_LEAST = 4


class Redactor:
    """The values that must not be shown."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values if value for form in _forms(value)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def out_of(self, line: bytes) -> bytes:
        """The same bytes with every secret blotted out."""
        for form in self._forms:
            line = line.replace(form, _HIDDEN)
        return line

    def out_of_text(self, text: str) -> str:
        """The same for a text."""
        return self.out_of(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def _forms(value: str) -> Iterator[bytes]:
    """How a value may be printed."""
    yield _encoded(value)
    parts = [value, value.strip(), *(line.strip() for line in value.splitlines())]
    for part in parts:
        for form in (part, *_written(part)):
            if len(form) >= _LEAST:
                yield _encoded(form)
    raw = _encoded(value)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for data in (raw, raw.strip(), raw + b"\n"):
            # The last letters depend on what follows.
            if len(form64 := encode(data).rstrip(b"=")[: len(data) * 4 // 3]) >= _LEAST:
                yield form64


def _written(part: str) -> Iterator[str]:
    """A text between the quotes of some language, tidied, or in an address."""
    yield repr(part)[1:-1]
    yield repr(_encoded(part))[2:-1]
    yield json.dumps(part)[1:-1]
    yield json.dumps(part, ensure_ascii=False)[1:-1]
    yield "".join(char if char.isprintable() else " " for char in part).strip()
    yield quote(part, safe="", errors="surrogateescape")
    yield quote_plus(part, errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
