"""The config file of ``roost up``: its options by their own words, in YAML or TOML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from roost.errors import InvalidSpec, unknown
from roost.files import load

#: What is said once, by a person, and not at every start.
_ONCE = {"config", "help", "as-copy", "moved", "adopt-home", "detach", "home", "print-unit"}
_MOST_BYTES = 1 << 20


def apply_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Have what a file says count where the command line says nothing."""
    del param
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(path, ctx.command)}
    return path


def read_config(path: Path, command: click.Command) -> dict[str, Any]:
    """The values that a file gives to the options of a command, by the names of its parameters."""
    words = {
        name.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--")
    }
    found: dict[str, Any] = {}
    for key, value in _content(path).items():
        word = str(key).replace("_", "-")
        option = words.get(word)
        if option is None or word in _ONCE:
            raise InvalidSpec(f"{path}: {unknown('option', str(key), set(words) - _ONCE)}")
        if option.multiple and not isinstance(value, list):
            value = [value]  # noqa: PLW2901 - one of several
        if isinstance(value, dict) or (isinstance(value, list) and not option.multiple):
            raise InvalidSpec(f"{path}: {word} takes one value, as --{word} does")
        found[option.name] = [_item(one) for one in value] if option.multiple else _text(value)
    return found


def _item(value: object) -> str:
    """One of several values; a mapping, where an option takes one, is read as JSON."""
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _text(value: object) -> object:
    """As it would stand on the command line; what is empty says nothing."""
    return value if value is None or isinstance(value, bool) else str(value)


def _content(path: Path) -> dict[str, Any]:
    text = load(path, _MOST_BYTES).text
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidSpec(f"{path} is not TOML: {error}") from None
    from roost.jobfile.errors import Fault
    from roost.jobfile.yaml import load as load_yaml
    from roost.jobfile.yaml import plain

    try:
        found = plain(load_yaml(text), as_text=True) if text.strip() else {}
    except Fault as error:
        raise InvalidSpec(f"{path} is not YAML: {error}") from None
    if not isinstance(found, dict):
        raise InvalidSpec(f"{path}: expected options such as 'port: 8610', found something else")
    return found
