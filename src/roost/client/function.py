"""``@roost.job``: a function that can be submitted.

    @roost.job(workers=(1, 4), gpus=1, run_time="10m")
    def train(rate, epochs=3): ...

    train(0.1)               # here and now, as if nothing had been added
    handle = train.submit(0.1)
    handle.result()

The function and its arguments travel as a pickle with a header that describes the environment
(``environment``); the job runs ``roost.client.call``. Of the caller's own modules, the one that
defines the function travels with it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Generic, ParamSpec, TypeVar, overload

from roost.api.jobs import FUNCTION_MODULE
from roost.client import environment
from roost.client.clients import Client, usual
from roost.client.handles import JobHandle
from roost.client.machine import ServerMachine
from roost.client.payload import LIMIT_BYTES, pack
from roost.client.submissions import PreparedSubmission, finish
from roost.errors import InvalidSpec

P = ParamSpec("P")
R = TypeVar("R")

_MIB = 1024 * 1024


class Function(Generic[P, R]):
    """A function with what its job asks for; called, it runs here."""

    def __init__(
        self, function: Callable[P, R], fields: Mapping[str, Any], client: Client | None = None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.fields = dict(fields)
        self.client = client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here."""
        return self.function(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here; the same as calling it."""
        return self.function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Run the function as a job, every worker the same call; rank 0's value is the result."""
        return (self.client or usual()).submit(self.bind(*args, **kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundFunction:
        """The call as something that ``Client.submit`` and ``AsyncClient.submit`` take.

        Arguments that the function does not take are a TypeError here, not in the job.
        """
        with suppress(ValueError):  # some builtins do not tell what they take
            inspect.signature(self.function).bind(*args, **kwargs)
        return BoundFunction(self.function, args, kwargs, self.fields)

    def options(self, **fields: Any) -> Function[P, R]:
        """The same function with other fields of the job file."""
        return Function(self.function, {**self.fields, **fields}, self.client)

    def __getstate__(self) -> dict[str, Any]:
        # A function may call itself, or another one, by this name: connections stay at home.
        return {**self.__dict__, "client": None}

    def __repr__(self) -> str:
        return f"<roost.job {self.__name__}>"  # type: ignore[attr-defined]


class BoundFunction:
    """A function and its arguments, ready to go."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> None:
        self._function, self._args, self._kwargs = function, args, dict(kwargs)
        self._fields = fields

    def submission(self, *, local: bool) -> PreparedSubmission:
        """The job file around the call; on this machine the job uses this very interpreter."""
        from roost.jobfile import JobFile  # noqa: PLC0415 - costs as much as all the rest

        python = {"python": sys.executable} if local and sys.executable else {}
        document: dict[str, Any] = {
            "name": _job_name(self._function),
            **python,
            **{name: _plain(value) for name, value in self._fields.items()},
            "command": ["python", "-m", FUNCTION_MODULE],
        }
        job = JobFile.from_document(document, f"@job of {_name(self._function)}")
        ready = finish(job, ServerMachine(same=False, takes_folders=False))
        return PreparedSubmission(ready.document, ready.secrets, self._packed(local=local))

    def _packed(self, *, local: bool) -> bytes:
        import cloudpickle  # type: ignore[import-untyped] # noqa: PLC0415 - only here

        header = environment.describe(self._function)
        header |= {"function": _name(self._function)}
        header |= {"path": environment.local_folders()} if local else {}
        try:
            with _by_value(self._function, all_of_them=not local):
                body = cloudpickle.dumps((self._function, self._args, self._kwargs))
        except Exception as error:
            raise InvalidSpec(
                f"{_name(self._function)} and its arguments cannot be pickled: {error}"
            ) from error
        packed = pack(header, body)
        if len(packed) > LIMIT_BYTES:
            raise InvalidSpec(
                f"{_name(self._function)} and its arguments are {len(packed) / _MIB:.1f} MiB, more "
                f"than {LIMIT_BYTES // _MIB} MiB; hand over the path of a file instead"
            )
        return packed


@overload
def job(function: Callable[P, R], /) -> Function[P, R]: ...
@overload
def job(
    *, client: Client | None = None, **fields: Any
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def job(
    function: Callable[P, R] | None = None, /, *, client: Client | None = None, **fields: Any
) -> Function[P, R] | Callable[[Callable[P, R]], Function[P, R]]:
    """Make a function submittable; the keywords are fields of the job file.

    ``workers`` is a number or a pair, ``gpus`` a number or a text such as ``"A100:2"``; names,
    queues, ``env``, ``secrets``, ``run_time``, ``max_duration``, ``retry`` and all others are as
    there.
    """
    for taken in {"command", "run"} & fields.keys():
        raise InvalidSpec(f"@job runs its function; {taken!r} cannot be given")
    if function is not None:
        return Function(function, fields, client)
    return lambda given: Function(given, fields, client)


@contextmanager
def _by_value(function: Callable[..., Any], *, all_of_them: bool) -> Iterator[None]:
    """Let modules that the job cannot import travel inside the pickle."""
    import cloudpickle  # noqa: PLC0415 - as above

    own = getattr(function, "__module__", "") or ""
    names = {own} | (environment.modules(function) if all_of_them else set())
    chosen = [
        sys.modules[name]
        for name in sorted(names)
        if name in sys.modules and name != "__main__" and environment.is_local(name)
    ]
    known = cloudpickle.list_registry_pickle_by_value()
    fresh = [module for module in chosen if module.__name__ not in known]
    for module in fresh:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in fresh:
            cloudpickle.unregister_pickle_by_value(module)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _job_name(function: Callable[..., Any]) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", _name(function).lower()).strip("-")[:40].strip("-")
    return name or "function"


def _plain(value: Any) -> Any:
    """A field as JSON has it."""
    match value:
        case os.PathLike():
            return os.fspath(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return value
