"""The ledger's rows of hosts and of the fleet as a whole: what is decided about them."""

from __future__ import annotations

from typing import Final

from coordinator.jobs.records import FleetRecord, HostRecord
from coordinator.ledger.database import Database

_COLUMNS: Final = (
    "host", "drained", "quarantine", "at", "who", "drained_now", "snoozed_until", "snoozed_by",
    "snooze_s", "snooze_finish",
)  # fmt: skip
# Names of our own columns only; every value is bound.
_LOAD: Final = f"SELECT {', '.join(_COLUMNS)} FROM hosts"  # noqa: S608 - see above
_PUT: Final = (
    f"INSERT OR REPLACE INTO hosts ({', '.join(_COLUMNS)})"  # noqa: S608 - see above
    f" VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_FLEET: Final = "INSERT OR REPLACE INTO fleet (only, paused, at, who) VALUES (1, ?, ?, ?)"


def load(database: Database) -> dict[str, HostRecord]:
    """Return what is remembered of each host."""
    return {row[0]: _record(*row) for row in database.execute(_LOAD).fetchall()}


def load_fleet(database: Database) -> FleetRecord:
    """Return what is remembered of the fleet as a whole."""
    row = database.execute("SELECT paused, at, who FROM fleet").fetchone()
    return FleetRecord() if row is None else FleetRecord(bool(row[0]), row[1], row[2])


def remember(database: Database, record: HostRecord | FleetRecord) -> None:
    """Put a record in the place of the one before."""
    if isinstance(record, FleetRecord):
        database.execute(_FLEET, (int(record.paused), record.at, record.who))
        return
    until = record.snoozed_until or None
    database.execute(
        _PUT,
        (
            record.host, int(record.drained), record.quarantine or None, record.at, record.who,
            int(record.drained_now), until, record.snoozed_by if until else None,
            record.snooze_s if until else None, int(bool(until) and not record.snoozed_now),
        ),
    )  # fmt: skip


def _record(
    host: str, drained: int, quarantine: str | None, at: str, who: str, drained_now: int,
    until: str | None, snoozed_by: str | None, snooze_s: float | None, snooze_finish: int,
) -> HostRecord:  # fmt: skip
    return HostRecord(
        host, bool(drained), quarantine or "", at, who, bool(drained_now), until or "",
        snoozed_by or "", snooze_s or 0.0, bool(until and not snooze_finish),
    )  # fmt: skip
