"""A systemd unit for a server with the options that were typed: ``roost up --print-unit``."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from roost.cli.parameter_types import NO_BOUND, DiskBound

#: What is not said at every start.
_ONCE = {"print_unit", "detach", "origin", "adopt_home", "home"}
_UNIT = """\
[Unit]
Description=Roost, a manager of training jobs
Wants=network-online.target
After=network-online.target nvidia-persistenced.service

[Service]
Type=notify
User={user}
Environment={home}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5
# Jobs go on while no server runs: only the server itself is stopped.
KillMode=process
# Limits of memory and CPUs for each job, in cgroups below this one.
Delegate=yes
LimitNOFILE=65536
TimeoutStartSec=120
# A server that does not answer for so long, whatever holds it, is started again.
WatchdogSec=300

[Install]
WantedBy=multi-user.target
"""


def unit(ctx: click.Context, home: Path) -> str:
    """The unit; options of the config file stay in that file."""
    program = Path(sys.argv[0]).absolute()
    words = [str(program), "up"]
    for option in ctx.command.params:
        typed = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and typed and option.name not in _ONCE:
            words += _words(option, ctx.params[option.name or ""])
    return _UNIT.format(
        user=getpass.getuser(),
        home=_quoted(f"ROOST_HOME={os.path.abspath(home)}"),  # noqa: PTH100 - links stay
        command=" ".join(map(_quoted, words)),
    )


def _words(option: click.Option, value: object) -> list[str]:
    """An option as it would be typed; paths hold wherever systemd starts the server."""
    name = max(option.opts, key=len)
    values = value if isinstance(value, tuple | list) else (value,)
    found = []
    for one in values:
        found += [name] if option.is_flag else [name, _typed(option, one)]
    return found


def _typed(option: click.Option, value: object) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(option.type, DiskBound) and isinstance(value, int):
        return "none" if value >= NO_BOUND else str(value)
    if isinstance(value, float):
        part = isinstance(option.type, DiskBound)
        return f"{100 * value:.12g}%" if part else f"{value:.12g}"
    return str(value)


def _quoted(word: str) -> str:
    """A word as systemd reads it: no variable or specifier in it means anything."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain and not any(letter in plain for letter in " \t\n\"'\\"):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
