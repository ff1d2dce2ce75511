"""What every journal must do, whatever database it stands on."""

from __future__ import annotations

import threading
from contextlib import suppress

from roost.errors import Conflict, Fatal, InvalidSpec, RoostError
from roost.store import Fenced, HomeRow, JobQuery, StoreLost, open_store
from roost.testing.stores.database import TrialDatabase, entry, fill, job_row, raises, require, same


class JournalConformance:
    """What every journal must do. Needs a fixture ``place``."""

    def test_what_is_appended_is_there_again(self, place: TrialDatabase) -> None:
        """Entries of every shape, in order, also after the store was closed."""
        # What databases are known to change: zero bytes, lone surrogates, integers of over 64 bits.
        odd = {"text": "\0 \ud800 é 😀 'quoted'; -- ?%s", "deep": [[{"a": None}]], "big": 2**70}
        entries = [entry(1), entry(2, **odd), entry(3, n=[1.5, 1e300, -0.0])]
        with open_store(place.url) as store:
            store.journal.serve()
            same(store.journal.last(), None, "the last entry of an empty journal")
            store.journal.append(entries[:1])
            store.journal.append(entries[1:])
            same(list(store.journal.entries()), entries, "the journal")
        with open_store(place.url) as store:
            same(list(store.journal.entries()), entries, "the journal after closing")
            same(list(store.journal.entries(after=2)), entries[2:], "the end of the journal")
            same(store.journal.last(), entries[-1], "the last entry")

    def test_a_long_journal_is_read_in_one_go(self, place: TrialDatabase) -> None:
        """More entries than are read at once."""
        with open_store(place.url) as store:
            store.journal.serve()
            # Entries are read in chunks of 500: two whole ones and a part.
            store.journal.append([entry(seq) for seq in range(1, 1202)])
            same([one.seq for one in store.journal.entries()], list(range(1, 1202)), "the numbers")

    def test_numbers_have_no_gap(self, place: TrialDatabase) -> None:
        """A number that does not follow is refused, and nothing is written."""
        with open_store(place.url) as store:
            store.journal.serve()
            entries = fill(store, 3)
            for seq in (3, 5, 1, 0, -1):
                with raises(Fatal, f"entry {seq} cannot follow entry 3"):
                    store.journal.append([entry(seq)], [job_row("gap")])
            with raises(Fatal, "entry 6 cannot follow entry 4"):
                store.journal.append([entry(4), entry(6)])
            same(list(store.journal.entries()), entries, "the journal")
            same(store.jobs.find(JobQuery()).total, 0, "the number of jobs")

    def test_an_id_is_used_once(self, place: TrialDatabase) -> None:
        """The same entry under another number is refused, and the store goes on."""
        with open_store(place.url) as store:
            store.journal.serve()
            first = fill(store, 1)[0]
            with raises(Conflict):
                store.journal.append([first._replace(seq=2)])
            store.journal.append([entry(2)])
            same([one.seq for one in store.journal.entries()], [1, 2], "the numbers")

    def test_what_is_no_json_is_refused(self, place: TrialDatabase) -> None:
        """Before anything is written."""
        with open_store(place.url) as store:
            store.journal.serve()
            for value in (float("nan"), float("inf"), {1, 2}, object()):
                with raises(InvalidSpec, "entry 1"):
                    store.journal.append([entry(1, value=value)])
            with raises(RoostError):
                store.journal.append([entry(1)], [job_row("huge", priority=2**80)])
            fill(store, 1)

    def test_only_the_server_appends(self, place: TrialDatabase) -> None:
        """A reader cannot write the journal."""
        with open_store(place.url) as store, raises(Fatal, "call serve"):
            store.journal.append([entry(1)])

    def test_there_is_one_server(self, place: TrialDatabase) -> None:
        """A second one is refused by name; once the first is gone it may serve."""
        with open_store(place.url) as first, open_store(place.url) as second:
            epoch = first.journal.serve()
            fill(first, 2)
            with raises(Conflict, "process"):
                second.journal.serve()
            first.close()
            require(second.journal.serve() > epoch, "the epoch did not grow")
            fill(second, 1)

    def test_who_only_claims_has_changed_nothing(self, place: TrialDatabase) -> None:
        """Others are kept away, and can serve afterwards as if nothing had happened."""
        with open_store(place.url) as first:
            epoch = first.journal.serve()
            fill(first, 2)
        with open_store(place.url) as claiming, open_store(place.url) as other:
            require(not claiming.journal.claim(), "a new database is another home's")
            with raises(Conflict, "process"):
                other.journal.serve()
            with raises(Fatal, "call serve"):
                claiming.journal.append([entry(3)])
            claiming.close()
            same(other.journal.serve(), epoch + 1, "the epoch")

    def test_a_database_belongs_to_one_home(self, place: TrialDatabase) -> None:
        """Another home is refused, or adopts it and is told to count what ran as lost."""
        here = HomeRow("a" * 32, "/srv/a", "box", 1)
        there = HomeRow("b" * 32, "/srv/b", "crate", 1)
        with open_store(place.url) as store:
            require(not store.journal.claim(here), "a new database is another home's")
            store.journal.serve()
        with open_store(place.url) as store, raises(Conflict, "the home /srv/a on box"):
            store.journal.claim(there)
        with open_store(place.url) as store:
            require(store.journal.claim(there, adopt=True), "what is adopted is called one's own")
        with open_store(place.url) as store:
            moved = here._replace(path="/srv/c")
            require(
                not store.journal.claim(moved), "a claim that was given up has changed the home"
            )
            store.journal.serve()
        for adopt in (True, False):  # the first one ends before it could tell what is lost
            with open_store(place.url) as store:
                require(store.journal.claim(there, adopt=adopt), "what is lost was forgotten")
                store.journal.serve()
        with open_store(place.url) as store:
            store.journal.claim(there)
            store.journal.serve()
            store.journal.settle_home()
        with open_store(place.url) as store:
            require(not store.journal.claim(there), "what was settled is another home's")
        with open_store(place.url) as store, raises(Conflict, "the home /srv/b on crate"):
            store.journal.claim(here)

    def test_a_home_that_was_left_behind_is_refused(self, place: TrialDatabase) -> None:
        """It was moved elsewhere, or never knew where it is."""
        home = HomeRow("a" * 32, "/srv/a", "box", 1)
        for moved in (home, home._replace(path="/srv/b", generation=2)):
            with open_store(place.url) as store:
                store.journal.claim(moved)
                store.journal.serve()
        with open_store(place.url) as store, raises(Conflict, "moved there from here"):
            store.journal.claim(home)
        with open_store(place.url) as store:
            store.journal.claim(home._replace(path="/srv/b", generation=2))

    def test_what_a_snapshot_stands_for_can_be_compacted(self, place: TrialDatabase) -> None:
        """The chain goes on from there, and what a start needs stays."""
        with open_store(place.url) as store:
            store.journal.serve()
            entries = fill(store, 30)
            same(store.journal.compact(0, 100), 0, "what was removed without snapshots")
            store.journal.save_snapshot(20, "{}")
            same(store.journal.compact(0, 100), 0, "what was removed with one snapshot")
            store.journal.save_snapshot(25, "{}")
            same(store.journal.compact(15, 100), 15, "what was removed of 30 but 15")
            same(store.journal.compact(0, 3), 3, "what was removed in a small step")
            same(store.journal.compact(0, 100), 1, "what was removed before the older snapshot")
            same(store.journal.compact(0, 100), 0, "what was removed when nothing was left to")
        with open_store(place.url) as store:
            same(store.journal.base, 19, "the base")
            same(list(store.journal.entries()), entries[19:], "the journal")
            same(list(store.journal.entries(after=19)), entries[19:], "the journal from its base")
            same(list(store.journal.entries(after=24)), entries[24:], "the end of the journal")
            same([seq for seq, _ in store.journal.snapshots()], [25, 20], "the snapshots")
            store.journal.serve()
            fill(store, 1)
            same(len(list(store.journal.entries())), 12, "the entries")
            while store.shrink():
                pass
            same(len(list(store.journal.entries())), 12, "the entries of the smaller file")

    def test_a_journal_is_checked_while_it_is_compacted(self, place: TrialDatabase) -> None:
        """What went before it was looked at is not missed; what is missing else is."""
        removed: list[int] = []
        with open_store(place.url) as store:
            store.journal.serve()
            store.journal.append([entry(seq) for seq in range(1, 601)])
            for seq in (350, 500):
                store.journal.save_snapshot(seq, "{}")
            store.journal.verify(600, lambda: removed.append(store.journal.compact(100, 349)))
            same(removed[:2], [349, 0], "what was removed meanwhile")
            store.journal.verify(200, removed.clear)
            require(bool(removed), "entries that are gone were looked at")
        place.spoil("DELETE FROM journal WHERE seq = 450")
        with open_store(place.url) as store:
            store.journal.verify(449)
            with raises(Fatal, "damaged at entry 450"):
                store.journal.verify(600)

    def test_a_server_that_was_replaced_writes_no_more(self, place: TrialDatabase) -> None:
        """It lost its lock without noticing; the new one's journal is untouched."""
        with open_store(place.url) as old, open_store(place.url) as new:
            old.journal.serve()
            fill(old, 2)
            place.cut()
            new.journal.serve()
            entries = [*new.journal.entries(), *fill(new, 1)]
            try:
                old.journal.append([entry(3, late=True)])
            except StoreLost:  # it noticed that the connection is gone
                with raises(Fenced):
                    old.journal.reopen()
            except Fenced:
                pass
            else:
                raise AssertionError("a server that was replaced could append")
            with raises(RoostError):
                old.journal.append([entry(4, late=True)])
            entries += fill(new, 1)
            new.close()
            with raises(Fenced):
                old.journal.reopen()
            with open_store(place.url) as store:
                same(list(store.journal.entries()), entries, "the journal")

    def test_a_flipped_bit_is_found(self, place: TrialDatabase) -> None:
        """In any column of any entry, with its number."""
        changes = (
            ("body = '{\"v\":2}'", "WHERE seq = 3", 3),
            ("id = 'another'", "WHERE seq = 4", 4),
            ("time = time + 1", "WHERE seq = 1", 1),
            ("sum = 'abc'", "WHERE seq = 5", 5),
            ("body = '{}'", "WHERE seq = 6", 6),
        )
        with open_store(place.url) as store:
            store.journal.serve()
            fill(store, 6)
        place.spoil("CREATE TABLE kept AS SELECT * FROM journal")
        for change, where, seq in changes:
            place.spoil(f"UPDATE journal SET {change} {where}")  # noqa: S608 - ours
            with open_store(place.url) as store, raises(Fatal, f"damaged at entry {seq}"):
                list(store.journal.entries())
            with open_store(place.url) as store, raises(Fatal, f"damaged at entry {seq}"):
                store.journal.verify(6)
            _put_back(place)
        with open_store(place.url) as store:
            same(len(list(store.journal.entries())), 6, "the entries")

    def test_a_missing_entry_is_found(self, place: TrialDatabase) -> None:
        """In the middle, and at both ends."""
        with open_store(place.url) as store:
            store.journal.serve()
            fill(store, 9)
        place.spoil("CREATE TABLE kept AS SELECT * FROM journal")
        for seq in (5, 1, 9):
            place.spoil(f"DELETE FROM journal WHERE seq = {seq}")  # noqa: S608 - ours
            with open_store(place.url) as store, raises(Fatal, f"entry {seq}: it is missing"):
                list(store.journal.entries())
            with open_store(place.url) as store, raises(Fatal, f"entry {seq}: it is missing"):
                store.journal.verify(9)
            _put_back(place)
        # A missing end leaves no gap: only the last number in roost_meta tells of it.
        place.spoil("DELETE FROM journal WHERE seq > 7")
        with open_store(place.url) as store, raises(Fatal, "damaged at entry 9"):
            store.journal.serve()
        place.spoil("DELETE FROM journal")
        with open_store(place.url) as store, raises(Fatal, "damaged at entry 9"):
            store.journal.serve()

    def test_a_database_put_back_is_noticed(self, place: TrialDatabase) -> None:
        """No number is used again."""
        with open_store(place.url) as store:
            store.journal.serve()
            fill(store, 2)
            place.spoil("CREATE TABLE kept AS SELECT * FROM roost_meta")
            fill(store, 2)
            # As after restoring a backup under a running server: consistent, but older.
            place.spoil("DELETE FROM journal WHERE seq > 2")
            place.spoil(
                "UPDATE roost_meta SET last_seq = 2, last_sum = (SELECT last_sum FROM kept)"
            )
            with raises(Fatal, "put back to an older state"):
                store.journal.append([entry(5)])
            with raises(Fatal, "put back to an older state"):
                store.journal.reopen()
            with raises(Fatal, "put back to an older state"):
                list(store.journal.entries(after=4))
            same(len(list(store.journal.entries())), 2, "the entries")

    def test_snapshots(self, place: TrialDatabase) -> None:
        """The two newest are kept; a damaged one is left out."""
        with open_store(place.url) as store:
            store.journal.serve()
            same(list(store.journal.snapshots()), [], "the snapshots")
            fill(store, 9)
            for seq in (2, 4, 7, 7):
                store.journal.save_snapshot(seq, f'{{"seq":{seq}}}')
            both = [(7, '{"seq":7}'), (4, '{"seq":4}')]
            same(list(store.journal.snapshots()), both, "the snapshots")
            with raises(Fatal):
                store.journal.save_snapshot(10, "{}")
            place.spoil("UPDATE snapshots SET body = '{}' WHERE seq = 7")
            same(list(store.journal.snapshots()), both[1:], "the snapshots")
            place.spoil("UPDATE snapshots SET journal_sum = 'x' WHERE seq = 4")
            same(list(store.journal.snapshots()), [], "the snapshots")

    def test_many_who_start_at_once_make_one_database(self, place: TrialDatabase) -> None:
        """And only one of them serves."""
        ready, epochs, wrong = threading.Barrier(5), list[int](), list[Exception]()

        def start() -> None:
            # All open at the same moment, so that they race to create the tables.
            ready.wait()
            try:
                with open_store(place.url) as store:
                    with suppress(Conflict):
                        epochs.append(store.journal.serve())
                    # The store stays open until all have tried: the lock must not be free again.
                    ready.wait()
            except Exception as error:  # noqa: BLE001 - told below
                wrong.append(error)
                # Else the other threads would wait at the barrier for ever.
                ready.abort()

        threads = [threading.Thread(target=start) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(wrong, [], "what went wrong")
        same(epochs, [1], "the epochs")

    def test_a_newer_database_is_refused(self, place: TrialDatabase) -> None:
        """Schema or format; and nothing else is said to be wrong with it."""
        open_store(place.url).close()
        for column in ("schema", "format"):
            place.spoil(f"UPDATE roost_meta SET {column} = {column} + 1000")  # noqa: S608 - ours
            with raises(Fatal, "newer Roost"):
                open_store(place.url)
            place.spoil(f"UPDATE roost_meta SET {column} = {column} - 1000")  # noqa: S608 - ours
        open_store(place.url).close()

    def test_a_database_of_something_else_is_refused(self, place: TrialDatabase) -> None:
        """And stays as it was."""
        place.spoil("CREATE TABLE precious (id INTEGER)")
        with raises(InvalidSpec, "not a Roost database"):
            open_store(place.url)


def _put_back(place: TrialDatabase) -> None:
    place.spoil("DELETE FROM journal")
    place.spoil("INSERT INTO journal SELECT * FROM kept")
