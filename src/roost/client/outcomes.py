"""What a submitted function left behind: its value, or the exception it ended with.

A result is a pickle, and unpickling runs code. It is loaded only where the job's user is the user
of this client, from the server that the client was made for.
"""

from __future__ import annotations

from typing import Any

from roost.client import api, formatting
from roost.client.conversations import Steps
from roost.client.errors import RemoteError
from roost.client.payload import Packed, unpack
from roost.client.views import JobView
from roost.errors import Conflict, NotFound, RoostError


def result(job: str, timeout: float | None = None) -> Steps[Any]:
    """What the function returned, once the job is over; its exception is raised here.

    An exception that cannot be loaded, and an end without one (killed, cancelled), is a
    RemoteError. Raises TimeoutError after ``timeout`` seconds.
    """
    view = yield from api.wait(job, timeout)
    me = yield from api.whoami()
    if view.user != (me.get("user")):
        raise Conflict(f"job {view.id} is {view.user}'s; a client loads results of its own user")
    try:
        packed = unpack((yield from api.outcome(view.id)))
    except NotFound:
        if view.state == "succeeded":
            raise
        raise _ended(view) from None
    if packed.header.get("outcome") == "raised":
        raise _raised(view, packed)
    if view.state != "succeeded":
        raise _ended(view)
    return _loaded(view, packed)


def _loaded(view: JobView, packed: Packed) -> Any:
    try:
        return packed.load()
    except Exception as error:
        raise RemoteError(f"the result of job {view.id} cannot be loaded here: {error}") from error


def _raised(view: JobView, packed: Packed) -> BaseException:
    """The exception itself if it can be loaded, with the traceback of the job as a note."""
    text, trace = (str(packed.header.get(key, "")) for key in ("text", "trace"))
    try:
        error = packed.load()
    except Exception:  # noqa: BLE001 - whatever a class does when it is loaded
        error = None
    if not isinstance(error, Exception):
        return RemoteError(f"job {view.id} failed: {text}", trace)
    error.add_note(f"in job {view.id}:\n{trace}")
    return error


def _ended(view: JobView) -> RoostError:
    if view.state == "cancelled":
        return RemoteError(f"job {view.id} was cancelled")
    code = "" if view.exit_code is None else f"exit {view.exit_code}, "
    why = formatting.verdict(view) or code + formatting.clean(view.reason)
    return RemoteError(f"job {view.id} failed: {why}")
