"""Methods made from conversations: one definition, a blocking and an awaitable way to call it.

``blocking(api.status)`` in the body of a class is a method with the signature and docstring of
``api.status`` that returns what the conversation returns; ``blocking_items`` gives what it emits.
On a handle, ``own_...``, the first argument is the handle's job.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from roost.client.conversations import Items, Steps

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def blocking(steps: Callable[P, Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of a client that returns when the answer is there."""

    def method(self: Any, /, *args: P.args, **given: P.kwargs) -> T:
        done: T = self.run(steps(*args, **given))
        return done

    return _dressed(method, steps)


def blocking_items(steps: Callable[P, Items[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """A method of a client that iterates."""

    def method(self: Any, /, *args: P.args, **given: P.kwargs) -> Iterator[T]:
        items: Iterator[T] = self.iterate(steps(*args, **given))
        return items

    return _dressed(method, steps)


def awaited(
    steps: Callable[P, Steps[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a client that is awaited."""

    async def method(self: Any, /, *args: P.args, **given: P.kwargs) -> T:
        done: T = await self.run(steps(*args, **given))
        return done

    return _dressed(method, steps)


def awaited_items(
    steps: Callable[P, Items[T]],
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """A method of a client that iterates with ``async for``."""

    def method(self: Any, /, *args: P.args, **given: P.kwargs) -> AsyncIterator[T]:
        items: AsyncIterator[T] = self.iterate(steps(*args, **given))
        return items

    return _dressed(method, steps)


def own_blocking(
    steps: Callable[Concatenate[str, P], Steps[T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method of a handle that returns when the answer is there."""

    def method(self: Any, /, *args: P.args, **given: P.kwargs) -> T:
        done: T = self.client.run(steps(self.id, *args, **given))
        self.noted(done)
        return done

    return _dressed(method, steps, own=True)


def own_awaited(
    steps: Callable[Concatenate[str, P], Steps[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a handle that is awaited."""

    async def method(self: Any, /, *args: P.args, **given: P.kwargs) -> T:
        done: T = await self.client.run(steps(self.id, *args, **given))
        self.noted(done)
        return done

    return _dressed(method, steps, own=True)


def own_blocking_items(
    steps: Callable[Concatenate[str, P], Items[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """A method of a handle that iterates."""

    def method(self: Any, /, *args: P.args, **given: P.kwargs) -> Iterator[T]:
        items: Iterator[T] = self.client.iterate(steps(self.id, *args, **given))
        return items

    return _dressed(method, steps, own=True)


def own_awaited_items(
    steps: Callable[Concatenate[str, P], Items[T]],
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """A method of a handle that iterates with ``async for``."""

    def method(self: Any, /, *args: P.args, **given: P.kwargs) -> AsyncIterator[T]:
        items: AsyncIterator[T] = self.client.iterate(steps(self.id, *args, **given))
        return items

    return _dressed(method, steps, own=True)


def _dressed(method: F, steps: Callable[..., Any], *, own: bool = False) -> F:
    """The method under the name, docstring and signature of its conversation."""
    method.__name__, method.__doc__ = steps.__name__, steps.__doc__
    told = inspect.signature(steps)
    parameters = list(told.parameters.values())[1 if own else 0 :]
    method.__signature__ = told.replace(  # type: ignore[attr-defined]
        parameters=[_SELF, *parameters], return_annotation=inspect.Signature.empty
    )
    return method
