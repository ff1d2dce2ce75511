"""How workers that train with PyTorch meet, when one of them is gone again."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from tests.integration.gang_of_members import free_port

import torch
from roost.train.members import View
from roost.train.pytorch import groups
from roost.train.pytorch.groups import Hello, form


def test_one_that_dies_between_hello_and_connecting_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "_CONNECT", timedelta(seconds=0.5))
    port, hello = free_port(), Hello({"seed": "1"}, torch.device("cpu"))

    def say_hello() -> None:
        store = groups.dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=30))  # noqa: FBT003
        store = groups.dist.PrefixStore("roost/0/1", store)
        store.set("loop/1", "1")
        store.set("hello/1/1", hello.line())

    other = threading.Thread(target=say_hello)
    other.start()
    with pytest.raises(RuntimeError):
        form(View(1, ("127.0.0.1", port), ("0", "1")), 0, hello, lambda: False)
    other.join()
