"""Which addresses a server may be made to call."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from roost.errors import Forbidden
from roost.live.notifications.senders import is_public, send
from roost.live.notifications.settings import NotificationSettings


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.1.2.3"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1"),
        *("::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1", "ff02::1"),
    ],
)
def test_inner_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_outer_ones_are(address: str) -> None:
    assert is_public(ip_address(address))


def test_what_is_refused() -> None:
    told = {"id": "x", "time": 1.0, "text": "t"}
    with pytest.raises(Forbidden, match="not a public address"):
        send("http://169.254.169.254/latest", told, NotificationSettings())
    with pytest.raises(Forbidden, match="no mail server"):
        send("ada@example.com", told, NotificationSettings())
    mail = {"host": "127.0.0.1", "from": "roost@example.com", "domains": ["example.com"]}
    settings = NotificationSettings.model_validate({"mail": mail})
    with pytest.raises(Forbidden, match=r"example\.com only"):
        send("ada@example.org", told, settings)
