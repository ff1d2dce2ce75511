"""The public surface of roost.testing: what it states is there, explained, and all of it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from roost import testing

#: Modules that the public ones are made of.
PARTS = {"gang_checks", "usage"}


def test_every_module_is_public_or_a_part() -> None:
    assert {module.name for module in pkgutil.iter_modules(testing.__path__)} == {
        *testing.__all__,
        *PARTS,
    }


@pytest.mark.parametrize("name", testing.__all__)
def test_a_module_states_what_is_public_and_explains_it(name: str) -> None:
    module = importlib.import_module(f"roost.testing.{name}")

    assert module.__doc__
    assert f"\n{name} " in (testing.__doc__ or "")
    own = {
        key
        for key, value in vars(module).items()
        if key[0] != "_" and getattr(value, "__module__", "") == module.__name__
    }
    assert own <= set(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{public}"
