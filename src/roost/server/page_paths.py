"""Which requests are a browser's for a page or a file of the portal: those need no token."""

from __future__ import annotations

import re

from starlette.types import Scope

from roost.web.assets import PREFIX

#: Paths that are no pages, whoever asks.
_OTHERS = re.compile(r"/(api|assets|metrics|openapi\.json|healthz|readyz)(/|$)")


def is_page(scope: Scope) -> bool:
    """Whether a browser asks for a page: then it gets it, whatever the path."""
    if scope["method"] != "GET" or _OTHERS.match(scope["path"]):
        return False
    return scope["path"] == "/login" or any(
        name == b"accept" and b"text/html" in value for name, value in scope["headers"]
    )


def is_file(scope: Scope) -> bool:
    """Whether a file of the pages is asked for."""
    return scope["method"] == "GET" and str(scope["path"]).startswith(PREFIX)
