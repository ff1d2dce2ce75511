"""The page people look at after a simulation: policies side by side, in one HTML file.

``write_report`` embeds what the runs left behind (``contents``) into a page made of the assets in
this folder. The page asks the network for nothing and runs nothing but its own script: a content
security policy with their hashes says so to the browser.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib import resources

from roost.errors import InvalidSpec
from roost.files import save_bytes
from roost.sim.report.contents import contents
from roost.sim.results import Results

__all__ = ["render", "write_report"]

#: Joined into one script, in this order: each constant before what reads it at the start.
SCRIPTS = (
    *("dom.js", "format.js", "model.js", "charts.js", "compare.js", "groups.js"),
    *("timeline.js", "explore.js", "jobs.js", "page.js"),
)

#: What could end the script element, or a line of JavaScript, from inside a JSON string.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def write_report(path: str | os.PathLike[str], runs: Sequence[Results]) -> None:
    """Write the page for ``runs``, all at once: an older page stays if anything goes wrong.

    Raises ``InvalidSpec`` without runs, or where the page cannot be written.
    """
    save_bytes(path, render(runs).encode(errors="replace"))


def render(runs: Sequence[Results]) -> str:
    """Make the page for ``runs``; the first one's policy is what the others are compared with."""
    if not runs:
        raise InvalidSpec("a report needs at least one run")
    style = _asset("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    parts = {
        "policy": (
            "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
            f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
        ),
        "title": html.escape(f"{runs[0].workload} · Roost simulation"),
        "notes": "".join(
            f'<p class="notice">{html.escape(note)}</p>'
            for note in dict.fromkeys(note for run in runs for note in run.notes)
        ),
        "style": style,
        "script": script,
        "contents": _embed(contents(runs)),
    }
    # One pass for all parts: a job may be called {{script}}, and what was put in is not read again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embed(value: object) -> str:
    """Write JSON that is harmless inside a script element, whatever its strings say."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
