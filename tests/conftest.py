"""Settings of all tests."""

from __future__ import annotations

import signal

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
