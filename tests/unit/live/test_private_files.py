"""What cannot be kept of a submission is no fault of the submission."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from roost import files
from roost.core import JobId
from roost.errors import Retryable
from roost.live.private_files import PrivateFiles
from roost.store import StoreFull

JOB = JobId("job-abcde")


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EMFILE, Retryable)],
)
def test_files_that_cannot_be_kept_can_be_tried_again(
    number: int, kind: type[Retryable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = PrivateFiles(tmp_path)
    create = files.create

    def second_fails(path: Path, content: bytes) -> None:
        if path.parent.name == "payloads":
            raise OSError(number, "out of it")
        create(path, content)

    monkeypatch.setattr(files, "create", second_fails)
    with pytest.raises(Retryable, match="the job's files cannot be kept: out of it") as refused:
        private.keep(JOB, {"KEY": "hush"}, b"function")
    assert type(refused.value) is kind
    assert private.secrets(JOB) == {}  # one of two files must not stay behind
