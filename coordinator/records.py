"""What is remembered of a host besides its messages: whether it may be given jobs at all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One row of the ledger's table of hosts.

    `drained`: an operator keeps new jobs off it. `quarantine` is why the fleet itself does; empty
    when it does not. `at` (RFC 3339) and `who` belong to the newest change.
    """

    host: str
    drained: bool = False
    quarantine: str = ""
    at: str = ""
    who: str = ""

    def barred(self) -> tuple[str, ...]:
        """Return every reason why it is given no jobs, with the remedy."""
        lifts = f"`fleet resume {self.host}` lifts it"
        found = [f"drained by {self.who} at {self.at}; {lifts}"] if self.drained else []
        if self.quarantine:
            found.append(f"in quarantine since {self.at}: {self.quarantine}; {lifts}")
        return tuple(found)
