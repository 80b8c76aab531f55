"""The lines above the tables: where the fleet is, how many are in which state, what is wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from broker.figures import span
from coordinator.client.contact import Outage
from coordinator.client.mirror import Snapshot
from coordinator.client.rows import Row, Tables
from coordinator.client.rows import counts as counts_of
from coordinator.client.watcher import Watcher
from coordinator.jobs.waiting_words import low_disk
from coordinator.ui.fleet_columns import BAD, DIM, GOOD, PLAIN, TONES, WARN, Cell

PATIENCE_S: Final = 3.0  # for the first connection
MORE: Final = " …"
NAME_CHARS: Final = 24  # of the plan's name
_STATES: Final = ("running", "claimed", "pending", "failed", "completed", "cancelled")


def where(seen: Snapshot, watcher: Watcher, width: int) -> list[Cell]:
    """Return what the first line says: plan, broker, coordinator, who is looking, if that fits."""
    machine = str((seen.status.get("coordinator") or {}).get("host") or "")
    online = seen.coordinator is not None and seen.coordinator.state == "online"
    state = " online" if online else " offline" if seen.coordinator else " unknown"
    name = seen.summary.plan if seen.summary else ""
    if cell_len(name) > NAME_CHARS:
        name = f"{set_cell_size(name, NAME_CHARS - 1).rstrip()}…"
    return _fitted(
        [
            (0, ("fleet top", PLAIN)),
            (3, (f"  {name}".rstrip(), GOOD)),
            (4, (f"  {watcher.address}", PLAIN if watcher.connected else BAD)),
            (6, (f" {watcher.topics.root}", DIM)),
            (1, ("  coordinator", PLAIN)),
            (2, (f" {machine}".rstrip(), PLAIN)),
            (0, (state, GOOD if online else BAD)),
            (5, (f"  {watcher.user}", DIM)),
        ],
        width,
    )


def counts(tables: Tables, width: int) -> list[Cell]:
    """Return what the second line says: how many hosts and jobs are in which state, if it fits."""
    hosts: Collection[Row] = tables.hosts.rows.values()
    jobs = counts_of(tables.jobs.rows.values())
    online = sum(row["online"] for row in hosts)
    barred = sum(bool(row["barred"]) for row in hosts)
    away = len(hosts) - online
    cells: list[Cell] = [("hosts", DIM), (f" {online} online", GOOD if online else PLAIN)]
    cells += [(f" {away} away", WARN)] if away else []
    cells += [(f" {barred} barred", WARN)] if barred else []
    cells.append(("  jobs", DIM))
    found = [(f" {jobs[state]} {state}", TONES[state]) for state in _STATES if jobs[state]]
    ranked = [(0, cell) for cell in cells]
    ranked += enumerate(found, 1) if found else [(0, (" none", PLAIN))]
    shown = _fitted(ranked, width - len(MORE))
    return shown if len(shown) == len(ranked) else [*shown, (MORE, DIM)]


def _fitted(ranked: Sequence[tuple[int, Cell]], width: int) -> list[Cell]:
    """Return the cells that fit; of the others the highest rank goes first, rank 0 stays."""
    shown = list(ranked)
    for rank in sorted({rank for rank, _ in ranked} - {0}, reverse=True):
        if sum(cell_len(text) for _, (text, _) in shown) <= width:
            break
        shown = [one for one in shown if one[0] != rank]
    return [cell for _, cell in shown]


def pause(seen: Snapshot) -> str:
    """Return that the fleet is paused, and what lifts it, for a line of 58 columns; else empty."""
    return "PAUSED: no new jobs begin; `fleet pause --off` lifts it" if seen.paused else ""


def trouble(seen: Snapshot, outage: Outage | None, now_s: float) -> str:
    """Return what must not be overlooked; empty when all is well."""
    if outage is not None and outage.what != "first":
        since_s = 0.0 if outage.since_s is None else now_s - outage.since_s
        if outage.what == "broker" and not seen.version and since_s < PATIENCE_S:
            return ""
        title, remedy = outage.told(seen.coordinator)
        since = f" for {span(since_s)}" if since_s else ""
        return f"{title}{since}. {remedy} What you see may be old"
    if seen.summary is not None and (lack := seen.summary.no_room) is not None:
        return f"The coordinator's disk is low: {low_disk(lack.model_dump())}"
    return ""
