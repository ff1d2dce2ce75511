"""A server of root runs nothing for somebody who is nobody on this machine."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from roost.core import JobSpec, Launch
from roost.engines import RunOrder
from roost.engines.local.launcher import Launcher
from roost.engines.local.run_record import RunRecord
from roost.errors import InvalidSpec
from roost.jobfile.program import Program, Task
from roost.testing.builders import held, run


def test_nothing_is_started_for_a_user_without_an_account() -> None:
    unused: Any = Mock()
    launcher = Launcher(unused, unused, unused, unused, "python", -1, by_account=True)
    order = RunOrder(
        Launch(run("a"), JobSpec(), held("n0", (0,))),
        Program({"worker": Task(script="id")}),
        user="bob",
    )

    with pytest.raises(InvalidSpec, match="bob has no Unix account here"):
        launcher.launch(order, RunRecord(run("a"), "token"), held("n0", (0,)))

    assert not unused.mock_calls
