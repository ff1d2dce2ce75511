"""A job that changes its size while it runs, and trains nothing: the protocol by hand.

Run as a file with the standard library alone. Its first argument says how it misbehaves:

    fine      does all that is asked
    rigid     never says that it can change
    slow      is never ready        fails    ends before it is ready
    deaf      never goes on         stays    does not leave
    breaks    ends with an error when it is to go on
    ends      is done when it is to go on; whoever joins waits in vain
    lingers   says that it is over, and ends when there is a file "end" among its checkpoints
    clings    never leaves its GPU
    early     as fine; the second one is done when there is a file "early" among its checkpoints

It goes on until there is a file ``over`` among its checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "fine"
PAUSE_S = 0.125


def tell(**said: object) -> None:
    pipe = os.open(os.environ["ROOST_PROGRESS"], os.O_WRONLY)
    os.write(pipe, f"{json.dumps(said)}\n".encode())
    os.close(pipe)


def look() -> dict[str, Any]:
    view: dict[str, Any] = json.loads(Path(os.environ["ROOST_MEMBERS"]).read_text())
    return view


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def wait_to_join(me: str) -> None:
    if MODE == "fails":
        sys.exit(3)
    if MODE != "slow":
        tell(ready=me)
    while me not in look()["members"]:
        time.sleep(0.002)


def linger(me: str) -> None:
    tell(over=True, member=me)
    say("lingers")
    while not Path(os.environ["ROOST_CHECKPOINT_DIR"], "end").exists():
        time.sleep(0.002)


class Puppet:
    def __init__(self) -> None:
        self.me = os.environ["ROOST_MEMBER"]
        self.saved = self.offloaded = 0

    def run(self) -> None:
        env = os.environ
        view = look()
        joins = self.joins = self.me not in view["members"]
        if MODE != "rigid":
            tell(elastic=True, member=self.me)
        say("up", self.me, env["RANK"], env["WORLD_SIZE"], env["ROOST_GENERATION"])
        self.version = view["version"]
        if joins:
            wait_to_join(self.me)
        else:
            say("member", self.me, "of", *view["members"])
        while True:
            self.step(look())
            time.sleep(0.002)

    def step(self, view: dict[str, Any]) -> None:
        if Path(os.environ["ROOST_CHECKPOINT_DIR"], "over").exists():
            if MODE == "lingers":
                linger(self.me)
            sys.exit(0)
        early = Path(os.environ["ROOST_CHECKPOINT_DIR"], "early")
        if MODE == "early" and self.me == "1" and early.exists():
            sys.exit(0)
        if self.me not in view["members"]:
            if MODE == "stays":
                return
            say("left", self.me)
            sys.exit(0)
        if view["version"] > self.version:
            self.go_on(view)
        if view["save"] > self.saved and view["members"][0] == self.me:
            self.saved = view["save"]
            Path(os.environ["ROOST_CHECKPOINT_DIR"], "state").write_text(f"save {self.saved}")
            tell(saved_for=self.saved)
        if view["offload"] != self.offloaded and MODE != "clings":
            self.offloaded = view["offload"]
            say("offload", self.offloaded)
            tell(offloaded=self.offloaded, member=self.me)

    def go_on(self, view: dict[str, Any]) -> None:
        if MODE == "deaf":
            return
        if MODE == "breaks":
            sys.exit(4)
        if MODE == "ends" and not self.joins:
            sys.exit(0)
        if MODE == "ends":
            return
        self.version = view["version"]
        say("member", self.me, "of", *view["members"])
        if view["members"][0] == self.me:
            tell(joined=self.version, member=self.me, world=len(view["members"]), pause_s=PAUSE_S)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    Puppet().run()
