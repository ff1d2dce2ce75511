"""Types of parameters on the command line, and commands with help in sections."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.types import OptionHelpExtra

from roost.errors import unknown
from roost.settings import seconds

F = TypeVar("F", bound=Callable[..., Any])

#: In this order in the help.
_SECTIONS = (
    *("Workload", "Policy", "Cluster", "Node", "Costs", "Physics", "Failures"),
    *("Job", "Resources", "Limits", "Which", "Change", "Run", "Output", "Other"),
)


#: As good as no bound, in bytes.
NO_BOUND = 1 << 60


class Duration(click.ParamType[float]):
    """Seconds, or a number with s, m, h, d or w; without end only where that makes sense."""

    name = "duration"

    def __init__(self, *, endless: bool = False) -> None:
        self._endless = endless

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds from a text such as 15m."""
        if isinstance(value, float):
            return value
        try:
            found = seconds(value)
        except ValueError:
            self.fail(f"{value!r} is not a duration such as 90s, 15m, 2h or 1d", param, ctx)
        if math.isinf(found) and not self._endless:
            self.fail(f"{value!r} is without end; a duration is such as 90s or 1d", param, ctx)
        return found


class Declared(click.ParamType[float]):
    """How wrong jobs are about themselves: ``work`` (not at all) or ``noisy:SPREAD``."""

    name = "work|noisy:SPREAD"

    def __init__(self, most: float) -> None:
        self._number = Number(most)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The spread of the error that a text such as noisy:0.3 stands for."""
        if isinstance(value, float):
            return value
        if value == "work":
            return 0.0
        kind, _, spread = value.partition(":")
        if kind != "noisy" or not spread:
            self.fail(f"{value!r} is neither work nor such as noisy:0.3", param, ctx)
        return self._number.convert(spread, param, ctx)


class Number(click.ParamType[float]):
    """A number from 0 up to a most, if there is one; infinity and NaN are none."""

    name = "number"

    def __init__(self, most: float = math.inf) -> None:
        self._most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number that a text such as 0.5 stands for."""
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not (0 <= found <= self._most and math.isfinite(found)):
            upto = "" if math.isinf(self._most) else f" to {self._most:g}"
            self.fail(f"{value!r} is not a number from 0{upto or ' up'}", param, ctx)
        return found


class ByteSize(click.ParamType[int]):
    """Bytes, as 50Gi or 200GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes that a text such as 50Gi stands for."""
        from roost.jobfile.grammar import read_size

        if isinstance(value, int):
            return value
        try:
            return read_size(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class DiskBound(click.ParamType[float]):
    """Bytes, as 50Gi; a part of the disk, as 50%, which is a fraction then; or none."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The bytes of a text such as 50Gi, the fraction of one such as 50%."""
        if not isinstance(value, str):
            return float(value) if isinstance(value, float) else int(value)
        if value.strip().lower() == "none":
            return NO_BOUND
        if value.endswith("%"):
            return Number(100.0).convert(value[:-1], param, ctx) / 100
        return ByteSize().convert(value, param, ctx)


class OutFile(click.Path):
    """A file to be written; where that cannot work, it is refused before anything runs."""

    def __init__(self, *, stream: bool = False) -> None:
        super().__init__(dir_okay=False, readable=False)
        self._stream = stream

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, if it can be that of a file, or of a pipe or a device for a stream."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        folder = Path(os.path.realpath(path)).parent
        if path.exists() and not path.is_file():
            why = "" if self._stream and not path.is_dir() else "it is not a regular file"
        elif not folder.is_dir():
            why = f"there is no folder {str(folder)!r}"
        else:
            fine = os.access(folder, os.W_OK | os.X_OK)
            why = "" if fine else f"nothing can be written to the folder {str(folder)!r}"
        if why:
            self.fail(f"cannot write {str(path)!r}: {why}", param, ctx)
        return path


class Option(click.Option):
    """An option that belongs to a section of the help, and does not tell its range."""

    def __init__(self, *args: Any, section: str = "Other", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """What stands in brackets after the help."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class Verb(click.Command):
    """A command that lists its options section by section."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The same words also where the verb is read without ``roost`` before it.

        click keeps the option that it makes of them the first time for the rest of the process.
        """
        return ["-h", "--help"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options, each under the title of its section; a verb's own sections first."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "section", "Other"), []).append(record)
        for title in [*(one for one in sections if one not in _SECTIONS), *_SECTIONS]:
            if title in sections:
                with formatter.section(title):
                    formatter.write_dl(sections[title])


class Noun(click.Group):
    """A group that lists where no verb is given: ``roost queues`` is ``roost queues list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the missing verb in place, unless it is still being typed."""
        return super().parse_args(ctx, args if ctx.resilient_parsing else self._with_verb(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was typed; an unknown one names the nearest."""
        given = self._with_verb(args)
        if given[0] not in self.commands and not ctx.resilient_parsing:
            raise unknown("command", f"{ctx.info_name} {given[0]}", self.commands)
        return super().resolve_command(ctx, given)

    def _with_verb(self, args: list[str]) -> list[str]:
        helps = args[:1] in (["-h"], ["--help"])
        return args if args and (helps or not args[0].startswith("-")) else ["list", *args]


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Decorates a command with an ``Option``."""
    return click.option(*names, cls=Option, **settings)
