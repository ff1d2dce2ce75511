"""Settings of all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.effort import load_profile

load_profile()

# A shell starts what runs in the background with SIGINT ignored, nohup with SIGHUP; processes that
# tests start would inherit that, and be deaf to the signals that tests send.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture(scope="session", autouse=True)
def _no_logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The logins of whoever runs the tests are none of their business."""
    folder = tmp_path_factory.mktemp("config")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        for name in ("ROOST_ON", "ROOST_CA"):
            patch.delenv(name, raising=False)
        yield folder
