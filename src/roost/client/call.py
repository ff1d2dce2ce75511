"""``python -m roost.client.call``: what a job that was submitted as a function runs.

Reads the payload named by ROOST_PAYLOAD, checks the environment, calls the function and leaves its
value or exception at ROOST_RESULT, entirely or not at all. Every worker calls the function; the
value of rank 0 is the result, an exception of any of them will do. Exit status 1 on an exception,
with its traceback in the log; the status given to ``sys.exit`` if the function calls that.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from roost.client import environment
from roost.client.payload import Packed, pack, unpack
from roost.errors import RoostError
from roost.files import load_bytes, save_bytes


def main() -> int:
    """Call the function; the exit status."""
    try:
        packed = unpack(load_bytes(_variable("ROOST_PAYLOAD")))
    except (RoostError, KeyError) as error:
        return _say(f"the submitted function cannot be read: {error}")
    _extend(packed)
    differences = environment.compare(packed.header)
    for warning in differences.warnings:
        _say(f"warning: {warning}")
    if differences.errors:
        sentence = f"this environment does not fit the function: {'; '.join(differences.errors)}"
        _leave({"outcome": "raised", "text": sentence})
        return _say(sentence)
    return _call(packed)


def _call(packed: Packed) -> int:
    name = packed.header.get("function", "the function")
    try:
        function, args, kwargs = packed.load()
    except Exception as error:  # noqa: BLE001 - whatever unpickling runs
        traceback.print_exc()
        _raised(error, f"{name} cannot be loaded: {type(error).__name__}: {error}")
        return 1
    try:
        value = function(*args, **kwargs)
    except SystemExit as end:
        return _exited(end)
    except Exception as error:  # noqa: BLE001 - it is the function's
        kept = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        traceback.print_exception(kept)
        _raised(kept, f"{type(error).__name__}: {error}")
        return 1
    return _returned(value, name)


def _returned(value: Any, name: str) -> int:
    import cloudpickle  # type: ignore[import-untyped] # noqa: PLC0415 - the function's own imports come first

    try:
        body = cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - whatever a value does when it is pickled
        sentence = f"what {name} returned cannot be pickled: {error}"
        _leave({"outcome": "raised", "text": sentence})
        return _say(sentence)
    if _rank() == 0:
        _leave({"outcome": "returned"}, body)
    return 0


def _raised(error: Exception, text: str) -> None:
    import cloudpickle  # noqa: PLC0415 - as above

    trace = "".join(traceback.format_exception(error))
    try:
        body = cloudpickle.dumps(error.with_traceback(None))
    except Exception:  # noqa: BLE001 - then its text has to do
        body = b""
    _leave({"outcome": "raised", "text": text, "trace": trace}, body)


def _exited(end: SystemExit) -> int:
    code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    if not isinstance(end.code, int | None):
        sys.stderr.write(f"{end.code}\n")
    if code == 0:
        return _returned(None, "it")
    _leave({"outcome": "raised", "text": f"it ended with sys.exit({end.code!r})"})
    return code


def _leave(header: dict[str, Any], body: bytes = b"") -> None:
    """Write the result; of several that fail, the first is kept unless rank 0 has a say."""
    target = Path(_variable("ROOST_RESULT"))
    content = pack({**header, "rank": _rank()}, body)
    if _rank() == 0:
        save_bytes(target, content)
        return
    draft = target.with_name(f".{target.name}.{_rank()}")
    save_bytes(draft, content)
    with suppress(FileExistsError):
        os.link(draft, target)
    draft.unlink()


def _extend(packed: Packed) -> None:
    """Modules beside the submitted one are found where they were, on the same machine."""
    for folder in packed.header.get("path", ()):
        if folder not in sys.path and Path(folder).is_dir():
            sys.path.append(folder)


def _rank() -> int:
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdigit() else 0


def _variable(name: str) -> str:
    return os.environ[name]


def _say(sentence: str) -> int:
    sys.stderr.write(f"roost: {sentence}\n")
    sys.stderr.flush()
    return 1


if __name__ == "__main__":
    sys.exit(main())
