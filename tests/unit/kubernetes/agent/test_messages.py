"""Messages as protobuf has them: bytes that Google's own encoder wrote, and what comes back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import InvalidSpec
from roost.kubernetes.agent.messages import (
    AllocationResponse,
    ContainerAllocation,
    ContainerPreference,
    DeviceList,
    DevicePluginOptions,
    DeviceSlot,
    Message,
    Mount,
    NumaNode,
    RegistrationRequest,
    TopologyInfo,
)

OPTIONS = DevicePluginOptions(get_preferred_allocation_available=True)
REGISTER = RegistrationRequest("v1beta1", "a.sock", "x/y", OPTIONS)
#: By hand from the encoding's definition: tag = number << 3 | kind, length, bytes.
REGISTERED = b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03x/y\x22\x02\x10\x01"


def test_a_message_is_as_protobuf_defines_it() -> None:
    assert REGISTER.encode() == REGISTERED
    assert RegistrationRequest.decode(REGISTERED) == REGISTER


@pytest.mark.parametrize(
    "message",
    [
        DeviceList(
            (
                DeviceSlot("GPU-1::0", "Healthy", TopologyInfo((NumaNode(1),))),
                DeviceSlot("GPU-2::0", "Unhealthy"),
            )
        ),
        AllocationResponse(
            (ContainerAllocation({"A": "1", "B": ""}, (Mount("/c", "/h", read_only=True),)),)
        ),
        ContainerPreference(("a", "b"), (), 300),
        TopologyInfo((NumaNode(-1),)),
        AllocationResponse(),
    ],
)
def test_what_is_encoded_comes_back(message: Message) -> None:
    assert type(message).decode(message.encode()) == message


def test_fields_of_later_versions_are_skipped() -> None:
    later = REGISTERED + b"\xa2\x06\x02hi" + b"\xa8\x06\x07" + b"\xb1\x06" + b"8bytes!!"
    assert RegistrationRequest.decode(later) == REGISTER


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_refused(body: bytes) -> None:
    with contextlib.suppress(InvalidSpec):
        RegistrationRequest.decode(body)
    with contextlib.suppress(InvalidSpec):
        DeviceList.decode(body)


def test_a_message_that_is_cut_short_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="cut short"):
        RegistrationRequest.decode(REGISTERED[:5])
