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
    if known.id in ("", home.id):
        return not settled
    if adopt:
        return True
    place = f"the home {known.path} on {known.host}"
    if known[1:] == home[1:]:
        place = f"a home that was at {known.path} on {known.host} before this one"
    raise Conflict(
        f"{where} belongs to {place}, where its jobs run: start the server there; if that is not "
        "possible, roost up --adopt-home takes it over and declares what ran there lost"
    )


def take(session: Session, home: HomeRow, *, foreign: bool) -> None:
    """Make it the database of a home."""
    session.run(
        "UPDATE roost_meta SET home_id = ?, home_path = ?, home_host = ?, home_settled = ?",
        (home.id, clean(home.path), clean(home.host), int(not foreign)),
    )


def settle(session: Session) -> None:
    """Note that the runs of another home were declared lost; the rest is this home's."""
    session.run("UPDATE roost_meta SET home_settled = 1")


def _known(session: Session) -> tuple[HomeRow, bool]:
    row = session.one("SELECT home_id, home_path, home_host, home_settled FROM roost_meta")
    return (HomeRow(*row[:3]), bool(row[3])) if row else (HomeRow("", "", ""), True)
