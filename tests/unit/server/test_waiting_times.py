from __future__ import annotations

from roost.server.waiting_times import WaitingTimes, since_of
from roost.store.jobs import OpenJob


def test_the_oldest_is_the_oldest_of_those_that_still_wait() -> None:
    jobs = [OpenJob(f"j-{n}", "j", "ada", "q", "queued", float(9 - n), 1) for n in range(5)]
    waiting = set(jobs)
    oldest = WaitingTimes(lambda job: job in waiting)
    for job in [*jobs, *jobs]:
        oldest.note(job)
    oldest.note(OpenJob("r-1", "r", "ada", "q", "running", 0.0, 1))

    assert oldest.since("q") == 5.0
    waiting -= {jobs[4], jobs[3]}
    assert oldest.since("q") == since_of(waiting, "q") == 7.0
    waiting.clear()
    assert oldest.since("q") is since_of(waiting, "q") is oldest.since("none") is None
