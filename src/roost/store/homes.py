"""The home of a database: its jobs run in one home, and no other home knows what is alive there.

A server of another home would find nothing of what the journal says is running, and start it again.
So a database keeps the id of its home. Another home can take it over only by declaring those runs
lost; until that has happened, the database says that it was not settled.
"""

from __future__ import annotations

from roost.errors import Conflict
from roost.store.database import Session
from roost.store.encoding import clean
from roost.store.rows import HomeRow


def is_foreign(session: Session, where: str, home: HomeRow, *, adopt: bool) -> bool:
    """Whether runs in the journal may be of another home; raises Conflict unless it is adopted."""
    known, settled = _known(session)
    if known.id == home.id:
        _check_same(where, known, home)
    if known.id in ("", home.id):
        return not settled
    if adopt:
        return True
    place = f"the home {known.path} on {known.host}"
    if (known.path, known.host) == (home.path, home.host):
        place = f"a home that was at {known.path} on {known.host} before this one"
    raise Conflict(
        f"{where} belongs to {place}, where its jobs run: start the server there; if that is not "
        "possible, roost up --adopt-home takes it over and declares what ran there lost"
    )


def take(session: Session, home: HomeRow, *, foreign: bool) -> None:
    """Make it the database of a home."""
    session.run(
        "UPDATE roost_meta SET home_id = ?, home_path = ?, home_host = ?, "
        "home_generation = ?, home_settled = ?",
        (home.id, clean(home.path), clean(home.host), home.generation, int(not foreign)),
    )


def settle(session: Session) -> None:
    """Note that the runs of another home were declared lost; the rest is this home's."""
    session.run("UPDATE roost_meta SET home_settled = 1")


def _check_same(where: str, known: HomeRow, home: HomeRow) -> None:
    """Refuse a home that was left behind, or that never knew its place and is elsewhere now."""
    if home.generation < known.generation:
        raise Conflict(
            f"{where} belongs to the home {known.path} on {known.host}, which was moved there from "
            "here: start the server there"
        )
    if not home.generation and (known.path, known.host) != (home.path, home.host):
        raise Conflict(
            f"{where} belongs to a home that was at {known.path} on {known.host}. If that one is "
            "gone: roost up --moved (takes over; what ran there starts again from its last "
            "checkpoints). If it is still in use: roost up --as-copy (a home of its own; what "
            "began in the original stays there and is cancelled here)"
        )


def _known(session: Session) -> tuple[HomeRow, bool]:
    row = session.one(
        "SELECT home_id, home_path, home_host, home_generation, home_settled FROM roost_meta"
    )
    return (HomeRow(*row[:4]), bool(row[4])) if row else (HomeRow("", "", ""), True)
