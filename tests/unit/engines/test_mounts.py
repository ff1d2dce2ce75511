"""Mounts by name: how they are declared, and who may use them."""

from __future__ import annotations

import json

import pytest

from roost.engines.mounts import HostMount, mount_refusal, mount_variable, read_mount
from roost.errors import InvalidSpec

BIRDS = HostMount("birds", "/data/birds", readonly=True)
SCRATCH = HostMount("scratch", "/scratch", queues=("vision",), users=("ada",))


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("birds=/data/birds/:ro", HostMount("birds", "/data/birds", readonly=True)),
        ("birds=/data/birds:ro", BIRDS),
        ("birds=/data/birds", HostMount("birds", "/data/birds")),
        (json.dumps({"name": "birds", "path": "/data/birds", "readonly": "true"}), BIRDS),
        (
            json.dumps(
                {"name": "scratch", "path": "/scratch", "queues": "vision", "users": ["ada"]}
            ),
            SCRATCH,
        ),
    ],
)
def test_a_mount_is_declared_in_a_line_or_a_mapping(text: str, mount: HostMount) -> None:
    assert read_mount(text) == mount


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("birds", "an absolute folder"),
        ("Birds=/x", "cannot be the name"),
        ("birds=data", "an absolute folder"),
        ("birds=/", "an absolute folder"),
        ("birds=/a/../b", "an absolute folder"),
        ("birds=/a,b", "an absolute folder"),
        ("birds=/a:/b", "an absolute folder"),
        ('{"name": "birds", "pat": "/x"}', "did you mean 'path'"),
        ('{"name": "birds", "path": "/x", "readonly": 3}', "true or false"),
    ],
)
def test_what_is_no_mount_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        read_mount(text)


@pytest.mark.parametrize(
    ("name", "user", "queue", "said"),
    [
        ("birds", "bob", "default", ""),
        ("scratch", "ada", "vision", ""),
        ("bird", "bob", "default", "did you mean 'birds'"),
        ("cats", "bob", "default", "birds"),
        ("scratch", "ada", "default", "'scratch' is for jobs in 'vision', not in 'default'"),
    ],
)
def test_who_may_use_a_mount(name: str, user: str, queue: str, said: str) -> None:
    found = mount_refusal((BIRDS, SCRATCH), [name], user, queue)
    assert said in found
    assert bool(found) == bool(said)


def test_nobody_hears_of_mounts_of_others() -> None:
    found = mount_refusal((BIRDS, SCRATCH), ["scratch"], "bob", "vision")
    assert "unknown mount 'scratch'" in found
    assert "birds" in found
    assert "/scratch" not in found
    assert "an administrator" in mount_refusal((SCRATCH,), ["scratch"], "bob", "vision")


def test_the_variable_of_a_mount() -> None:
    assert mount_variable("birds-2") == "ROOST_MOUNT_BIRDS_2"
