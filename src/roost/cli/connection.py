"""The parts that all verbs with a server share: the client, options, completion and texts.

Whatever a job, a user or a reason says is printed as text: control characters are made visible, and
nothing in it is taken for markup.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.cli.output import print_json, print_yaml
from roost.cli.parameter_types import option
from roost.client.views import STATES
from roost.errors import InvalidSpec, RoostError

if TYPE_CHECKING:
    from roost.client import Client, JobView
    from roost.kubernetes.gateway.transport import ClusterTransport

F = TypeVar("F", bound=Callable[..., Any] | click.Command)

#: Where click keeps the name of the server for the verb that follows.
_ON = "roost.on"
#: Stands where a server's address would: a cluster is reached by its kubeconfig.
_CLUSTER = "http://127.0.0.1"
#: How long a verb asks a server again that does not answer.
_PATIENCE_S = 2.0
#: So many letters of the last column are shown at least.
_LEAST_ROOM = 24
#: A shell waits for completions no longer than this.
_COMPLETION_S = 0.3
_SORTS = (
    *("submitted_at", "started_at", "finished_at"),
    *("name", "user", "queue", "state", "priority", "gpus"),
)
_COLOURS = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "cyan",
    "resizing": "cyan",
    "suspended": "magenta",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "up": "green",
    "lost": "red",
}
#: Colours, which a log may have on a terminal; anything else that begins with an escape may not.
_SGR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_UNSAFE = re.compile(r"[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

_OUTPUT: dict[str, Any] = {"section": "Output", "default": "table", "show_default": True}
_OUTPUTS = ["table", "wide", "json", "yaml"]

output_option = option(
    "-o",
    "--output",
    type=click.Choice(_OUTPUTS),
    help="How to print: for people, or as the API tells it.",
    **_OUTPUT,
)
list_output_option = option(
    "-o",
    "--output",
    type=click.Choice([*_OUTPUTS, "name"]),
    help="How to print: for people, as the API tells it, or all ids, a line each.",
    **_OUTPUT,
)
yes_option = option("-y", "--yes", section="Run", is_flag=True, help="Do not ask.")


def connect() -> Client:
    """A client of the server that is meant, or of the Kubernetes cluster of ``--context``."""
    from roost.client import Client
    from roost.client.machine import POD

    context = click.get_current_context()
    root, on = context.find_root(), context.meta.get(_ON)
    if on and root.obj:
        raise InvalidSpec("--on and --context name two different clusters; give one of them")
    if not root.obj:
        return Client(patience=_PATIENCE_S, on=on)
    transport = _transport()(root.obj)
    root.call_on_close(transport.close)
    client = Client(_CLUSTER, patience=_PATIENCE_S, transport=transport)
    client.machine = POD
    return client


def complete_servers(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The names of logins that begin like that."""
    from roost.client import logins

    try:
        return [name for name in logins.read().servers if name.startswith(incomplete)]
    except RoostError:
        return []


def talk_to(ctx: click.Context, name: str) -> None:
    """Let the verb of a command line talk to the server of that login."""
    ctx.meta[_ON] = name


def _keep_on(ctx: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name:  # typed after the verb, it counts more than before it
        talk_to(ctx, name)


_on_option = option(
    "--on",
    section="Run",
    metavar="NAME",
    expose_value=False,
    callback=_keep_on,
    shell_complete=complete_servers,
    help="The server, by the name of a login; see roost servers.",
)


def with_server(command: click.Command) -> click.Command:
    """The same verb, with the option ``--on``; of a group, all its verbs."""
    if isinstance(command, click.Group):
        for verb in command.commands.values():
            with_server(verb)
    elif not any("--on" in param.opts for param in command.params):
        _on_option(command)
    return command


def _transport() -> type[ClusterTransport]:
    try:
        from roost.kubernetes.gateway.transport import ClusterTransport
    except ModuleNotFoundError as error:
        wanted = "pip install 'roost[kubernetes]'"
        raise InvalidSpec(f"--context needs {error.name}, which is missing: {wanted}") from None
    return ClusterTransport


def printed(value: Any, output: str) -> bool:
    """Print what the API gave, if that is what is wanted."""
    if output == "json":
        print_json(value)
    elif output == "yaml":
        print_yaml(value)
    return output in ("json", "yaml")


def paint(name: str, cell: str) -> str:
    """Colour a cell that is a state; off a terminal, colours are dropped again."""
    plain = name != "state" or os.environ.get("NO_COLOR")
    colour = None if plain else _COLOURS.get(cell.strip())
    return click.style(cell, fg=colour) if colour else cell


def fitted(
    rows: Sequence[Mapping[str, str]], *, wide: bool, spare: Iterable[str] = ()
) -> list[dict[str, str]]:
    """Rows, cut so that the last column ends with the screen, where there is one.

    On a narrow one the columns in ``spare`` are left out, until there is room for the last.
    """
    cut = [dict(row) for row in rows]
    if wide or not rows or not sys.stdout.isatty():
        return cut
    *names, last = rows[0]
    widths = {n: max(len(n), *(len(row[n]) for row in rows)) + 2 for n in names}
    columns = shutil.get_terminal_size().columns
    for name in spare:
        if columns - sum(widths.values()) < _LEAST_ROOM and widths.pop(name, 0):
            for row in cut:
                del row[name]
    room = max(_LEAST_ROOM, columns - sum(widths.values()))
    for row in cut:
        if len(row[last]) > room:
            row[last] = row[last][: room - 1] + "…"
    return cut


def fact(name: str, text: str) -> str:
    """A line on one thing, its name in front; on a terminal, broken between words."""
    head = f"  {name:<10} "
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or len(head) + len(text) <= columns:
        return head + text
    import textwrap

    return textwrap.fill(
        text,
        max(columns, 2 * _LEAST_ROOM),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def log_text(line: str) -> str:
    """A line of a log for a terminal: colours and tabs as they are, nothing else that acts."""
    kept = _SGR.findall(line)
    parts = [_UNSAFE.sub(_visible, part) for part in _SGR.split(line)]
    if not kept:
        return parts[0]
    woven = [text for pair in zip(parts, [*kept, ""], strict=True) for text in pair]
    return "".join([*woven, "\x1b[0m"])


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def on_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def agreed(question: str, *, yes: bool, usual: bool = True) -> bool:
    """Whether to go on: asked on a terminal, taken for granted elsewhere.

    ``usual`` is what Enter alone says: no, where something would be lost.
    """
    if yes or not on_terminal():
        return True
    try:
        answer: bool = click.confirm(question, default=usual, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None
    return answer


def note(text: str) -> None:
    """A remark beside the answer."""
    click.echo(text, err=True)


def exit_status(view: JobView) -> int:
    """The status of a command that waited for a job: the job's own."""
    if view.state == "succeeded":
        return 0
    code = view.exit_code or 0
    return code if view.state == "failed" and 0 < code < 256 else 1  # noqa: PLR2004


def each_of(names: Iterable[str], act: Callable[[str], str]) -> int:
    """Do something to each, whatever becomes of the others, and sum up; the exit status.

    What ``act`` returns is printed, if it is anything.
    """
    from roost.client.formatting import clean

    asked, failed = list(dict.fromkeys(names)), 0
    for name in asked:
        try:
            if told := act(name):
                click.echo(told)
        except RoostError as error:
            click.echo(f"roost: error: {clean(name)}: {clean(error)}", err=True)
            failed += 1
    if failed and len(asked) > 1:
        note(f"{len(asked) - failed} of {len(asked)} done, {failed} not")
    return 2 if failed else 0


def complete_jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of jobs that begin like that, newest first."""
    return _offered(
        ctx, "/jobs", {"name": incomplete.rpartition("-")[0][:60], "limit": 100}, incomplete
    )


def complete_snapshots(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The snapshots that begin like that, newest first."""
    return _offered(ctx, "/snapshots", {"limit": 200}, incomplete)


def complete_queues(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The queues that begin like that."""
    return _offered(ctx, "/queues", {}, incomplete)


queue_option = option(
    "-q",
    "--queue",
    section="Job",
    metavar="NAME",
    shell_complete=complete_queues,
    help="The queue it waits in.",
)
priority_option = option(
    "--priority", section="Job", type=click.IntRange(0, 100), metavar="0-100", help="Higher first."
)


def complete_nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes that begin like that."""
    return _offered(ctx, "/nodes", {}, incomplete)


def complete_sorts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The fields to sort by that begin like that; - comes before any."""
    minus, start = ("-", incomplete[1:]) if incomplete.startswith("-") else ("", incomplete)
    return [minus + field for field in _SORTS if field.startswith(start)]


def complete_states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The states that begin like that, or the last one of a list."""
    before, comma, start = incomplete.rpartition(",")
    return [f"{before}{comma}{state}" for state in STATES if state.startswith(start)]


def _offered(ctx: click.Context, path: str, params: Mapping[str, object], start: str) -> list[str]:
    """Ids from the server, or nothing where it does not answer at once."""
    found: list[str] = []
    on = ctx.meta.get(_ON)

    def ask() -> None:
        from contextlib import suppress

        with suppress(Exception):
            found.extend(_ids(path, params, on))

    # A daemon, and joined with a limit: a shell that completes a word must never hang.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_COMPLETION_S)
    # A copy: the thread may still be adding to it.
    return [name for name in list(found) if name.startswith(start) and name.isprintable()]


def _ids(path: str, params: Mapping[str, object], on: str | None) -> list[str]:
    # The standard library alone: an HTTP library takes half of the time there is to load.
    import json
    from urllib.parse import urlencode
    from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

    from roost.client import certificates
    from roost.client.endpoints import find

    place = find(on=on)
    request = Request(  # noqa: S310 - http or https, checked by find
        f"{place.url}/api/v1{path}?{urlencode(params)}",
        headers={"Authorization": f"Bearer {place.token}"},
    )
    secure = HTTPSHandler(context=certificates.context(place.url, place.trusted))
    direct = [ProxyHandler({})] if place.local else []
    opener = build_opener(secure, *direct)
    with opener.open(request, timeout=_COMPLETION_S) as answer:
        told = json.load(answer)
    items = told["items"] if isinstance(told, dict) else told
    return [str(item["id"]) for item in items]


def now() -> float:
    """The time, to tell how long ago things were."""
    return time.time()
