"""The ledger's rows of hosts and of the fleet as a whole: what is decided about them."""

from __future__ import annotations

from coordinator.jobs.records import FleetRecord, HostRecord
from coordinator.ledger.database import Database
from coordinator.ledger.statements import sql


def load(database: Database) -> dict[str, HostRecord]:
    """Return what is remembered of each host."""
    return {row[0]: _record(*row) for row in database.execute(sql("load_hosts")).fetchall()}


def load_fleet(database: Database) -> FleetRecord:
    """Return what is remembered of the fleet as a whole."""
    row = database.execute(sql("load_fleet")).fetchone()
    return FleetRecord() if row is None else FleetRecord(bool(row[0]), row[1], row[2])


def remember(database: Database, record: HostRecord | FleetRecord) -> None:
    """Put a record in the place of the one before."""
    if isinstance(record, FleetRecord):
        database.execute(sql("put_fleet"), (int(record.paused), record.at, record.who))
        return
    until = record.snoozed_until or None
    database.execute(
        sql("put_host"),
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
