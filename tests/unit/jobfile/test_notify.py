"""Lines of ``notify``."""

from __future__ import annotations

import pytest

from roost.errors import InvalidSpec
from roost.jobfile import JobFile
from roost.jobfile.notify import NotifyRule, read_rule


@pytest.mark.parametrize(
    ("line", "target", "moments"),
    [
        ("https://example.com/x", "https://example.com/x", {"ended"}),
        ("failed,started ada@example.com", "ada@example.com", {"failed", "started"}),
        ("failed, started  http://h:8080/a?b=c", "http://h:8080/a?b=c", {"failed", "started"}),
    ],
)
def test_a_line_is_a_target_and_its_moments(line: str, target: str, moments: set[str]) -> None:
    assert read_rule(line) == NotifyRule(target, frozenset(moments))


@pytest.mark.parametrize(
    "line",
    [
        *("", "ada", "ftp://example.com", "http://", "https://u:p@example.com", "soon a@b.c"),
        *("http://h:99999/", "a@b.c\r\nBcc: x@y.z", "https://example.com/" + "x" * 1000),
    ],
)
def test_what_is_no_target(line: str) -> None:
    with pytest.raises(InvalidSpec):
        read_rule(line)


def test_ended_is_any_end() -> None:
    rule = read_rule("ended ada@example.com")
    assert [m for m in ("started", "succeeded", "failed", "cancelled") if rule.applies(m)] == [
        *("succeeded", "failed", "cancelled")
    ]


def test_a_job_file_says_it_as_a_list_or_with_on() -> None:
    section = {"to": ["ada@example.com"], "on": ["failed", "started"]}
    job = JobFile.model_validate({"name": "a", "run": "x", "notify": section})

    assert job.notify == ("failed,started ada@example.com",)
    assert not [note for note in job.notes() if note.startswith("notify")]
    odd = JobFile.model_validate({"name": "a", "run": "x", "notify": ["ada"]})
    assert any(note.startswith("notify: 'ada' is neither a URL") for note in odd.notes())
