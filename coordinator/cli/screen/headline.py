"""The lines above the tables: where the fleet is, how many are in which state, what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from coordinator.cli.screen.jobs import STYLES
from coordinator.cli.screen.layout import BAD, DIM, GOOD, PLAIN, WARN, Cell, clock
from coordinator.live.mirror import Snapshot

PATIENCE_S = 3.0  # for the first words of a coordinator that is there
_STATES = ("running", "claimed", "pending", "failed", "completed", "cancelled")


@dataclass(frozen=True, slots=True)
class Connection:
    """How the connection is: to which broker, as whom, and since when (monotonic seconds)."""

    address: str
    root: str
    user: str
    connected: bool
    why: str
    since_s: float


def where(seen: Snapshot, link: Connection) -> list[Cell]:
    """Return what the first line says: broker, coordinator, and who is looking."""
    coordinator = seen.status.get("coordinator") or {}
    machine = str(coordinator.get("host") or "")
    online = seen.coordinator is not None and seen.coordinator.state == "online"
    return [
        ("fleet top", PLAIN),
        (f"  {link.address}", PLAIN if link.connected else BAD),
        (f" {link.root}", DIM),
        (f"  coordinator {machine}".rstrip(), PLAIN),
        (" online" if online else " offline" if seen.coordinator else " unknown",
         GOOD if online else BAD),
        (f"  {link.user}", DIM),
    ]  # fmt: skip


def counts(seen: Snapshot) -> list[Cell]:
    """Return what the second line says: how many hosts and jobs are in which state."""
    online = sum(host.online for host in seen.hosts.values())
    barred = sum(bool(host.row.get("barred")) for host in seen.hosts.values())
    away = len(seen.hosts) - online
    jobs: Counter[str] = Counter(row.state for row in seen.jobs.values())
    cells: list[Cell] = [("hosts", DIM), (f" {online} online", GOOD if online else PLAIN)]
    cells += [(f" {away} away", WARN)] if away else []
    cells += [(f" {barred} barred", WARN)] if barred else []
    cells.append(("  jobs", DIM))
    found = [(f" {jobs[state]} {state}", STYLES[state]) for state in _STATES if jobs[state]]
    return cells + (found or [(" none", PLAIN)])


def trouble(seen: Snapshot, link: Connection, now_s: float) -> str:
    """Return what must not be overlooked; empty when all is well."""
    since_s = now_s - link.since_s
    if not link.connected:
        if since_s < PATIENCE_S and not seen.version:
            return ""
        return (
            f"NOT CONNECTED to the broker for {clock(since_s)} ({link.why}); trying again."
            " What you see is old"
        )
    if seen.coordinator is None:
        waits = since_s < PATIENCE_S
        return "" if waits else "NO COORDINATOR has been heard; start one: fleet coordinator"
    if seen.coordinator.state == "offline":
        how = "it was ended" if seen.coordinator.reason == "goodbye" else "its connection was lost"
        return f"COORDINATOR OFFLINE ({how}); what runs goes on, nothing new begins"
    return ""
