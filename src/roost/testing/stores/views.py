"""What every store's lists and accounts must do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from roost.core.cells import CellPromise
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.store import (
    EventQuery,
    EventRow,
    JobQuery,
    JobRow,
    QueueRow,
    RestorePointRow,
    RowPage,
    User,
    open_store,
)
from roost.store.jobs import RequestKey, RequestTrace, StoredJob
from roost.store.restore_points import MOST_POINTS
from roost.store.rows import JOB_SORTS, OPEN_STATES, STATES
from roost.testing.stores.database import NOW, TrialDatabase, entry, job_row, raises, require, same


class ViewConformance:
    """What every store's lists must do. Needs a fixture ``place``."""

    def test_a_job_is_what_it_was_last(self, place: TrialDatabase) -> None:
        """Every field comes back; a later row replaces the earlier one; deleted is gone."""
        job = job_row(
            "train",
            cause="no-room",
            priority=-3,
            gpus=0.5,
            request="key-1",
            labels={"team": "vision", "é": "😀"},
            rev=1,
            view={"id": "train-00000", "loss": None, "labels": {"a": [1, 2.5]}},
            document={"command": ["python", "a\0b"]},
        )
        with open_store(place.url) as store:
            store.journal.serve()
            store.journal.append([entry(1)], [job, job_row("other")])
            same(store.jobs.get(job.id), job, "the job")
            later = replace(
                job, state="running", started_at=NOW + 1, rev=2, labels={"team": "speech"}
            )
            store.journal.append([entry(2)], [job, later])
            same(store.jobs.get(job.id), later, "the job")
            query = JobQuery(labels={"team": "vision"})
            same(store.jobs.find(query).total, 0, "jobs with the old label")
            store.journal.append([entry(3)], [], [], [job.id])
            same(store.jobs.get(job.id), None, "the deleted job")
            same(store.jobs.find(JobQuery()).total, 1, "the number of jobs")

    def test_a_request_is_found_by_its_key(self, place: TrialDatabase) -> None:
        """Per user; a second job with the same key is refused."""
        with open_store(place.url) as store:
            store.journal.serve()
            mine, other = job_row("a", request="k"), job_row("b", request="k", user="bob")
            store.journal.append([entry(1)], [mine, other, job_row("c"), job_row("d")])
            same(store.jobs.by_request("ada", "k"), mine, "ada's job")
            same(store.jobs.by_request("bob", "k"), other, "bob's job")
            same(store.jobs.by_request("ada", "K"), None, "a job with another key")
            same(store.jobs.by_request("ada", ""), None, "a job without key")
            same(store.jobs.by_request("ada\0", "k\ud800"), None, "a job of an odd user")
            with raises(Conflict):
                store.journal.append([entry(2)], [job_row("e", request="k")])
            same([one.seq for one in store.journal.entries()], [1], "the journal")

    def test_the_request_of_a_job_that_was_deleted_is_remembered(
        self, place: TrialDatabase
    ) -> None:
        """Per user, and after a restart."""
        with open_store(place.url) as store:
            store.journal.serve()
            store.journal.append([entry(1)], [job_row("a", request="k"), job_row("b")])
            there = [RequestKey("ada", "k", "b-00000"), RequestKey("", "", "c-00000")]
            (known, other) = store.jobs.known_requests(there)
            same((known.row, known.spent), (store.jobs.get("a-00000"), ""), "a job that is there")
            same((known.taken, other), (True, RequestTrace(None, "", taken=False)), "what is taken")
            store.journal.append([entry(2)], [], [], ["a-00000", "b-00000"])
        with open_store(place.url) as store:
            same(store.jobs.by_request("ada", "k"), None, "the job of the request")
            sent = [("ada", "k"), ("bob", "k"), ("ada", ""), ("ada\0", "k\ud800")]
            asked = [RequestKey(user, key, "b-00000") for user, key in sent]
            spent = [one.spent for one in store.jobs.known_requests(asked)]
            same(spent, ["a-00000", "", "", ""], "what requests made")

    def test_pages_are_those_of_an_obvious_search(self, place: TrialDatabase) -> None:
        """Random jobs and questions, against a filter over a list."""
        chance = random.Random(11)  # noqa: S311 - not for secrets
        with open_store(place.url) as store:
            store.journal.serve()
            jobs: dict[str, JobRow] = {}
            for seq in range(1, 6):
                batch = [_random_job(chance) for _ in range(60)]
                gone = chance.sample(sorted(jobs), min(len(jobs), 9))
                store.journal.append([entry(seq)], batch, [], gone)
                jobs |= {job.id: job for job in batch}
                for name in gone:
                    del jobs[name]
                for _ in range(30):
                    query = _random_query(chance)
                    found = store.jobs.find(query)
                    wanted = _search(jobs.values(), query)
                    page = tuple(wanted[query.offset : query.offset + query.limit])
                    same(found.items, page, f"the page of {query}")
                    same(found.total, len(wanted), f"the total of {query}")
                    totals = store.jobs.totals(query)
                    same(totals.total, len(wanted), f"the number of {query}")
                    states = Counter(job.state for job in wanted)
                    same(totals.states, dict(states), f"the states of {query}")
                    users = Counter(job.user for job in wanted)
                    same(totals.users, dict(users), f"the users of {query}")
            open_now = sorted(job.id for job in jobs.values() if job.state in OPEN_STATES)
            same(sorted(job.id for job in store.jobs.open()), open_now, "the open jobs")
            unfinished = {job.id: job for job in store.jobs.unfinished()}
            same(sorted(unfinished), open_now, "the unfinished jobs")
            taken: list[StoredJob] = []
            store.jobs.verify(take=taken.extend)
            same({job.id: job for job in taken}, unfinished, "the jobs that were checked")
            for job in store.jobs.some(open_now):
                same(unfinished[job.id].view, dict(job.view), f"the view of {job.id}")
                same(unfinished[job.id].document, dict(job.document), f"the file of {job.id}")

    def test_names_are_looked_for_as_they_are_written(self, place: TrialDatabase) -> None:
        """Wildcards of the database mean nothing."""
        names = ["a%b", "a_b", "a!b", "axb", "a\\b", "AXB"]
        with open_store(place.url) as store:
            store.journal.serve()
            store.journal.append(
                [entry(1)], [job_row(name, id=str(n)) for n, name in enumerate(names)]
            )
            for text, wanted in (
                ("%", ["a%b"]),
                ("_", ["a_b"]),
                ("!", ["a!b"]),
                ("\\", ["a\\b"]),
                ("x", ["AXB", "axb"]),
                ("A%", ["a%b"]),
                ("'", []),
            ):
                page = store.jobs.find(JobQuery(name=text, sort="name"))
                same([job.name for job in page.items], wanted, f"names with {text}")

    def test_a_question_that_cannot_be_right_is_refused(self, place: TrialDatabase) -> None:
        """With the nearest field."""
        with open_store(place.url) as store:
            with raises(InvalidSpec, "did you mean 'submitted_at'"):
                store.jobs.find(JobQuery(sort="-submited_at"))
            with raises(InvalidSpec, "did you mean 'running'"):
                store.jobs.find(JobQuery(states=("runing",)))
            for limit, offset in ((0, 0), (201, 0), (-1, 0), (1, -1), (1, 2**63)):
                with raises(InvalidSpec):
                    store.jobs.find(JobQuery(limit=limit, offset=offset))
                with raises(InvalidSpec):
                    store.events.find(EventQuery(limit=limit, offset=offset))
            for text in ("\0", "\ud800", "x" * 60_000):
                with raises(InvalidSpec):
                    store.jobs.find(JobQuery(name=text))
            with raises(InvalidSpec):
                store.jobs.find(JobQuery(users=("ada",) * 1000))

    def test_the_event_log(self, place: TrialDatabase) -> None:
        """By job, user, node, kind and number, from both ends."""
        late = 7
        lines = [
            EventRow(seq, n, NOW + seq, f"u{n}", f"j{seq % 3}", f"u{seq % 2}", f"n{n}", f"k{n}")
            for seq in range(1, 10)
            for n in range(3)
        ]
        lines[4] = replace(lines[4], old="a\0", new="\ud800", text="é")
        with open_store(place.url) as store:
            store.journal.serve()
            for seq in range(1, 10):
                store.journal.append([entry(seq)], [], [line for line in lines if line.seq == seq])
            lines[4] = replace(lines[4], old="a\ufffd", new="?")
            for query, wanted in (
                (EventQuery(limit=200), lines),
                (EventQuery(sort="-seq", limit=2), lines[:-3:-1]),
                (EventQuery(after=late), [line for line in lines if line.seq > late]),
                (EventQuery(after=late, after_n=1), lines[20:]),
                (EventQuery(job="j1", kind="k2"), [line for line in lines if _is_one(line)]),
                (EventQuery(user="u1", limit=200), [line for line in lines if line.seq % 2]),
                (EventQuery(node="n0", offset=8), lines[-3:-2]),
            ):
                same(list(store.events.find(query).items), wanted, f"the lines of {query}")
            same(store.events.find(EventQuery(job="j1", limit=1)).total, 9, "the total")


class AccountConformance:
    """What every store must know about people. Needs a fixture ``place``."""

    def test_users(self, place: TrialDatabase) -> None:
        """Added once, changed, listed by name."""
        with open_store(place.url) as store:
            ada, bob = User("ada", "admin", "ada"), User("bob")
            store.accounts.add_user(bob, actor="ada")
            store.accounts.add_user(ada)
            with raises(Conflict, "ada"):
                store.accounts.add_user(ada)
            same(store.accounts.users(), [ada, bob], "the users")
            off = replace(bob, active=False, role="viewer")
            store.accounts.set_user(off, actor="ada")
            same(store.accounts.user("bob"), off, "bob")
            same(store.accounts.user("b\0b"), None, "an odd user")
            with raises(NotFound, "did you mean 'bob'"):
                store.accounts.set_user(User("bop"))
            for name in ("", "a b", "a" * 65, "-a", "a\n", "../x", "é"):
                with raises(InvalidSpec):
                    store.accounts.add_user(User(name))
            with raises(InvalidSpec, "admin"):
                store.accounts.add_user(User("eve", "admn"))
            lines = store.events.find(EventQuery(kind="account")).items
            told = [(line.actor, line.user, line.new) for line in lines]
            wanted = [("ada", "bob", "user"), ("", "ada", "admin as ada"), ("ada", "bob", _OFF)]
            same(told, wanted, "the lines about accounts")

    def test_tokens(self, place: TrialDatabase) -> None:
        """A secret opens until it expires, is revoked, or its user is sent away."""
        now = [NOW]
        with open_store(place.url, lambda: now[0]) as store:
            ada = store.accounts.add_user(User("ada", "admin"))
            _, short = store.accounts.add_token("ada", "short", NOW + 10)
            revoked, gone = store.accounts.add_token("ada", "revoked")
            token, secret = store.accounts.add_token("ada", "laptop", actor="ada")
            for wrong in ("", "roost_", secret[:-1], secret + "x", f"roost_{'x' * 10_000}", "é\0"):
                same(store.accounts.find_token(wrong), None, "a wrong secret")
            store.accounts.revoke_token(revoked.id)
            same(store.accounts.find_token(gone), None, "a revoked secret")
            require(store.accounts.find_token(short) is not None, "a fresh secret does not open")
            now[0] += 10
            same(store.accounts.find_token(short), None, "an expired secret")
            used = replace(token, last_used_at=now[0])
            same(store.accounts.find_token(secret), (used, ada), "the secret")
            store.accounts.set_user(replace(ada, active=False))
            same(store.accounts.find_token(secret), None, "the secret of a user who was sent away")
            labels = {one.label for one in store.accounts.tokens("ada")}
            same(labels, {"short", "revoked", "laptop"}, "the tokens")
            same(store.accounts.tokens("bob"), [], "bob's tokens")
            with raises(NotFound):
                store.accounts.add_token("bob", "none")
            with raises(NotFound):
                store.accounts.revoke_token("tok-none")
            with raises(InvalidSpec):
                store.accounts.add_token("ada", "late", now[0] - 1)

    def test_tokens_die_with_the_token_they_were_made_with(self, place: TrialDatabase) -> None:
        """And so do those made with them; others live on."""
        with open_store(place.url) as store:
            for name in ("ada", "bob"):
                store.accounts.add_user(User(name))
            root, _ = store.accounts.add_token("ada", "root")
            first, _ = store.accounts.add_token("ada", "leaked", parent=root.id)
            made = [first]
            secrets = []
            for user in ("ada", "bob", "ada"):
                token, secret = store.accounts.add_token(user, "made", parent=made[-1].id)
                made.append(token)
                secrets.append(secret)
            _, other = store.accounts.add_token("bob", "other", parent=root.id)
            same(store.accounts.tokens("bob")[0].parent, made[1].id, "what it was made with")
            revoked = store.accounts.revoke_token(first.id, actor="eve")
            same((revoked.id, revoked.revoked_at is None), (first.id, False), "what was revoked")
            for secret in secrets:
                same(store.accounts.find_token(secret), None, "a secret made with a revoked one")
            require(store.accounts.find_token(other) is not None, "a token of another user is gone")
            alive = {one.label for one in store.accounts.tokens() if one.revoked_at is None}
            same(alive, {"root", "other"}, "the tokens that are left")
            lines = [line for line in store.events.find(EventQuery()).items if line.old]
            same({line.old for line in lines}, {one.id for one in made}, "the tokens told of")
            same({line.actor for line in lines}, {"eve"}, "the users that revoked them")
            store.accounts.revoke_token(first.id)
            same(len(store.events.find(EventQuery()).items), 8 + 4, "the lines")
            for parent in (first.id, made[2].id, "tok-none"):
                with raises(Conflict, "revoked"):
                    store.accounts.add_token("ada", "late", parent=parent)

    def test_use_is_noted_once_a_minute(self, place: TrialDatabase) -> None:
        """And survives the server."""
        now = [NOW]
        with open_store(place.url, lambda: now[0]) as store:
            store.journal.serve()
            store.accounts.add_user(User("ada"))
            _, secret = store.accounts.add_token("ada", "laptop")
            for later, noted in ((0, 0), (30, 0), (59, 0), (60, 60), (119, 60), (121, 121)):
                now[0] = NOW + later
                store.accounts.find_token(secret)
                same(
                    store.accounts.tokens()[0].last_used_at, NOW + noted, f"the use after {later} s"
                )

    def test_secrets_are_nowhere(self, place: TrialDatabase) -> None:
        """Neither in lists nor in the event log."""
        with open_store(place.url) as store:
            store.accounts.add_user(User("ada"))
            _, secret = store.accounts.add_token("ada", "laptop")
            told = f"{store.accounts.tokens()} {store.events.find(EventQuery()).items}"
            require(secret not in told and secret[6:] not in told, "the secret is told")

    def test_queues(self, place: TrialDatabase) -> None:
        """Set, changed, deleted."""
        with open_store(place.url) as store:
            a = QueueRow(
                "a", 4000, None, 2.0, 1, ("ada", "bob"), (CellPromise(2, "node"),), overflows=False
            )
            b = QueueRow("b")
            store.accounts.set_queue(b)
            store.accounts.set_queue(a, actor="ada")
            same(store.accounts.queues(), [a, b], "the queues")
            a = replace(a, submitters=())
            store.accounts.set_queue(a)
            store.accounts.set_queue(a)
            same(store.accounts.queues(), [a, b], "the queues")
            store.accounts.delete_queue("b")
            with raises(NotFound, "queue 'b'"):
                store.accounts.delete_queue("b")
            same(store.accounts.queues(), [a], "the queues")
            same(store.events.find(EventQuery(kind="account")).total, 4, "the lines")


class PointConformance:
    """What every list of snapshots must do. Needs a fixture ``place``."""

    def test_snapshots_of_jobs(self, place: TrialDatabase) -> None:
        """Added once, found by name or as the newest, listed by job and user, deleted."""
        document = {"command": ["echo", "\0 é"], "env": {"a": "b"}}
        first = RestorePointRow("a-1", "one", "ada", "a", NOW, 3, 0.5, 2, 10, took_s=0.25)
        first = replace(first, fresh=True, function=True, document=document)
        later = RestorePointRow("a-1", "two", "ada", "a", NOW + 1)
        other = RestorePointRow("b-1", "one", "bob", "b", NOW + 2)
        with open_store(place.url) as store:
            for point in (first, later, other):
                store.restore_points.check(point.job, point.name)
                same(store.restore_points.add(point, actor=point.user), point, "what was added")
            with raises(Conflict, "a-1 has a snapshot 'one' already"):
                store.restore_points.add(first)
            with raises(Conflict, "already"):
                store.restore_points.check("a-1", "one")
            same(store.restore_points.get("a-1", "one"), first, "a snapshot by name")
            same(store.restore_points.get("a-1"), later, "the newest of a job")
            same(store.restore_points.get("c-1"), None, "one that is not there")
            same(store.restore_points.find().items, (other, later, first), "all, the newest first")
            same(store.restore_points.find("a-1", limit=1), RowPage((later,), 2), "a page")
            same(store.restore_points.find("a-1", offset=1).items, (first,), "the next page")
            same(store.restore_points.find(user="bob").items, (other,), "those of a user")
            same(store.restore_points.delete("a-1", "two", actor="ada"), later, "what was deleted")
            with raises(NotFound, "has no snapshot 'two'"):
                store.restore_points.delete("a-1", "two")
            lines = store.events.find(EventQuery(job="a-1")).items
            told = [(line.kind, line.actor, line.text) for line in lines]
            taken = [("snapshot", "ada", f"{name} taken") for name in ("one", "two")]
            same(told, [*taken, ("snapshot", "ada", "two deleted")], "the lines")

    def test_a_job_has_so_many_snapshots(self, place: TrialDatabase) -> None:
        """One more is refused, until another is deleted."""
        with open_store(place.url) as store:
            for number in range(MOST_POINTS):
                store.restore_points.add(
                    RestorePointRow("a-1", f"n{number}", "ada", "a", NOW + number)
                )
            with raises(Conflict, f"{MOST_POINTS} snapshots"):
                store.restore_points.add(RestorePointRow("a-1", "more", "ada", "a", NOW))
            store.restore_points.delete("a-1", "n0")
            store.restore_points.add(RestorePointRow("a-1", "more", "ada", "a", NOW))


_OFF = "viewer (off)"


def _is_one(line: EventRow) -> bool:
    return line.job == "j1" and line.kind == "k2"


def _random_job(chance: random.Random) -> JobRow:
    number = chance.randrange(150)
    name = chance.choice(["train", "Tune", "eval_1", "eval-2", "x"])
    started = chance.choice([None, NOW + chance.randrange(9)])
    return JobRow(
        f"{name}-{number}",
        name,
        chance.choice(["ada", "bob", "eve"]),
        chance.choice(["a", "b"]),
        chance.choice(STATES),
        priority=chance.randrange(-2, 3),
        gpus=chance.choice([0.0, 0.5, 1.0, 8.0]),
        submitted_at=NOW + chance.randrange(20),
        started_at=started,
        finished_at=None if started is None else chance.choice([None, started + 5.0]),
        labels={label: chance.choice("xy") for label in chance.sample("abc", chance.randrange(3))},
        view={"n": number},
    )


def _random_query(chance: random.Random) -> JobQuery:
    def some(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(chance.sample(values, chance.choice([0, 0, 1, 2])))

    labels = {chance.choice("abc"): chance.choice("xyz")} if chance.randrange(3) == 0 else {}
    return JobQuery(
        states=some(STATES),
        users=some(["ada", "bob", "nobody"]),
        queues=some(["a", "b"]),
        name=chance.choice(["", "", "", "t", "EVAL", "_"]),
        labels=labels,
        names=tuple(chance.sample(["train", "Tune", "none"], chance.choice([0, 0, 0, 1, 2]))),
        words=tuple(chance.sample(["T", "a=x", "B", "ada"], chance.choice([0, 0, 0, 1, 2]))),
        ended_after=chance.choice([None, None, None, NOW + 10.0]),
        sort=chance.choice(["", "-"]) + chance.choice(JOB_SORTS),
        offset=chance.choice([0, 0, 3, 40]),
        limit=chance.choice([1, 5, 200]),
    )


def _search(jobs: Iterable[JobRow], query: JobQuery) -> list[JobRow]:
    def passes(job: JobRow) -> bool:
        return (
            (not query.states or job.state in query.states)
            and (not query.users or job.user in query.users)
            and (not query.queues or job.queue in query.queues)
            and query.name.lower() in job.name.lower()
            and (not query.names or job.name in query.names)
            and query.labels.items() <= job.labels.items()
            and all(contains(job, word.lower()) for word in query.words)
            and (query.ended_after is None or (job.finished_at or -1.0) >= query.ended_after)
        )

    def contains(job: JobRow, word: str) -> bool:
        labels = (f"{label}={content}" for label, content in job.labels.items())
        texts = (job.id, job.name, job.user, job.queue, *labels)
        return any(word in text.lower() for text in texts)

    def key(job: JobRow) -> tuple[object, ...]:
        value = getattr(job, query.sort.removeprefix("-"))
        return (value is not None, value, job.id) if value is not None else (False, job.id)

    found = [job for job in jobs if passes(job)]
    return sorted(found, key=key, reverse=query.sort.startswith("-"))
