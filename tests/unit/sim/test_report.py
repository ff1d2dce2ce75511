"""The HTML report: one harmless file, written all at once, of a sensible size."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import random
import re
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.sim.report import render, write_report
from roost.sim.report.bars import TickScale, bars, node_rows
from roost.sim.report.thin import MAX_STEPS, pick, quantiles, thin_steps
from roost.sim.results import JobResult, Results, Segment, Series

EVIL = "</script><script>alert(1)</script>&\u2028{{title}}"


# --- what the page holds ---


def test_the_contents_are_valid_json_and_complete(fifo: Results) -> None:
    embedded = contents_of(render([fifo]))
    assert (embedded["workload"], embedded["nodes"], embedded["gpus"]) == ("philly-like", 2, 16)
    assert embedded["seeds"] == [0]
    [policy] = embedded["policies"]
    [intake] = embedded["intakes"]
    assert policy["name"] == "fifo"
    assert intake["id"] == [job.id for job in fifo.jobs]
    assert intake["table"] == list(range(40))
    assert policy["jobs"]["runs"] == [job.runs for job in fifo.jobs]
    waits = sum(map(sum, policy["jobs"]["waits"])) * embedded["tick"]
    assert waits == pytest.approx(
        sum(job.wait_turn_s + job.wait_capacity_s for job in fifo.jobs)
        + sum(job.wait_quota_s + job.wait_fragmentation_s for job in fifo.jobs),
        abs=1.0,
    )


def test_policies_given_the_same_jobs_share_them(fifo: Results) -> None:
    other = fake_run("srtf", count=40, nodes=2)
    shuffled = replace(
        other,
        jobs=other.jobs[::-1],
        segments=[segment._replace(job=39 - segment.job) for segment in other.segments],
    )
    embedded = contents_of(render([fifo, shuffled]))
    assert len(embedded["intakes"]) == 1
    assert [policy["intake"] for policy in embedded["policies"]] == [0, 0]
    assert (
        embedded["policies"][1]["bars"] == contents_of(render([fifo, other]))["policies"][1]["bars"]
    )


def test_several_seeds_have_intervals_and_show_the_first(fifo: Results) -> None:
    runs = [fifo, fake_run("fifo", 1, count=40, nodes=2), fake_run("sjf", 1, count=40, nodes=2)]
    embedded = contents_of(render(runs))
    first, second = embedded["policies"]
    assert embedded["seeds"] == [0, 1]
    assert first["half"][0] is not None
    assert second["half"][0] is None
    assert second["diff"][0] is not None
    shown = [round(job.work_s / embedded["tick"]) for job in fifo.jobs]
    assert embedded["intakes"][first["intake"]]["work"] == shown


def test_the_same_policy_with_two_placers_gets_two_names(fifo: Results) -> None:
    page = contents_of(render([fifo, replace(fifo, placer="spread")]))
    assert [policy["name"] for policy in page["policies"]] == ["fifo · pack", "fifo · spread"]


@pytest.mark.parametrize("kept", ["nothing", "jobs only"])
def test_a_run_with_hardly_anything_still_makes_a_page(fifo: Results, kept: str) -> None:
    jobs = [] if kept == "nothing" else [job._replace(finished_at=None) for job in fifo.jobs]
    bare = replace(fifo, jobs=jobs, series=Series(), segments=[])
    assert contents_of(render([bare]))["policies"][0]["cdf"] == {"x": [], "y": []}


def test_no_runs_make_no_page(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="at least one run"):
        write_report(tmp_path / "report.html", [])
    assert list(tmp_path.iterdir()) == []


# --- harmless ---


def test_names_cannot_break_out_of_the_page(fifo: Results) -> None:
    evil = replace(
        fifo,
        workload=EVIL,
        policy=EVIL,
        jobs=[job._replace(id=EVIL, queue=EVIL) for job in fifo.jobs],
        segments=[segment._replace(node=EVIL) for segment in fifo.segments],
    )
    page = render([evil])
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert contents_of(page)["intakes"][0]["id"][0] == EVIL
    assert "<title>&lt;/script&gt;" in page


def test_the_page_may_run_only_its_own_script_and_style(fifo: Results) -> None:
    page = render([fifo])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none';")
    assert "unsafe" not in policy[1]
    for tag in ("style", "script"):
        [inline] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_the_page_asks_the_network_for_nothing(fifo: Results) -> None:
    page = render([fifo])
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#|data:)", page)
    assert not re.search(r"\burl\(|@import|\bfetch\(|XMLHttpRequest|\bimport\(", page)
    assert not re.search(r"\sstyle=|\son[a-z]+=\"", page)


# --- all at once, or not at all ---


def test_an_older_report_is_replaced(tmp_path: Path, fifo: Results) -> None:
    target = tmp_path / "report.html"
    target.write_text("older")
    write_report(target, [fifo])
    assert target.read_text(encoding="utf-8") == render([fifo])
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("older", [None, "older"])
def test_a_full_disk_leaves_everything_as_it_was(
    tmp_path: Path, fifo: Results, monkeypatch: pytest.MonkeyPatch, older: str | None
) -> None:
    target = tmp_path / "report.html"
    if older:
        target.write_text(older)

    def write_half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(InvalidSpec, match="No space left"):
        write_report(target, [fifo])
    assert [path.read_text() for path in tmp_path.iterdir()] == ([older] if older else [])


def test_a_file_that_may_not_grow_leaves_nothing_behind(tmp_path: Path, fifo: Results) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(InvalidSpec, match="File too large"):
            write_report(tmp_path / "report.html", [fifo])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_hold_a_report_are_left_alone(tmp_path: Path, fifo: Results) -> None:
    for place in (tmp_path, tmp_path / "missing" / "report.html", Path("/dev/null")):
        with pytest.raises(InvalidSpec, match=r"regular file|No such file"):
            write_report(place, [fifo])
    assert Path("/dev/null").is_char_device()
    assert list(tmp_path.iterdir()) == []


# --- of a sensible size ---


def test_eight_policies_on_four_hundred_jobs_stay_small() -> None:
    runs = [fake_run(policy) for policy in POLICIES]
    runs += [replace(run, policy=f"{run.policy}-2") for run in runs[:2]]
    assert len(render(runs)) < 2_000_000


def test_a_large_trace_is_sampled_and_says_so() -> None:
    run = large_run()
    page = render([run, replace(run, policy="sjf"), replace(run, policy="las")])
    assert 1_000_000 < len(page) < 12_000_000
    embedded = contents_of(page)
    [intake] = embedded["intakes"]
    assert intake["total"] == 82_000
    assert intake["every"] == 16
    assert 9_000 < len(intake["table"]) <= 10_000
    for policy in embedded["policies"]:
        assert len(policy["series"]["at"]) == MAX_STEPS // 3
        assert max(policy["series"]["queued"]["hi"]) == 99_999
        assert policy["bars"]["total"] == 82_000
        assert len(policy["bars"]["job"]) == 60_000
        assert 0.9 < policy["bars"]["shown"] < 1


def test_short_series_stay_as_they_are() -> None:
    at, columns = thin_steps([0, 5, 5, 9], {"queued": [1, 2, 3, 4]}, 10)
    assert at.tolist() == [0, 5, 9]
    assert {kind: values.tolist() for kind, values in columns["queued"].items()} == {"v": [1, 3, 4]}


def test_long_series_keep_their_peaks_and_their_mean() -> None:
    time = np.arange(10_000.0)
    values = np.ones(10_000)
    values[7_777] = 500
    at, columns = thin_steps(time.tolist(), {"queued": values.tolist()}, 10_000.0)
    queued = columns["queued"]
    assert at.size == queued["v"].size == MAX_STEPS // 3
    assert (queued["hi"].max(), queued["lo"].min()) == (500, 1)
    assert queued["v"].mean() == pytest.approx(values.mean())


def test_quantiles_end_at_the_extremes() -> None:
    at, part = quantiles(np.arange(100_000.0))
    assert (at[0], at[-1], part[-1]) == (0, 99_999, 1)
    assert at.size <= 400
    assert np.allclose(part, (at + 1) / 100_000)


def test_pick_keeps_the_longest_and_an_even_choice() -> None:
    chosen, every = pick(np.array([9, 1, 1, 8, 1, 1, 1.0, 1]), most=4, longest=2)
    assert (chosen, every) == ([0, 1, 3, 5], 3)
    assert pick(np.ones(3), most=4, longest=2) == ([0, 1, 2], 1)


def test_bars_join_neighbours_and_stack_shares() -> None:
    whole = [Segment(0, "n10", gpu, 1000, 0, 5) for gpu in (0, 1, 3)]
    shares = [
        Segment(1, "n2", 0, 400, 0, 4),
        Segment(2, "n2", 0, 600, 1, 9),
        Segment(3, "n2", 0, 300, 5, 6),
    ]
    run = Results("fifo", "pack", "tiny", 0, 2, 8, [], Series(), [*whole, *shares])
    nodes = node_rows([run])
    assert list(nodes.items()) == [("n2", 4), ("n10", 4)]
    columns = bars(run.segments, nodes, TickScale(0, 0.5), most=10)
    assert columns["rows"] == [3, 0, 0, 0, 1, 0, 0, 1]
    assert columns["start"] == [0, 2, 8, 0, 0]
    assert columns["length"] == [8, 16, 2, 10, 10]
    assert columns["span"] == [1, 1, 1, 2, 1]
    assert columns["shares"] == [[0, 0, 400], [1, 400, 600], [2, 0, 300]]
    assert (columns["total"], columns["shown"]) == (5, 1.0)


# --- made-up runs ---


@pytest.fixture(scope="module")
def fifo() -> Results:
    return fake_run("fifo", count=40, nodes=2)


def contents_of(page: str) -> Any:
    embedded = re.search(r'<script type="application/json" id="contents">(.*?)</script>', page)
    assert embedded
    return json.loads(embedded[1])


def large_run(count: int = 82_000) -> Results:
    """As many jobs as the Philly trace, one after another on each of 300 nodes."""
    chance = random.Random(0)
    jobs, segments = [], []
    for index in range(count):
        start, work, gpus = index * 60.0, chance.expovariate(1 / 9_000), chance.choice([1, 2, 4])
        wait = chance.expovariate(1 / 3_000)
        end, node = start + wait + work, f"node-{index % 300}"
        name = f"application_15066384{index:05}"
        jobs.append(
            JobResult(
                name,
                f"vc{index % 14}",
                gpus,
                start,
                start + wait,
                end,
                "succeeded",
                work,
                gpus * work,
                0.0,
                1,
                0,
                0,
                0.0,
                wait / 4,
                wait / 4,
                wait / 2,
            )
        )
        segments += [Segment(index, node, gpu, 1000, start + wait, end) for gpu in range(gpus)]
    steps = [index * 50.0 for index in range(100_000)]
    full = [2_400.0] * len(steps)
    queued = [index % 7 for index in range(len(steps))]
    queued[55_555] = 99_999
    series = Series(steps, full, full, full, queued, queued, full)
    return Results("fifo", "pack", "philly", 0, 300, 2_400, jobs, series, segments)


ROUND = 60.0
PER_NODE = 8


@dataclass(slots=True, eq=False)
class FakeJob:
    """A job of the toy scheduler below."""

    index: int
    queue: str
    gpus: float
    submitted_at: float
    work_s: float
    done_s: float = 0.0
    held: list[tuple[int, int, int]] = field(default_factory=list)
    since: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    runs: int = 0
    lost_gpu_s: float = 0.0
    waits: dict[str, float] = field(default_factory=lambda: dict.fromkeys("qfct", 0.0))


Order = Callable[[FakeJob], float]
POLICIES: dict[str, tuple[Order, bool, bool]] = {  # order, blocks behind the head, preempts
    "fifo": (lambda job: job.submitted_at, True, False),
    "backfill": (lambda job: job.submitted_at, False, False),
    "sjf": (lambda job: job.work_s, False, False),
    "srtf": (lambda job: job.work_s - job.done_s, False, True),
    "las": (lambda job: job.done_s * job.gpus, False, True),
    "smallest": (lambda job: job.gpus * job.work_s, False, False),
}


def fake_jobs(count: int, seed: int, *, load: float = 1.0, gpus: int = 64) -> list[FakeJob]:
    """Jobs with the long tails of real traces, in bursts."""
    chance = random.Random(seed)
    jobs, at = [], 0.0
    for index in range(count):
        size = chance.choice([0.5, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16])
        work = min(2e5, chance.lognormvariate(8.2, 1.3))
        at += chance.expovariate(gpus * load / (3.9 * 8_500)) * chance.choice([0.2, 0.6, 2.2])
        queue = chance.choices(["vision", "nlp", "speech", "robotics", "interns"], [5, 4, 2, 2, 1])
        jobs.append(FakeJob(index, queue[0], size, at, work))
    return jobs


class FakeCluster:
    """A toy scheduler in rounds: realistic enough to look at, and devices never overlap."""

    def __init__(self, policy: str, nodes: int) -> None:
        self.order, self.blocks, self.preempts = POLICIES[policy]
        self.free = [[1000] * PER_NODE for _ in range(nodes)]
        self.segments: list[Segment] = []
        self.series = Series()

    def run(self, jobs: list[FakeJob]) -> None:
        now, arriving, active = 0.0, list(jobs), list[FakeJob]()
        while arriving or active:
            while arriving and arriving[0].submitted_at <= now:
                active.append(arriving.pop(0))
            for job in [job for job in active if job.held and job.done_s >= job.work_s]:
                job.finished_at = now - (job.done_s - job.work_s)
                self.release(job, job.finished_at)
                active.remove(job)
            self.schedule(sorted(active, key=self.order), now)
            self.record(active, now)
            for job in active:
                if job.held:
                    job.done_s += max(0.0, min(ROUND, now + ROUND - job.since - 90.0))
            now += ROUND

    def schedule(self, order: list[FakeJob], now: float) -> None:
        if self.preempts and now % 1800 == 0:
            room = sum(map(len, self.free)) * 0.95
            for job in order:
                room -= job.gpus
                if room < 0 and job.held and now - job.since > 3600:
                    job.lost_gpu_s += job.gpus * (90.0 + min(300.0, job.done_s))
                    job.done_s = max(0.0, job.done_s - 300.0)
                    self.release(job, now)
        head = True
        for job in (job for job in order if not job.held):
            cause = "t" if self.blocks and not head else self.place(job, now)
            if cause:
                head = False
                job.waits[cause] += ROUND

    def place(self, job: FakeJob, now: float) -> str | None:
        """Give a job its devices, or say what it waits for."""
        share = round(min(job.gpus, 1) * 1000)
        fits = [
            [(node, gpu) for gpu, free in enumerate(gpus) if free >= share]
            for node, gpus in enumerate(self.free)
        ]
        need = max(1, round(job.gpus))
        each = min(need, PER_NODE)
        usable = sorted((own for own in fits if len(own) >= each), key=len)[: need // each]
        if len(usable) < need // each:
            return "f" if sum(map(len, fits)) >= need else "c"
        if job.queue == "interns" and sum(map(len, fits)) < PER_NODE * 2:
            return "q"
        job.held = [(node, gpu, share) for own in usable for node, gpu in own[:each]]
        for node, gpu, part in job.held:
            self.free[node][gpu] -= part
        job.since, job.runs = now, job.runs + 1
        job.started_at = now if job.started_at is None else job.started_at
        return None

    def release(self, job: FakeJob, now: float) -> None:
        for node, gpu, share in job.held:
            self.free[node][gpu] += share
            self.segments.append(Segment(job.index, f"node-{node}", gpu, share, job.since, now))
        job.held = []

    def record(self, active: Iterable[FakeJob], now: float) -> None:
        jobs = list(active)
        held = [job for job in jobs if job.held]
        self.series.time.append(now)
        self.series.capacity.append(sum(map(len, self.free)))
        self.series.allocated.append(sum(job.gpus for job in held))
        self.series.useful.append(sum(job.gpus for job in held if now - job.since >= 90.0))
        self.series.queued.append(len(jobs) - len(held))
        self.series.running.append(len(held))
        self.series.demand.append(sum(job.gpus for job in jobs))


def fake_run(policy: str, seed: int = 0, *, count: int = 400, nodes: int = 8) -> Results:
    """One run of the toy scheduler."""
    jobs = fake_jobs(count, seed, gpus=nodes * PER_NODE)
    cluster = FakeCluster(policy, nodes)
    cluster.run(jobs)
    return Results(
        policy=policy,
        placer="pack",
        workload="philly-like",
        seed=seed,
        nodes=nodes,
        gpus=nodes * PER_NODE,
        jobs=[row(job) for job in jobs],
        series=cluster.series,
        segments=cluster.segments,
        events=count * 3,
        decisions=count * 2,
        wall_s=0.21,
        cpu_s=0.2,
    )


def row(job: FakeJob) -> JobResult:
    return JobResult(
        id=f"job-{job.index:04}",
        queue=job.queue,
        gpus=job.gpus,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        outcome=("succeeded", "succeeded", "succeeded", "failed", "cancelled")[job.index % 5],
        work_s=job.work_s,
        service_gpu_s=job.gpus * job.work_s + job.lost_gpu_s,
        lost_gpu_s=job.lost_gpu_s,
        runs=job.runs,
        preemptions=job.runs - 1,
        resizes=0,
        wait_quota_s=job.waits["q"],
        wait_fragmentation_s=job.waits["f"],
        wait_capacity_s=job.waits["c"],
        wait_turn_s=job.waits["t"],
    )
