"""Verbs that look at what a server has: what they print and ask for."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml
from tests.unit.cli.told import roost
from tests.unit.client.fakes import NOW, Broken, FakeServer, event, put_jobs, refused, sse, view

from roost.cli import connection
from roost.client import formatting

HOSTILE = "\x1b]0;gotcha\x07[red]no\u202e[/red]"


def test_list_shows_pairs_and_one_footer(server: FakeServer) -> None:
    put_jobs(server)
    lines = roost("list").out.splitlines()
    assert lines[0].split() == [
        *("JOB", "STATE", "QUEUE", "GPUS", "WORKERS", "DONE", "SUBMITTED", "RAN"),
        *("WHERE", "AND", "WHY"),
    ]
    assert lines[1].split() == [
        *("resnet-x7k2p", "running", "default", "2/4", "2/1..4", "50%", "1h", "ago", "50m"),
        "n1:0,1",
    ]
    assert "fewer than 8 GPUs are free" in lines[2]
    assert lines[3] == "2 jobs: 1 queued, 1 running; GPUs held/asked: 2/5"
    assert len(lines) == 4


@pytest.mark.parametrize("alias", ["ls", "ps"])
def test_list_has_aliases(server: FakeServer, alias: str) -> None:
    put_jobs(server)
    assert roost(alias).out == roost("list").out


def test_list_asks_the_server_to_filter(server: FakeServer) -> None:
    put_jobs(server)
    roost("list", "-s", "running,queued", "-s", "failed", "--name", "res", "--sort", "-gpus")
    asked = server.requests[-1].url.params
    assert asked.get_list("state") == ["running", "queued", "failed"]
    assert (asked["user"], asked["name"], asked["sort"]) == ("ada", "res", "-gpus")
    assert (asked["limit"], asked["offset"]) == ("50", "0")

    assert "other-aaaaa" in roost("list", "-A").out
    assert "other-aaaaa" in roost("list", "--user", "all").out
    assert "other-aaaaa" in roost("list", "--user", "bob").out
    assert "other-aaaaa" not in roost("list").out
    assert "not one of" in roost("list", "-s", "sleeping").error


def test_list_tells_what_is_not_shown(server: FakeServer) -> None:
    for number in range(60):
        server.add(f"job-{number:05d}")
    assert roost("list").out.endswith("; 10 more: --offset 50\n")
    assert roost("list", "--offset", 50).out.endswith("GPUs held/asked: 0/10\n")
    assert roost("list", "--offset", 90).out == "no more jobs: there are 60\n"
    assert roost("list", "--name", "nothing").out == "no jobs match\n"


def test_names_alone_are_all_of_them(server: FakeServer) -> None:
    for number in range(220):
        server.add(f"job-{number:05d}")
    names = roost("list", "-o", "name").out.splitlines()
    assert names == list(server.jobs)
    assert roost("list", "-o", "name", "--limit", 2).out.splitlines() == names[:2]
    assert roost("list", "-o", "name", "--name", "nothing").out == ""


def test_lists_of_all_users_say_whose_jobs_they_are(server: FakeServer) -> None:
    put_jobs(server)
    told = roost("list", "-A").out.splitlines()
    assert told[0].split()[:3] == ["JOB", "USER", "STATE"]
    assert told[3].split()[:2] == ["other-aaaaa", "bob"]
    assert roost("list", "--user", "bob").out.splitlines()[0].split()[1] == "STATE"


def test_list_prints_what_the_api_gives(server: FakeServer) -> None:
    put_jobs(server)
    told = json.loads(roost("list", "-A", "-o", "json").out)
    assert told == json.loads(server.answer(server.requests[-1]).content)
    assert yaml.safe_load(roost("list", "-A", "-o", "yaml").out) == told
    wide = roost("list", "-o", "wide").out
    assert "USER" in wide
    assert "2023-11-1" in wide


def test_nothing_a_job_says_acts_on_the_terminal(server: FakeServer) -> None:
    server.add("evil-00000", reason=HOSTILE, queue=HOSTILE, labels={"a": HOSTILE})
    server.happened = [event(1, job="evil-00000", actor=HOSTILE, text=HOSTILE)]
    for command in (("list",), ("list", "-o", "wide"), ("get", "evil-00000"), ("events",)):
        out = roost(*command).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\u202e" not in out
        assert "\\x1b]0;gotcha\\x07[red]no\\u202e[/red]" in out
    assert HOSTILE in json.loads(roost("get", "evil-00000", "-o", "json").out)["reason"]


@pytest.mark.usefixtures("server")
def test_an_empty_list_says_what_to_do_next() -> None:
    assert roost("list").out == "no jobs; hand one in with: roost submit -- python train.py\n"
    assert roost("list", "-s", "failed").out == "no jobs match\n"
    assert roost("list", "--user", "bob").out == "no jobs match\n"


def test_an_empty_list_says_that_others_have_jobs(server: FakeServer) -> None:
    server.add("train-00000", user="bob")
    assert roost("list").out == "no jobs of yours; with the 1 of others: roost list -A\n"
    assert roost("list", "-s", "failed").out == "no jobs match\n"


def test_get_tells_a_failure_with_advice(server: FakeServer) -> None:
    verdict = {
        "kind": "cuda-oom",
        "phrase": "out of GPU memory",
        "whose": "user",
        "retry": "never",
        "advice": "try a smaller batch",
        "code": 1,
    }
    server.add("bert-m3c9w", "failed", exit_code=1, verdict=verdict, attempt=2, failures=2)
    out = roost("get", "bert-m3c9w").out
    assert "why        exit 1, out of GPU memory: try a smaller batch\n" in out
    told = {
        **verdict,
        "sentence": "exit 1, out of GPU memory (yours, not retried): x",
        "evidence": "e",
    }
    server.add("bert-aaaaa", "failed", exit_code=1, verdict=told)
    assert f"why        {told['sentence']} [e]\n" in roost("get", "bert-aaaaa").out
    server.add("bert-bbbbb", "queued", cause="back-off", reason="its last run failed", verdict=told)
    again = roost("get", "bert-bbbbb").out
    assert "why        back-off · its last run failed\n" in again
    assert f"last time  {told['sentence']} [e]\n" in again
    assert "attempt    2 (2 failed)" in out
    assert out.splitlines()[-1].startswith("Next: roost logs bert-m3c9w")
    assert "no job 'nobody'" in roost("get", "nobody").error


def test_watching_through_a_pipe_prints_a_line_per_change(server: FakeServer) -> None:
    snapshot = {"jobs": [view(), view("other-aaaaa", user="bob")], "seq": 1}
    pieces = [sse("snapshot", snapshot, "1-1")]
    pieces.append(sse("delta", {"jobs": [view(state="running")]}, "1-2"))
    answers = iter([httpx.Response(200, stream=Broken(pieces, lost=True))])
    gone = refused(401, "unauthenticated", "the token is no longer valid")
    server.routes["GET", "/stream"] = lambda _: next(answers, gone)

    told = roost("list", "-w")
    assert told.status == 2
    assert [line.split()[2:] for line in told.out.splitlines()] == [
        ["resnet-x7k2p", "queued"],
        ["resnet-x7k2p", "running"],
    ]


def test_logs_of_one_or_all_workers(server: FakeServer) -> None:
    job = server.add(state="running", attempt=1)
    server.logs = {"worker-0": b"a\nb\n\x1b[31mc\x1b[0m\n", "ps-0": b"serving\n"}
    assert roost("logs", job).out == "a\nb\n\x1b[31mc\x1b[0m\n"
    assert roost("logs", job, "--tail", 2).out == "b\n\x1b[31mc\x1b[0m\n"
    assert roost("logs", job, "--worker", "ps-0").out == "serving\n"
    assert roost("logs", job, "--all", "--tail", 1).out == (
        "worker-0 | \x1b[31mc\x1b[0m\nps-0     | serving\n"
    )
    assert "exclude" in roost("logs", job, "--all", "--worker", "ps-0").error


def test_logs_of_all_workers_are_followed(server: FakeServer) -> None:
    job = server.add(state="running", attempt=1)
    server.logs = {"worker-0": b"", "worker-1": b""}

    def log(request: httpx.Request) -> httpx.Response:
        text = f"from {request.url.params['worker']}\n"
        pieces = [sse("attempt", {"attempt": 1}), sse("message", text, "5"), sse("end", {})]
        return httpx.Response(200, stream=Broken(pieces))

    server.routes["GET", f"/jobs/{job}/logs/stream"] = log
    assert sorted(roost("logs", "-f", job, "--all").out.splitlines()) == [
        "worker-0 | from worker-0",
        "worker-1 | from worker-1",
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\ttext é", "plain\ttext é"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m"),
        ("\x1b[31mleft on", "\x1b[31mleft on\x1b[0m"),
        ("\x1b[2Jcleared", "\\x1b[2Jcleared"),
        ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
        ("50%\r100%", "50%\r100%"),
        ("a\u202eb\x9bc", "a\\u202eb\\x9bc"),
    ],
)
def test_a_terminal_gets_colours_and_nothing_else_that_acts(line: str, shown: str) -> None:
    assert connection.log_text(line) == shown


def test_events_read_as_a_sentence(server: FakeServer) -> None:
    server.happened = [
        event(1, old="", new="queued", text="submitted"),
        event(2, actor="roost", text="fits on n1"),
        event(3, job="", node="n1", kind="gpu-failed", old="", new="", text="GPU 3 failed"),
    ]
    lines = [line[20:] for line in roost("events").out.splitlines()]
    assert lines == [
        "[ada] [resnet-x7k2p] queued. submitted",
        "[roost] [resnet-x7k2p] queued -> starting. fits on n1",
        "[ada] [n1] gpu-failed. GPU 3 failed",
    ]
    server.add()
    assert len(roost("events", "resnet-x7k2p").out.splitlines()) == 2
    assert len(json.loads(roost("events", "--limit", 1, "-o", "json").out)) == 1


def test_following_events_tells_each_once(server: FakeServer) -> None:
    server.happened = [event(1), event(2)]
    pieces = [
        sse("snapshot", {"jobs": [], "seq": 3}, "1-3"),
        sse("delta", {"events": [event(3), event(4)]}, "1-4"),
        sse("delta", {"events": [event(5, job="other-aaaaa")]}, "1-5"),
    ]

    def stream(_: httpx.Request) -> httpx.Response:
        server.happened.append(event(3))  # it came after the first look
        server.routes["GET", "/stream"] = lambda _: refused(401, "unauthenticated", "over")
        return httpx.Response(200, stream=Broken(pieces, lost=True))

    server.routes["GET", "/stream"] = stream
    server.add()
    told = roost("events", "-f", "resnet-x7k2p", "-o", "json")
    assert [json.loads(line)["seq"] for line in told.out.splitlines()] == [1, 2, 3, 4]


WHY = {
    "job": "bert-m3c9w",
    "state": "queued",
    "cause": "fragmentation",
    "reason": "8 GPUs are free, but not where such a gang fits",
    "since": NOW,
    "not_before": None,
    "ahead": [{"job": f"gpt-{n}", "gpus": 4.0, "user": "ada"} for n in range(3)]
    + [{"gpus": 2.0}] * 2,
    "ahead_count": 7,
    "held_by": [
        {"gpus": 1.0, "ends_at": NOW + 3600 + 600},
        {"job": "gpt-9", "gpus": 4.0, "user": "ada", "ends_at": NOW + 3600 + 1200},
        {"job": "half\x1b[2J", "gpus": 0.5, "user": "ada", "ends_at": None},
    ],
    "starts_at": NOW + 3600 + 1200,
    "starts_between": [NOW + 3600 + 600, NOW + 3600 + 2100],
    "ends_at": NOW + 3600 + 8400,
    "assumptions": ["jobs run as long as they said"],
    "remedies": [{"change": "with 4 instead of 8 workers"}, {"change": "without one switch"}],
}


def test_explain_gives_cause_blockers_time_and_remedy(server: FakeServer) -> None:
    job = server.add("bert-m3c9w")
    server.routes["GET", f"/jobs/{job}/explain"] = WHY
    lines = roost("explain", job).out.splitlines()
    assert lines[0] == "fragmentation  8 GPUs are free, but not where such a gang fits"
    facts = {line[:12].strip(): line[13:] for line in lines[1:]}
    assert facts["behind"] == (
        "gpt-0 (4 GPUs), gpt-1 (4 GPUs), gpt-2 (4 GPUs), another job (2 GPUs) and 3 more"
    )
    at = [formatting.clock(NOW + 3600 + later)[11:16] for later in (600, 1200)]
    assert facts["held by"] == (
        f"another job (1 GPU, until ~{at[0]}), gpt-9 (4 GPUs, until ~{at[1]}), "
        "half\\x1b[2J (0.5 GPU)"
    )
    assert facts["start"].endswith("(in ~20m), give or take 15m")
    assert facts["now if"] == "with 4 instead of 8 workers"
    assert facts["or"] == "without one switch"
    assert "jobs run as long" in roost("explain", job, "-o", "wide").out
    assert json.loads(roost("explain", job, "-o", "json").out) == WHY


def node(name: str = "n1", **changed: Any) -> dict[str, Any]:
    devices = [
        {"index": 0, "healthy": True, "jobs": [{"job": "resnet-x7k2p", "share": 0.5}]},
        {"index": 1, "healthy": False, "jobs": []},
    ]
    return {
        "id": name,
        "state": "up",
        "kind": "H100",
        "gpus": 2,
        "gpus_free": 0.5,
        "gpus_failed": 1,
        "cpus": 16.0,
        "memory_mib": 65536,
        "devices": devices,
        **changed,
    }


def test_top_shows_nodes_jobs_and_queues(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_jobs(server)
    monkeypatch.setattr("roost.cli.top._SAMPLE_S", 0.0)
    used = {"job": "resnet-x7k2p", "attempt": 1, "cpu_s": 5.0}
    used |= {"rss_bytes": 3 << 30, "processes": 4}
    server.routes["GET", "/nodes"] = {"items": [node(), node("n2", state="lost")]}
    server.routes["GET", "/top"] = {"jobs": [used], "nodes": []}
    queue = {"id": "default", "quota": 8.0, "limit": None, "weight": 1.0, "priority": 0}
    queue |= {"submitters": ["*"], "gpus_used": 2.5, "waiting": 3, "running": 1}
    server.routes["GET", "/queues"] = {"items": [queue]}

    lines = roost("top").out.splitlines()
    assert lines[1].split() == ["n1", "up", "H100", "0.5/2", "1", "16", "64", "GiB", "resnet-x7k2p"]
    assert lines[3:] == ["GPUs allocated/total: 1/4 (25 %)", "waiting: 1 job, 1 GPU"]
    assert roost("nodes").out.splitlines() == lines[:-1]
    assert "n1:1  failed  free" in roost("nodes", "-o", "wide").out
    server.routes["GET", "/health"] = {"ok": True, "why": "", "policy": "the policy failed (oh)"}
    assert "attention: the policy failed (oh)" in roost("top").out.splitlines()

    jobs = roost("top", "job").out.splitlines()
    assert jobs[1].split()[:3] == ["resnet-x7k2p", "running", "2"]
    assert jobs[1].split()[3] == "1"
    assert jobs[1].split()[5:] == ["3.0", "GiB", "4", "50%"]

    queues = roost("top", "queue").out.splitlines()
    assert queues[1].split() == ["default", "2.5/8", "-", "1", "0", "1", "3", "*"]
    assert roost("queues").out.splitlines() == queues
    assert json.loads(roost("queues", "-o", "json").out) == [queue]


def test_get_tells_shares_memory_training_and_the_last_change(server: FakeServer) -> None:
    change = {"kind": "resize", "text": "2 → 3 workers in 0.4 s, training paused 0.1 s", "at": NOW}
    server.add(
        "bert-m3c9w",
        "running",
        share=0.5,
        way="temporal",
        qos="fixed",
        memory_limit_mib=8192,
        memory_mib=3174,
        predicted_mib=2970,
        step_s=0.125,
        samples_per_s=2048.0,
        world=3,
        noise=88.0,
        change=change,
        clone_of="bert-aaaaa@one",
        placement=[{"node": "n1", "gpus": [0], "share": 0.5, "workers": 1, "role": "worker"}],
    )
    out = roost("get", "bert-m3c9w").out
    for line in (
        "sharing    running at 0.5 of GPU 0 (temporal, fixed)",
        "memory     3.1 of 8.0 GiB, predicted 2.9 GiB",
        "where      n1:0@0.5",
        "training   0.125 s a step, 2,048 samples/s, 3 workers together, gradient noise 88 samples",
        "changed    2 → 3 workers in 0.4 s, training paused 0.1 s (1h ago)",
        "cloned     from bert-aaaaa@one",
    ):
        assert f"  {line}\n" in out
    assert "n1:0@0.5" in roost("list").out

    server.add(
        "bert-m3c9w", "suspended", share=0.25, way="spatial", qos="equal", memory_limit_mib=512
    )
    out = roost("get", "bert-m3c9w").out
    assert "  sharing    at 0.25 of a GPU (spatial, equal)\n" in out
    assert "  memory     at most 512 MiB\n" in out
    assert "Next: roost logs -f" in out
    server.add("bert-m3c9w", "suspended", held=True, note="worker-0 cannot be locked")
    out = roost("get", "bert-m3c9w").out
    assert "Next: roost resume bert-m3c9w · " in out
    assert "  note       worker-0 cannot be locked\n" in out
    server.add("bert-m3c9w", "resizing", reason="migrating to n1 GPU 3", predicted_mib=9000)
    assert "  why        migrating to n1 GPU 3\n" in roost("get", "bert-m3c9w").out
    small = {"memory_mib": 300, "memory_limit_mib": 2048, "predicted_mib": 9000}
    server.add("bert-m3c9w", "running", step_s=0.0123, world=1, **small)
    out = roost("get", "bert-m3c9w").out
    told = "300 MiB of 2.0 GiB, predicted 8.8 GiB, more than it may have"
    assert f"  memory     {told}\n" in out
    assert "  training   12.3 ms a step\n" in out


def test_profiles_are_a_line_for_each_size(server: FakeServer) -> None:
    sizes = [
        {"workers": 1, "share": 1.0, "step_s": 0.5, "count": 3, "speed": 1.0},
        {"workers": 2, "share": 1.0, "step_s": 0.28, "count": 9, "speed": 1.786},
    ]
    profile = {"user": "ada", "application": "resnet", "memory_mib": 3174, "noise": None}
    profile["busy"] = 0.87
    profile |= {"sizes": sizes, "costs": {"pause": {"mean_s": 0.12, "count": 2}}}
    two = {"nodes": 1, "workers": 2, "local_batch": 64, "step_s": 0.27, "error": 0.084}
    two |= {"samples_per_s": 474.07, "measured_s": 0.28, "count": 9}
    four = {**two, "workers": 4, "local_batch": 32, "error": 0.31, "measured_s": None, "count": 0}
    profile["models"] = [{"kind": "A100", "batch": 128, "sizes": [two, four]}]
    bare = {"user": "ada", "application": "x", "memory_mib": 0, "noise": 9.0}
    bare |= {"sizes": [], "costs": {}}
    server.routes["GET", "/profiles"] = {"items": [profile, bare]}
    lines = roost("profiles").out.splitlines()
    assert lines[0].split()[:5] == ["APPLICATION", "USER", "WORKERS", "SHARE", "STEP"]
    assert lines[2].split() == [
        "resnet",
        "ada",
        "2",
        "1",
        "0.28",
        "s",
        "1.79x",
        *["3.1", "GiB", "87%", "-", "9"],
    ]
    assert lines[3].split() == ["x", "ada", "-", "-", "-", "-", "-", "-", "9", "-"]
    told = [line.split() for line in lines[4:]]
    names = ["NODES", "WORKERS", "BATCH", "PREDICTED", "MEASURED", "SAMPLES/S"]
    assert told[:2] == [[], ["APPLICATION", "USER", "KIND", *names]]
    whose = ["resnet", "ada", "A100", "1"]
    assert told[2] == [*whose, *["2", "64", "0.27", "s", "±", "8%", "0.28", "s", "474"]]
    assert told[3] == [*whose, *["4", "32", "0.27", "s", "±", "31%", "-", "474"]]
    assert lines[8:] == ["resnet: pause 0.12 s"]
    assert json.loads(roost("profiles", "resnet", "-o", "json").out) == [profile, bare]
    assert server.requests[-1].url.params["application"] == "resnet"
    server.routes["GET", "/profiles"] = {"items": []}
    assert roost("profiles", "y").out == "nothing is known of 'y'\n"
    assert roost("profiles").out.startswith("nothing was measured yet")
