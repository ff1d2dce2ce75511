"""What an operator says on its Lease, and what a gateway makes of it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from roost.errors import Forbidden, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import LEASES, Object, ResourceKind
from roost.kubernetes.operator.announcement import (
    DEFAULT_POLICY,
    Announcement,
    announced,
    understood,
)


def lease(policy: str, holder: str = "one", renewed: str = "2026-01-01T00:00:00Z") -> Object:
    said = Announcement(policy, "pack").metadata()
    return {"metadata": said, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def test_the_policy_is_told_with_its_parameters() -> None:
    text = "tiresias:limits=60/600,promote=4"
    found = understood([lease(text)])
    assert (found.policy, found.placer, found.note) == (text, "pack", "")
    assert found.made()[0] == Announcement(text).made()[0]


def test_without_an_operator_it_is_the_default_and_that_is_said() -> None:
    found = understood([])
    assert found.policy == DEFAULT_POLICY
    assert found.note.startswith("no operator was seen in this cluster")


def test_the_operator_that_holds_its_lease_counts() -> None:
    late = lease("srtf", holder="", renewed="2026-03-01T00:00:00Z")
    assert understood([late, lease("fifo")]).policy == "fifo"
    found = understood([late])
    assert (found.policy, found.note) == (
        "srtf",
        "no operator leads now: forecasts are of the last, srtf",
    )


@pytest.mark.parametrize("text", ["no-such-policy", "/home/evil.py:Mine", "evil.py:Mine", ""])
def test_a_policy_that_is_not_known_here_is_not_loaded(text: str) -> None:
    found = understood([lease(text)])
    assert found.policy == DEFAULT_POLICY
    assert "not known here" in found.note
    with pytest.raises(RoostError):
        Announcement(text).made()


def test_who_may_not_read_leases_is_told_so() -> None:
    class Closed:
        async def list(self, kind: ResourceKind, **_: Any) -> tuple[list[Object], str]:
            assert kind is LEASES
            raise Forbidden("no permission to list leases")

    found = asyncio.run(announced(cast("Api", Closed())))
    assert found.policy == DEFAULT_POLICY
    assert "no permission to list leases" in found.note
