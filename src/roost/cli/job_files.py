"""The job file of a job that was submitted: whole for ``get --spec``, in a few lines for ``get``.

No secret is in it: the server keeps the names of secrets apart from their values. ``env`` is no
place for secrets, and is told as it is in the job file; in ``get``, which people show to each
other, values that look like secrets are hidden.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from roost.api.jobs import FUNCTION_MODULE
from roost.cli import connection
from roost.errors import InvalidSpec, NotFound

if TYPE_CHECKING:
    from roost.client import JobHandle

_HIDDEN = "***"
#: Parts of names whose values are better not shown.
_TELLTALE = re.compile(
    r"(?i)(secret|token|passw|credential|auth|api_?key|access_?key|private_?key)"
)
#: The password in an address.
_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+(?=@)")
_LONGEST = 80
_MOST_LETTERS = 2_000


def print_spec(handle: JobHandle, output: str) -> None:
    """Print the job file that would make a job again; what it cannot say is noted beside it."""
    document = handle.document()
    if output == "json":
        connection.printed(document, output)
    elif output == "wide":
        raise InvalidSpec("--spec is YAML, or JSON with -o json")
    else:
        from roost.jobfile import JobFile, to_yaml

        click.echo(to_yaml(JobFile.from_document(document)), nl=False)
    for text in _left_out(handle, document):
        connection.note(f"note: {text}")


def told_of(handle: JobHandle) -> dict[str, str]:
    """What a job runs, where and with which variables; nothing where the server does not tell."""
    try:
        document = handle.document()
    except NotFound:
        return {}
    from roost.client.formatting import clean

    facts = {
        "command": _command(document),
        "setup": _script(document.get("setup", "")),
        "folder": _folder(document.get("workdir")),
        "python": document.get("python", ""),
        "image": document.get("image", ""),
        "env": _variables(document.get("env") or {}),
        "secrets": ", ".join(document.get("secrets") or ()),
    }
    return {name: clean(text) for name, text in facts.items()}


def _left_out(handle: JobHandle, document: Mapping[str, Any]) -> list[str]:
    from roost.client.formatting import clean

    found = []
    if secrets := document.get("secrets"):
        names = ", ".join(map(clean, secrets))
        found.append(f"values of secrets are not in it: {names} come from your environment")
    if FUNCTION_MODULE in document.get("command", ()):
        found.append(
            "it runs a Python function, which no job file holds; "
            f"run it again with: roost rerun {clean(handle.id)}"
        )
    if point := handle.view.clone_of:
        found.append(f"it began from the snapshot {clean(point)}; see: roost clone --help")
    return found


def _command(document: Mapping[str, Any]) -> str:
    command = document.get("command") or ()
    if FUNCTION_MODULE in command:
        return "a Python function"
    return _short(shlex.join(map(str, command))) if command else _script(document.get("run", ""))


def _script(text: str) -> str:
    """The first line of a script, and how many more there are."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
    return _short(lines[0]) + more.replace("1 more lines", "1 more line")


def _folder(workdir: Any) -> str:
    match workdir:
        case str():
            return workdir
        case {"git": address, "ref": ref}:
            return f"{address} at {ref}"
        case {"git": address}:
            return str(address)
        case {"sent": name}:
            return f"its own, with what was sent ({str(name)[:12]})"
        case _:
            return "its own"


def _variables(env: Mapping[str, Any]) -> str:
    told = " ".join(f"{name}={_value(name, str(text))}" for name, text in env.items())
    return told if len(told) <= _MOST_LETTERS else f"{told[:_MOST_LETTERS]}… ({len(env)} in all)"


def _value(name: str, text: str) -> str:
    if _TELLTALE.search(name) and text:
        return _HIDDEN
    return shlex.quote(_short(_PASSWORD.sub(rf"\1:{_HIDDEN}", text)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
