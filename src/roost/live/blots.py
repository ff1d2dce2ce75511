"""Secrets that a job prints, blotted out before anybody reads its log to understand a failure.

Programs print a secret as it is, line by line, quoted, escaped or encoded. All these forms are
looked for; what a program makes of it otherwise cannot be known.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote

_BLOT = b"***"
#: Shorter lines of a secret are words that may be anybody's.
_SHORTEST = 4


def blot(text: bytes, secrets: Iterable[str]) -> bytes:
    """The text without these secrets, in whatever form."""
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _BLOT)
    return text


def _forms(secret: str) -> Iterator[bytes]:
    for part in (secret, secret.strip(), *(line.strip() for line in secret.splitlines())):
        raw = part.encode(errors="surrogateescape")
        yield raw
        yield repr(part)[1:-1].encode(errors="replace")
        yield json.dumps(part)[1:-1].encode()
        yield json.dumps(part, ensure_ascii=False)[1:-1].encode(errors="replace")
        yield quote(part, safe="", errors="replace").encode()
        yield base64.b64encode(raw)
        yield base64.urlsafe_b64encode(raw)
